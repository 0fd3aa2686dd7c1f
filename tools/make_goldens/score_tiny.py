"""Writes tests/golden/data/tiny_score.json: log-probabilities of six texts under models/tiny by transformers.

float32, CPU, eager attention; token i's value is log p(ids[i] | ids[:i]), i from 1. One text is longer than 400 tokens,
beyond index_topk, so that the indexer decides what is seen. The file holds the CRC-32 of the weights it belongs to (all
shards, in order of their names): a retrained model needs a new file. `error` is the largest difference to our own float64 run over the same texts, and
`min_selected_gap` how clearly the indexer chose (see reference.py): what an implementation in other arithmetic may
differ by follows from these two.
"""

import argparse
import json
import pathlib
import zlib

import safetensors.torch
import torch
import transformers

import hf_run
from reference import Reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXED_TEXTS = [
    "Question: Tom has 12 apples. He buys 3 bags with 5 apples each. How many apples does he have now?\n"
    "Answer: 3*5=15. 12+15=27. #### 27",
    "In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was "
    "upon the face of the deep.",
    "Gr\u00fc\u00dfe aus K\u00f6ln: na\u00efve caf\u00e9, "
    "\u4f60\u597d, \u041f\u0440\u0438\u0432\u0435\u0442 \U0001f680\n\tif (x <= 10) { return 3.14; }",
]


def eval_texts(folder):
    """The first item of each frozen task, prompt and answer; the recall task is the long one."""
    for name in ("recall", "copysort", "toolcall"):
        with open(folder / f"{name}.jsonl", encoding="utf-8") as lines:
            items = [json.loads(line) for line in lines]
        item = max(items, key=lambda i: len(str(i))) if name == "recall" else items[0]
        strings = [item[key] for key in ("prompt", "answer", "completion", "target") if isinstance(item.get(key), str)]
        if not strings:
            raise SystemExit(f"{name}.jsonl: no prompt or answer among the fields {sorted(item)}")
        yield "".join(strings)


def checkpoint(folder):
    weights, crc = {}, 0
    for path in sorted(folder.glob("*.safetensors")):
        crc = zlib.crc32(path.read_bytes(), crc)
        weights.update(safetensors.torch.load_file(path))
    return weights, crc


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/tiny")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/golden/data/tiny_score.json")
    args = parser.parse_args()
    config = json.loads((args.model / "config.json").read_text())
    weights, crc = checkpoint(args.model)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(args.model / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    dense = config.get("first_k_dense_replace", (config.get("mlp_layer_types") or []).count("dense"))
    exact_model = Reference(config, weights, dense, config.get("indexer_types"))
    texts, error, gap = [], 0.0, float("inf")
    for text in FIXED_TEXTS + list(eval_texts(args.model / "eval")):
        ids = torch.tensor(tokenizer.encode(text))
        got, exact = hf_run.run_hf(model, ids), exact_model.forward(ids)
        pick = lambda logits: logits.log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]
        scores = pick(got["logits"])
        error = max(error, float((scores - pick(exact["logits"])).abs().max()))
        for layer in exact["layers"]:
            positive = layer["selected_gap"][layer["selected_gap"] > 0]
            gap = min(gap, float(positive.min()))
        texts.append({"text": text, "ids": ids.tolist(), "logprobs": [round(float(x), 6) for x in scores]})
    longest = max(len(t["ids"]) for t in texts)
    assert longest > 400 and longest > config["index_topk"], f"longest text has {longest} tokens"
    result = {
        "made_by": "tools/make_goldens/score_tiny.py",
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "run": "float32, CPU, eager",
        "weights_crc32": crc,
        "error": error,
        "min_selected_gap": gap,
    }
    body = ",\n".join(json.dumps(t, ensure_ascii=True, separators=(",", ":")) for t in texts)
    args.out.write_text(json.dumps(result)[:-1] + ',\n"texts": [\n' + body + "\n]}\n")
    print(args.out, args.out.stat().st_size, [len(t["ids"]) for t in texts], result)


if __name__ == "__main__":
    main()
