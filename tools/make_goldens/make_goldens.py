"""Writes tests/golden/data/<case>/{config.json,tensors.json,golden.safetensors}. See README.md."""

import argparse
import json
import pathlib
import sys

import numpy as np
import safetensors
import safetensors.torch
import torch
import transformers

import hf_run
from cases import build_cases
from hash_weights import dequantised_weights, hash_words, stored_tensor
from manifest import Manifest
from reference import SERVED, TRAPS, Reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What a case must offer so that rounding alone hardly changes a discrete choice in another implementation, and what the
# C++ test allows as a part of the largest |value|. float32 runs differ by about 2e-6. Where inputs are rounded to bf16
# (True), an error of 1e-6 now and then moves a value across a rounding boundary, and layer after layer that grows:
# two correct runs differ by up to 8e-3 (1e-3 on average), one that does not round by 7e-3 on average.
LIMITS = {
    False: {
        "router_gap": 3e-5,
        "selected_gap": 2e-5,
        "greedy_margin": 5e-3,
        "agreement": 3e-5,
        "tolerance": 1e-4,
        "trap": 50,
    },
    True: {
        "router_gap": 1e-3,
        "selected_gap": 1e-3,
        "greedy_margin": 2e-2,
        "agreement": 1.2e-2,
        "tolerance": 2e-2,
        "trap": 10,
    },
}
GREEDY_TOKENS = 8
JITTER_RUNS = 8


def input_ids(case, index):
    words = hash_words(f"{case['salt']}/input_ids.{index}", case["lengths"][index])
    return torch.from_numpy((words >> np.uint64(33)).astype(np.int64) % case["config"]["vocab_size"])


def kept_positions(case, length):
    if case["positions"] == "all":
        return torch.arange(length)
    return torch.unique(torch.cat([torch.arange(0, length, 17), torch.arange(max(length - 12, 0), length)]))


def rows_of_logits(case, keep):
    """Of the kept positions, those whose logits are written: every third and the last. Logits are one matrix product
    away from `final`, which is written for all of them, and four times as large. Where inputs are rounded every one is
    written: some known mistakes show beyond the wide tolerance at few positions."""
    return keep if case["rounded"] else torch.unique(torch.cat([keep[::3], keep[-1:]]))


def rows_of_drafts(length):
    """The positions whose draft logits are written: every other and the last. What the head is fed with is not."""
    return torch.unique(torch.cat([torch.arange(0, length, 2), torch.tensor([length - 1])]))


def relative(a, b):
    return float((a.double() - b.double()).abs().max() / b.double().abs().max())


def packed(selected):
    """[T, T] bool -> [T, ceil(T/8)] bytes, bit j % 8 of byte j // 8 = key j."""
    return torch.from_numpy(np.packbits(selected.numpy(), axis=1, bitorder="little"))


def save_golden(tensors, path, metadata):
    """A safetensors file whose bytes depend on its content alone; the package writes metadata in random order."""
    names = {torch.float32: "F32", torch.int32: "I32", torch.uint8: "U8"}
    header, blobs, offset = {"__metadata__": metadata}, [], 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        blob = tensor.contiguous().numpy().tobytes()
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))
    assert all(torch.equal(tensors[k], v) for k, v in safetensors.torch.load_file(path).items())


class Unsuitable(Exception):
    """This salt lets rounding decide something; try the next."""


def limits(case):
    return LIMITS[case["rounded"]]


def reference(case, weights, dtype=torch.float64, traps=()):
    return Reference(
        case["config"], weights, case["dense_layers"], case.get("indexer_types"), dtype, traps, case["rounded"]
    )


def discrete_choices_are_clear(case, exact):
    for layer in exact["layers"]:
        if "router_gap" in layer and layer["router_gap"].min() < limits(case)["router_gap"]:
            raise Unsuitable(f"router gap {layer['router_gap'].min():.1e}")
        if "selected_gap" in layer:
            gap = layer["selected_gap"]
            if gap[gap > 0].min() < limits(case)["selected_gap"]:
                raise Unsuitable(f"selection gap {gap[gap > 0].min():.1e}")


def survives_other_rounding(case, weights, ids, exact):
    """Rounding flips decide nothing in this case: runs that are off by 1e-6 everywhere make the same choices."""
    for seed in range(JITTER_RUNS):
        jitter = torch.Generator().manual_seed(seed)
        other = Reference(
            case["config"], weights, case["dense_layers"], case.get("indexer_types"), rounded=True, jitter=jitter
        ).forward(ids)
        for mine, theirs in zip(exact["layers"], other["layers"]):
            if any(key in mine and not (mine[key] == theirs[key]).all() for key in ("experts", "selected")):
                raise Unsuitable("another rounding chooses differently")
        if relative(other["logits"], exact["logits"]) > limits(case)["tolerance"] / 2:
            raise Unsuitable("another rounding gives other logits")


def check_against_reference(case, got, exact, report):
    """transformers in float32 against our float64: the same choices, and values within float32 rounding."""
    for key in ("embedding", "final", "logits"):
        report[f"{key}_error"] = max(report.get(f"{key}_error", 0.0), relative(got[key], exact[key]))
    for index, (mine, theirs) in enumerate(zip(exact["layers"], got["layers"])):
        report["hidden_error"] = max(report.get("hidden_error", 0.0), relative(theirs["hidden"], mine["hidden"]))
        assert ("experts" in mine) == ("experts" in theirs) and ("selected" in mine) == ("selected" in theirs)
        for key in ("experts", "selected"):
            if key in mine:
                assert (mine[key] == theirs[key]).all(), (case["name"], key, index)
        if "experts" in mine:
            error = relative(theirs["expert_weights"], mine["expert_weights"])
            report["router_error"] = max(report.get("router_error", 0.0), error)
    worst = max(value for key, value in report.items() if key.endswith("_error"))
    assert worst < limits(case)["agreement"], (case["name"], report)


def sequence_tensors(case, index, ids, got, exact):
    keep, prefix = kept_positions(case, len(ids)), f"s{index}."
    rows = rows_of_logits(case, keep)
    out = {
        "input_ids": ids.int(),
        "positions": keep.int(),
        "final": got["final"][keep],
        "logit_positions": rows.int(),
        "logits": got["logits"][rows],
    }
    for number, (layer, clear) in enumerate(zip(got["layers"], exact["layers"])):
        out[f"hidden.{number}"] = layer["hidden"][keep]
        if "experts" in layer:
            out[f"experts.{number}"] = layer["experts"].to(torch.uint8)
            out[f"expert_weights.{number}"] = layer["expert_weights"]
            out[f"router_gap.{number}"] = clear["router_gap"].float()
        if "selected" in layer:
            out[f"selected.{number}"] = packed(layer["selected"])
            out[f"selected_gap.{number}"] = clear["selected_gap"].float()
    return {prefix + key: value.contiguous() for key, value in out.items()}


def mtp_tensors(case, model, weights, exact_model, index, ids, got, next_token, report):
    """Teacher-forced draft logits for every position, then two chained drafts after the prompt."""
    mine = reference(case, weights, torch.float32)
    shifted = torch.cat([ids[1:], torch.tensor([next_token])])
    hidden = got["final"]
    with hf_run.stable_topk():
        drafted = mine.mtp(shifted, hidden)
        exact = exact_model.mtp(shifted, exact_model.forward(ids)["final"])
    discrete_choices_are_clear(case, {"layers": [exact["layer"]]})
    report["mtp_logits_error"] = max(report.get("mtp_logits_error", 0), relative(drafted["logits"], exact["logits"]))
    assert report["mtp_logits_error"] < limits(case)["agreement"], report
    if case["config"]["model_type"] == "deepseek_v3":
        theirs = hf_run.hf_mtp_layer(model, case, weights, shifted, hidden)
        report["mtp_hf_layer_error"] = max(report.get("mtp_hf_layer_error", 0), relative(theirs, drafted["after_norm"]))
        assert report["mtp_hf_layer_error"] < limits(case)["agreement"], report
    rows = rows_of_drafts(len(ids))
    out = {
        "mtp.logit_positions": rows.int(),
        "mtp.logits": drafted["logits"][rows],
        "experts.mtp": drafted["layer"]["experts"].to(torch.uint8),
        "expert_weights.mtp": drafted["layer"]["expert_weights"],
        "router_gap.mtp": exact["layer"]["router_gap"].float(),
    }
    if "selected" in drafted["layer"]:
        out["selected.mtp"] = packed(drafted["layer"]["selected"])
        out["selected_gap.mtp"] = exact["layer"]["selected_gap"].float()
    # Second draft: the same layer once more, one position on, fed with its own output at the last position. Public
    # engines differ in whether that output is taken before or after shared_head.norm: both are here.
    first = int(drafted["logits"][-1].argmax())
    out["mtp.tokens"] = torch.tensor([next_token, first], dtype=torch.int32)
    for key in ("before_norm", "after_norm"):
        chained = torch.cat([hidden, drafted[key][-1:]])
        again = mine.mtp(torch.cat([shifted, torch.tensor([first])]), chained)
        discrete_choices_are_clear(case, {"layers": [again["layer"]]})
        out[f"mtp.second_logits_{key}"] = again["logits"][-1:]
        best = again["logits"][-1].sort(descending=True).values
        if best[0] - best[1] < limits(case)["greedy_margin"]:
            raise Unsuitable("second draft margin")
    if case["config"].get("index_share_for_mtp_iteration"):
        chained = torch.cat([hidden, drafted["after_norm"][-1:]])
        ids_of_two = torch.cat([shifted, torch.tensor([first])])
        shared = mine.mtp(ids_of_two, chained, chosen=drafted["layer"]["selected"])
        discrete_choices_are_clear(case, {"layers": [shared["layer"]]})
        out["mtp.second_logits_shared"] = shared["logits"][-1:]
        moved = relative(shared["logits"][-1:], out["mtp.second_logits_after_norm"]) / limits(case)["tolerance"]
        if moved < limits(case)["trap"]:
            raise Unsuitable(f"keys of its own move the second draft by {moved:.1f} tolerances")
    best = drafted["logits"][-1].sort(descending=True).values
    if best[0] - best[1] < limits(case)["greedy_margin"]:
        raise Unsuitable("draft margin")
    return {f"s{index}.{key}": value.contiguous() for key, value in out.items()}


def served_tensors(case, weights, index, ids):
    """What the caches of a serving engine make of the case, by our float64 reference (transformers rounds no cache)."""
    rows, out = rows_of_logits(case, kept_positions(case, len(ids))), {}
    for name, served in SERVED.items():
        model = Reference(
            case["config"], weights, case["dense_layers"], case.get("indexer_types"), torch.float64, served=served
        )
        result = model.forward(ids)
        out[f"served.{name}.logits"] = result["logits"][rows].float()
        for number, layer in enumerate(result["layers"]):
            out[f"served.{name}.selected.{number}"] = packed(layer["selected"])
            out[f"served.{name}.selected_gap.{number}"] = layer["selected_gap"].float()
    return {f"s{index}.{key}": value.contiguous() for key, value in out.items()}


def mtp_trap_margins(case, weights, ids, exact, exact_draft):
    """As trap_margins, for the draft logits: halves of eh_proj swapped, hidden state from before the last norm, and
    token i instead of token i + 1."""
    plain = reference(case, weights, torch.float32)
    swapped = reference(case, weights, torch.float32, ["mtp_order"])
    following, hidden = exact_draft["ids"], exact["final"].float()
    wrong = {
        "mtp_order": swapped.mtp(following, hidden),
        "mtp_hidden_before_norm": plain.mtp(following, exact["layers"][-1]["hidden"].float()),
        "mtp_same_token": plain.mtp(ids, hidden),
    }
    rows = rows_of_drafts(len(ids))
    margins = {
        name: round(relative(d["logits"][rows], exact_draft["logits"][rows]) / limits(case)["tolerance"], 1)
        for name, d in wrong.items()
    }
    if min(margins.values()) < limits(case)["trap"]:
        raise Unsuitable(f"MTP traps {margins}")
    return margins


def trap_margins(case, weights, sequences):
    """For each mistake: the largest change of a written logit, as a multiple of what the C++ test allows."""
    margins = {}
    for trap, (_, applies) in TRAPS.items():
        if not applies(case["config"]):
            continue
        model = reference(case, weights, torch.float32, [trap])
        worst = 0.0
        for ids, exact in sequences:
            rows = rows_of_logits(case, kept_positions(case, len(ids)))
            worst = max(
                worst, relative(model.forward(ids)["logits"][rows], exact["logits"][rows]) / limits(case)["tolerance"]
            )
        margins[trap] = round(worst, 1)
        if worst < limits(case)["trap"]:
            raise Unsuitable(f"trap {trap} moves the logits by only {worst:.1f} tolerances")
    return margins


@torch.no_grad()
def make_case(case, out_root):
    manifest = Manifest(case).as_json()
    weights = dequantised_weights(manifest)
    exact_model = reference(case, weights)
    sequences = [(ids, exact_model.forward(ids)) for ids in (input_ids(case, i) for i in range(len(case["lengths"])))]
    for _, exact in sequences:
        discrete_choices_are_clear(case, exact)
    if case["rounded"]:
        for ids, exact in sequences:
            survives_other_rounding(case, weights, ids, exact)
    margins = trap_margins(case, weights, sequences)
    model = hf_run.load_hf(case, weights)
    report, tensors = {}, {}
    assert relative(model.model.rotary_emb.inv_freq, exact_model.inv_freq()) < 1e-6, "inv_freq"
    assert all(abs(layer.self_attn.scaling / exact_model.softmax_scale() - 1) < 1e-6 for layer in model.model.layers)
    for index, (ids, exact) in enumerate(sequences):
        got = hf_run.run_hf(model, ids, case["rounded"])
        check_against_reference(case, got, exact, report)
        tensors.update(sequence_tensors(case, index, ids, got, exact))
        tokens, clear = hf_run.greedy(model, ids, GREEDY_TOKENS, case["rounded"])
        if min(clear) < limits(case)["greedy_margin"]:
            raise Unsuitable(f"greedy margin {min(clear):.1e}")
        tensors[f"s{index}.greedy"] = torch.tensor(tokens, dtype=torch.int32)
        tensors[f"s{index}.greedy_margin"] = torch.tensor(clear)
        if case.get("served"):
            tensors.update(served_tensors(case, weights, index, ids))
        if case.get("mtp"):
            tensors.update(mtp_tensors(case, model, weights, exact_model, index, ids, got, tokens[0], report))
            following = torch.cat([ids[1:], torch.tensor(tokens[:1])])
            exact_draft = {"ids": following, **exact_model.mtp(following, exact["final"])}
            margins.update(mtp_trap_margins(case, weights, ids, exact, exact_draft))
    metadata = {
        "case": case["name"],
        "made_by": "tools/make_goldens/make_goldens.py",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "safetensors": safetensors.__version__,
        "python": sys.version.split()[0],
        "class": type(model).__name__,
        "run": "float32, CPU, attn_implementation eager, weights dequantised to float32",
        "patches": "torch.topk by stable sort (lower index first among equal values); nothing else",
        "inputs": "rounded to bf16 (hf_run.rounded_inputs)" if case["rounded"] else "float32",
        "mtp": "our own PyTorch (reference.py)" if case.get("mtp") else "none",
        "float64_agreement": json.dumps(report),
        "trap_margins_in_tolerances": json.dumps(margins),
        "tolerance": str(limits(case)["tolerance"]),
        "dense_layers": str(case["dense_layers"]),
        "indexer_types": json.dumps(case.get("indexer_types")),
    }
    folder = out_root / case["name"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(case["config"], indent=2) + "\n")
    lines = ",\n".join("  " + json.dumps(entry, separators=(",", ":")) for entry in manifest["tensors"])
    (folder / "tensors.json").write_text(f'{{"salt": "{case["salt"]}", "tensors": [\n{lines}\n]}}\n')
    save_golden(tensors, folder / "golden.safetensors", metadata)
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(
        f"{case['name']}: salt {case['salt']}, {size} bytes, {json.dumps(report)}\n  traps {json.dumps(margins)}",
        flush=True,
    )


def write_hash_vectors(path):
    """The first elements of one tensor of every kind and dtype, as integers: for the C++ twin of the generator."""
    entries = [
        {"name": "model.norm.weight", "shape": [3, 4], "dtype": "F32", "offset": 1.0, "scale": 0.25},
        {"name": "lm_head.weight", "shape": [12], "dtype": "BF16", "offset": 0.0, "scale": 0.1875},
        {"name": "lm_head.weight", "shape": [12], "dtype": "F16", "offset": 0.0, "scale": 0.1875},
        {"name": "x", "shape": [12], "dtype": "F8_E4M3", "kind": "e4m3", "offset": 0, "scale": 0},
        {"name": "x_scale_inv", "shape": [12], "dtype": "F32", "kind": "pow2", "offset": -5, "scale": 3},
        {"name": "y", "same_as": "x", "shape": [12], "dtype": "F32", "offset": 0.5, "scale": 2.0},
    ]
    integers = {torch.float32: np.uint32, torch.bfloat16: np.uint16, torch.float16: np.uint16}
    for entry in entries:
        tensor = stored_tensor(entry, "vectors").flatten()
        raw = tensor.view(torch.uint8).numpy().view(integers.get(tensor.dtype, np.uint8))
        entry["bits"] = [int(x) for x in raw]
    lines = ",\n".join("  " + json.dumps(entry) for entry in entries)
    path.write_text(f'{{"salt": "vectors", "tensors": [\n{lines}\n]}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="case names (default: all)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden/data")
    parser.add_argument("--tries", type=int, default=60, help="salts to try per case")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    cases = build_cases()
    write_hash_vectors(args.out / "hash_weights.json")
    for name in args.cases or cases:
        for attempt in range(args.tries):
            case = {**cases[name], "salt": f"{name}.{attempt}"}
            try:
                make_case(case, args.out)
                break
            except Unsuitable as reason:
                print(f"{name}: salt {attempt}: {reason}", file=sys.stderr, flush=True)
        else:
            sys.exit(f"{name}: no suitable salt in {args.tries}")


if __name__ == "__main__":
    main()
