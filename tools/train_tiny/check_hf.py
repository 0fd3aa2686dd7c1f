"""Compares a checkpoint under transformers' DeepseekV32ForCausalLM with our own model: logits and selected sets.

    python check_hf.py --model ../../models/tiny

Both run in float32 on the CPU over prompts longer than index_topk. First the selected sets are compared, row by row and layer
by layer, each from our own scores: a difference is allowed only if the scores of the exchanged keys differ by less than 1e-5
of the row's largest score (float32 rounding decides between such keys). Then our layer runs on their choice, so that
a tie cannot hide or excuse a difference in logits: the two do the same arithmetic in another order, which costs a few float32
roundings in a five-layer network; the limit is 1e-5 of the largest logit. A wrong rope pairing in the indexer,
the likeliest fault, changes most selected sets (--break-rope shows it: it must fail).
"""

import argparse
import json
import os
import sys

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import export
import model as ours

LOGIT_TOLERANCE = 1e-5
SCORE_TOLERANCE = 1e-5


def prompts(folder: str, count: int) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    result = []
    for task in ("recall", "toolcall"):
        with open(os.path.join(folder, "eval", f"{task}.jsonl"), encoding="utf-8") as f:
            lines = [json.loads(next(f)) for _ in range(count)]
        result += [[0] + tokenizer.encode(item["prompt"] + item["answer"], add_special_tokens=False).ids for item in lines]
    return result


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights", help="folder of the shards, if not --model")
    parser.add_argument("--prompts", type=int, default=2, help="per task")
    parser.add_argument("--break-rope", action="store_true", help="rotate the indexer in pairs instead of halves: must fail")
    args = parser.parse_args()
    torch.set_num_threads(1)
    weights = args.weights or args.model
    mine = export.load_model(weights, args.model).float().eval()
    if args.break_rope:
        ours.rope_halves = ours.rope_pairs
    if weights != args.model:
        with open(os.path.join(args.model, "config.json")) as f, open(os.path.join(weights, "config.json"), "w") as out:
            out.write(f.read())
    theirs = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32, attn_implementation="eager").eval()
    if type(theirs).__name__ != "DeepseekV32ForCausalLM":
        raise SystemExit(f"unexpected class {type(theirs).__name__}")

    their_sets: list[torch.Tensor] = []
    for layer in theirs.model.layers:
        layer.self_attn.indexer.register_forward_hook(lambda _m, _i, out: their_sets.append(out))
    topk = mine.config.index_topk
    worst_logit, rows, differing, bad = 0.0, 0, 0, 0
    for ids in prompts(args.model, args.prompts):
        tokens = torch.tensor([ids])
        length = len(ids)
        assert length > topk, "the prompt must be longer than index_topk"
        their_sets.clear()
        reference = theirs(tokens).logits
        cos, sin = ours.rope_tables(mine.config, length, "cpu")
        visible = ours.causal_mask(length, "cpu")
        x = mine.embed_tokens(tokens)
        for layer, index in zip(mine.layers, their_sets):
            normed = layer.input_layernorm(x)
            attention = layer.self_attn
            scores = attention.indexer(normed, attention.q_a_layernorm(attention.q_a_proj(normed)), cos, sin)
            _, _, selected = attention(normed, cos, sin, ours.SPARSE)
            chosen = torch.zeros_like(selected).scatter(-1, index.long(), True) & visible
            rows += length
            for row in (selected != chosen).any(-1).nonzero()[:, 1].tolist():
                exchanged = scores[0, row][(selected ^ chosen)[0, row]]
                differing += 1
                bad += bool((exchanged.max() - exchanged.min()) > SCORE_TOLERANCE * scores[0, row, : row + 1].abs().max())
            own_select, ours.select_top = ours.select_top, lambda *_: chosen
            x = layer(x, cos, sin, ours.SPARSE)[0]
            ours.select_top = own_select
        logits = mine.lm_head(mine.norm(x))
        difference = ((logits - reference).abs().max() / reference.abs().max()).item()
        worst_logit = max(worst_logit, difference)
        agree = (logits.argmax(-1) == reference.argmax(-1)).float().mean().item()
        print(f"{length} tokens: logits differ by at most {difference:.2e} of the largest, same argmax at {agree:.4%}")
    print(f"selected sets: {rows} rows, {differing} differ, {bad} of them by more than a tie")
    ok = worst_logit <= LOGIT_TOLERANCE and bad == 0
    print("equal" if ok else "NOT EQUAL")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
