"""Measures a checkpoint: exact match per task, MTP acceptance per position, and what the indexer is worth.

    python evaluate.py --model ../../models/tiny [--items 100] [--device cuda] [--out results.json]

Arithmetic is generated greedily. Of the other tasks the expected completion is unique, so greedy decoding is right exactly
if the model, given the expected completion, predicts each of its tokens and then a stop: that is what is checked.
No key-value cache: sequences are short and the model is small.
"""

import argparse
import json
import os
import re
import time

import torch
from tokenizers import Tokenizer

import chat_format as chat
import export
import make_eval
import model as ours

DRAFTS = 3


class Evaluator:
    def __init__(self, model: ours.Model, tokenizer_file: str, device: str, autocast: bool):
        self.model, self.device, self.autocast = model, device, autocast
        self.tokenizer = Tokenizer.from_file(tokenizer_file)
        self.bos, self.eos, self.pad = (self.tokenizer.token_to_id(s) for s in (chat.BOS, chat.EOS, chat.PAD))

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def padded(self, rows: list[list[int]]) -> torch.Tensor:
        """Padding goes to the right: with a causal mask it changes nothing before it."""
        width = (max(map(len, rows)) + 31) // 32 * 32
        return torch.tensor([r + [self.pad] * (width - len(r)) for r in rows], device=self.device)

    @torch.no_grad()
    def hidden(self, tokens: torch.Tensor, mode: str) -> torch.Tensor:
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.autocast):
            return self.model(tokens, mode)[0]

    @torch.no_grad()
    def logits(self, tokens: torch.Tensor, mode: str) -> torch.Tensor:
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.autocast):
            return self.model.lm_head(self.model(tokens, mode)[0]).float()

    def batches(self, rows: list[list[int]]):
        """Index lists of rows of similar length, at most about 64K tokens (attention is quadratic: fewer for long rows)."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        budget = (1 << 15) if self.device != "cpu" else (1 << 12)
        while order:
            count = max(1, min(len(order), budget // (len(rows[order[-1]]) + 32)))
            yield order[-count:]
            order = order[:-count]

    def teacher_forced(self, items: list[dict], mode: str) -> float:
        """Share of items whose expected completion, and a stop after it, is what greedy decoding would give."""
        rows, starts = [], []
        for item in items:
            prompt = [self.bos] + self.encode(item["prompt"])
            # recall stops at a newline, the others at the end of the sequence
            stop = self.encode("\n")[:1] if item["stop"] == ["\n"] else [self.eos]
            rows.append(prompt + self.encode(item["worked"]) + stop)
            starts.append(len(prompt))
        right = 0
        for batch in self.batches(rows):
            best = self.logits(self.padded([rows[i] for i in batch]), mode).argmax(-1)
            for line, i in enumerate(batch):
                expected = torch.tensor(rows[i][starts[i] :], device=self.device)
                right += bool((best[line, starts[i] - 1 : len(rows[i]) - 1] == expected).all())
        return right / len(items)

    def generate(self, prompts: list[list[int]], max_tokens: int, mode: str) -> list[list[int]]:
        rows, done = [list(p) for p in prompts], [False] * len(prompts)
        for _ in range(max_tokens):
            live = [i for i in range(len(rows)) if not done[i]]
            if not live:
                break
            for batch in self.batches([rows[i] for i in live]):
                batch = [live[i] for i in batch]
                hidden = self.hidden(self.padded([rows[i] for i in batch]), mode)
                last = torch.tensor([len(rows[i]) - 1 for i in batch], device=self.device)
                with torch.no_grad():
                    best = self.model.lm_head(hidden[torch.arange(len(batch), device=self.device), last].float()).argmax(-1).tolist()
                for i, token in zip(batch, best):
                    if token == self.eos:
                        done[i] = True
                    else:
                        rows[i].append(token)
        return [r[len(p) :] for r, p in zip(rows, prompts)]

    def generated(self, items: list[dict], mode: str, report: dict | None = None) -> float:
        """Exact match of greedily generated completions, by the rule of the evaluation files."""
        outputs = self.generate([[self.bos] + self.encode(i["prompt"]) for i in items], max(i["max_tokens"] for i in items), mode)
        right, by_split = 0, {}
        for item, ids in zip(items, outputs):
            text = self.tokenizer.decode(ids[: item["max_tokens"]], skip_special_tokens=False)
            for stop in item["stop"]:
                text = text.split(stop)[0]
            found = list(re.finditer(item["extract"], text)) if item["extract"] else []
            answer = (found[-1].group(1) if found else "") if item["extract"] else text.strip()
            ok = answer == item["answer"]
            right += ok
            counts = by_split.setdefault(item.get("split", ""), [0, 0])
            counts[0] += ok
            counts[1] += 1
        if report is not None:
            report |= {split: f"{a}/{b}" for split, (a, b) in by_split.items()}
        return right / len(items)

    @torch.no_grad()
    def acceptance(self, items: list[dict], mode: str) -> list[float]:
        """Share of accepted drafts at positions 1..3, over the positions of the expected completions. A position counts for
        draft k if drafts 1..k-1 were accepted. Draft k applies the MTP layer to its own output; entries of earlier positions
        come from the main model's hidden states, as in a decode that follows a verification."""
        proposed, accepted = [0] * DRAFTS, [0] * DRAFTS
        for item in items:
            prompt = [self.bos] + self.encode(item["prompt"])
            row = prompt + self.encode(item["worked"]) + [self.eos]
            tokens = torch.tensor([row], device=self.device)
            with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.autocast):
                hidden = self.model(tokens, mode)[0]
                best = self.model.lm_head(hidden)[0].argmax(-1)  # best[i]: the main model's token i+1
                # Row n of the batch drafts from position i = starts[n]: the true tokens up to i+1 are known.
                starts = list(range(len(prompt) - 1, len(row) - 1 - DRAFTS))
                if not starts:
                    continue
                rows = len(starts)
                chain_tokens = tokens[:, 1:].expand(rows, -1).clone()
                chain_hidden = hidden[:, :-1].expand(rows, -1, -1).clone()
                line, at = torch.arange(rows, device=self.device), torch.tensor(starts, device=self.device)
                alive = torch.ones(rows, dtype=torch.bool, device=self.device)
                for k in range(DRAFTS):
                    out_logits, out, _, _ = self.model.draft(chain_tokens, chain_hidden, mode)
                    draft = out_logits[line, at + k].argmax(-1)
                    proposed[k] += int(alive.sum())
                    alive &= draft == best[at + k + 1]
                    accepted[k] += int(alive.sum())
                    if k + 1 < DRAFTS:
                        chain_tokens[line, at + k + 1] = draft
                        chain_hidden[line, at + k + 1] = out[line, at + k].to(chain_hidden.dtype)
        return [a / max(1, p) for a, p in zip(accepted, proposed)]

    @torch.no_grad()
    def fp8_overlap(self, items: list[dict]) -> list[float]:
        """Per layer: the share of the selected keys that FP8-simulated index scores select too, over rows longer than index_topk."""
        config = self.model.config
        total = [0.0] * config.num_hidden_layers
        for item in items:
            tokens = torch.tensor([[self.bos] + self.encode(item["prompt"])], device=self.device)
            cos, sin = ours.rope_tables(config, tokens.shape[1], self.device)
            x = self.model.embed_tokens(tokens)
            for n, layer in enumerate(self.model.layers):
                normed = layer.input_layernorm(x)
                _, _, exact = layer.self_attn(normed, cos, sin, ours.SPARSE)
                _, _, fp8 = layer.self_attn(normed, cos, sin, ours.SPARSE_FP8)
                both = (exact & fp8)[0, config.index_topk :].sum(-1).float() / config.index_topk
                total[n] += both.mean().item() / len(items)
                x = layer(x, cos, sin, ours.SPARSE)[0]
        return total


def full_report(e: Evaluator, per_task: int) -> dict:
    report: dict = {"items_per_task": per_task}
    items = {task: make_eval.items(task)[:per_task] for task in make_eval.TASKS}
    splits: dict = {}
    start = time.monotonic()
    report["arithmetic"] = e.generated(items["arithmetic"], ours.SPARSE, splits)
    report["arithmetic_splits"] = splits
    for task in ("recall", "copysort", "toolcall"):
        report[task] = e.teacher_forced(items[task], ours.SPARSE)
    report["recall_dense_attention"] = e.teacher_forced(items["recall"], ours.DENSE)
    report["recall_most_recent_128"] = e.teacher_forced(items["recall"], ours.RECENT)
    report["recall_fp8_indexer"] = e.teacher_forced(items["recall"], ours.SPARSE_FP8)
    few = max(4, per_task // 5)
    report["mtp_acceptance"] = {task: [round(a, 4) for a in e.acceptance(items[task][:few], ours.SPARSE)] for task in ("arithmetic", "copysort")}
    report["mtp_acceptance"]["toolcall"] = [round(a, 4) for a in e.acceptance(items["toolcall"][: few // 4], ours.SPARSE)]
    report["fp8_overlap_per_layer"] = [round(v, 4) for v in e.fp8_overlap(items["recall"][: max(2, per_task // 25)])]
    report["seconds"] = round(time.monotonic() - start, 1)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights")
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out")
    parser.add_argument("--prompt", action="append", help="only continue this prompt, greedily")
    args = parser.parse_args()
    model = export.load_model(args.weights or args.model, args.model, args.device).eval()
    e = Evaluator(model, os.path.join(args.model, "tokenizer.json"), args.device, autocast=args.device != "cpu")
    if args.prompt:
        for prompt in args.prompt:
            print(repr(e.tokenizer.decode(e.generate([[e.bos] + e.encode(prompt)], 96, ours.SPARSE)[0], skip_special_tokens=False)))
        return
    report = full_report(e, args.items)
    print(json.dumps(report, indent=1))
    if args.out:
        with open(args.out, "w") as f:
            json.dump(report, f, indent=1)


if __name__ == "__main__":
    main()
