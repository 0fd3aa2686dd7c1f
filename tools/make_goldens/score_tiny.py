"""Writes tests/golden/data/tiny_score.json: log-probabilities of six texts under models/tiny.

Value i of a text is log p(ids[i + 1] | ids[:i + 1]), computed twice:
  logprobs  transformers, float32 on the CPU, eager attention
  served    our own reference in float64, rounding what Lantern rounds with its default settings: inputs of matrix
            products and cached latents to bf16, index keys and queries to FP8 (reference.py)
One text has more than 400 tokens, far beyond index_topk, so that the indexer decides what is seen. The C++ test takes
its bounds from three spreads of absolute differences: `agreement`, of our reference without rounding to transformers;
`rounding`, of `served` to transformers (`rounding_fp8`: with FP8 latents); `flips`, of `served` to the same with random
errors of 1e-6 in every matrix product, which is what two correct implementations differ by. `weights_crc32` (all shards, in order of their names) tells which weights the file belongs to.
"""

import argparse
import json
import pathlib
import zlib

import safetensors.torch
import torch
import transformers

import hf_run
from reference import SERVED, Reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXED_TEXTS = [
    "Question: Tom has 12 apples. He buys 3 bags with 5 apples each. How many apples does he have now?\n"
    "Answer: 3*5=15. 12+15=27. #### 27",
    "In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was "
    "upon the face of the deep.",
    "Gr\u00fc\u00dfe aus K\u00f6ln: na\u00efve caf\u00e9, "
    "\u4f60\u597d, \u041f\u0440\u0438\u0432\u0435\u0442 \U0001f680\n\tif (x <= 10) { return 3.14; }",
]


def eval_texts(folder, tokenizer):
    """One item of each frozen task, prompt and answer; the recall item is the shortest above 420 tokens."""
    for name in ("recall", "copysort", "toolcall"):
        with open(folder / f"{name}.jsonl", encoding="utf-8") as lines:
            items = [json.loads(line) for line in lines]
        texts = [item["prompt"] + item.get("answer", "") for item in items]
        if name == "recall":
            texts = sorted((t for t in texts if len(tokenizer.encode(t)) > 420), key=len)
        yield texts[0]


def checkpoint(folder):
    weights, crc = {}, 0
    for path in sorted(folder.glob("*.safetensors")):
        crc = zlib.crc32(path.read_bytes(), crc)
        weights.update(safetensors.torch.load_file(path))
    return weights, crc


def score(logits, ids):
    return logits.double().log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]


def spread(a, b):
    difference = (torch.cat(a) - torch.cat(b)).abs()
    p95 = float(torch.quantile(difference, 0.95))
    return {"mean": float(difference.mean()), "p95": p95, "max": float(difference.max())}


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/tiny")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden/data/tiny_score.json")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    config = json.loads((args.model / "config.json").read_text())
    weights, crc = checkpoint(args.model)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(args.model / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    dense = config.get("first_k_dense_replace", (config.get("mlp_layer_types") or []).count("dense"))
    models = {"exact": Reference(config, weights, dense)}
    for name, caches, jitter in (
        ("served", "bf16_index_fp8", None),
        ("served_fp8", "fp8_index_fp8", None),
        ("flipped", "bf16_index_fp8", torch.Generator().manual_seed(0)),
    ):
        models[name] = Reference(config, weights, dense, rounded=True, served=SERVED[caches], jitter=jitter)
    texts, runs = [], {name: [] for name in ("logprobs", *models)}
    for text in FIXED_TEXTS + list(eval_texts(args.model / "eval", tokenizer)):
        ids = torch.tensor(tokenizer.encode(text))
        runs["logprobs"].append(score(hf_run.run_hf(model, ids)["logits"], ids))
        for name, reference in models.items():
            runs[name].append(score(reference.forward(ids)["logits"], ids))
        lists = {name: [round(float(x), 6) for x in runs[name][-1]] for name in ("logprobs", "served")}
        texts.append({"text": text, "ids": ids.tolist(), **lists})
    longest = max(len(t["ids"]) for t in texts)
    assert crc and longest > 400 and longest > config["index_topk"], f"longest text has {longest} tokens"
    result = {
        "made_by": "tools/make_goldens/score_tiny.py",
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "weights_crc32": crc,
        "agreement": spread(runs["exact"], runs["logprobs"]),
        "rounding": spread(runs["served"], runs["logprobs"]),
        "rounding_fp8": spread(runs["served_fp8"], runs["logprobs"]),
        "flips": spread(runs["flipped"], runs["served"]),
    }
    body = ",\n".join(json.dumps(t, ensure_ascii=True, separators=(",", ":")) for t in texts)
    args.out.write_text(json.dumps(result)[:-1] + ',\n"texts": [\n' + body + "\n]}\n")
    print(args.out, args.out.stat().st_size, [len(t["ids"]) for t in texts], result)


if __name__ == "__main__":
    main()
