"""Trains models/tiny, scheduled by wall-clock time.

    python train.py --data ../../build/tiny-data/text.npy --out ../../build/tiny-train --minutes 18

Stages, as shares of the time: dense attention, short then full sequences (LM loss + MTP loss; expert bias by the sign rule); indexer
warm-up (everything else frozen, KL to the attention probabilities); sparse attention on the indexer's choice. A usable
checkpoint is written at the end of every stage. --smoke SECONDS runs each stage for a moment at full size and stops.
"""

import argparse
import json
import math
import os
import shutil
import sys
import time

import torch
import torch.nn.functional as F

import evaluate
import export
import make_eval
import model as ours
from pool import Pool

# End of each stage as a share of the total time.
SHORT_END, DENSE_END, WARMUP_END, SPARSE_END = 0.34, 0.60, 0.67, 0.94
MTP_WEIGHT, MTP_AGAIN_WEIGHT = 0.3, 0.15
BIAS_STEP = 1e-3
MIN_STEPS = 3  # in every stage, however late it is


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="tokenised text (make_tokenizer.py --text-tokens)")
    parser.add_argument("--model", default=os.path.join(os.path.dirname(__file__), "../../models/tiny"), help="folder of config.json and tokenizer.json")
    parser.add_argument("--out", required=True)
    parser.add_argument("--pool", default="/dev/shm/lantern-train-pool")
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 3))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lengths", type=int, nargs=2, default=(1024, 2048))
    parser.add_argument("--batch", type=int, nargs=4, default=(64, 32, 32, 32), help="sequences a step: short, long, warm-up, sparse")
    parser.add_argument("--micro", type=int, nargs=4, default=(64, 32, 16, 16), help="sequences a forward pass, likewise")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--smoke", type=float, default=0.0, help="seconds: try every stage at full size, report speed, then stop")
    parser.add_argument("--ends", type=float, nargs=4, default=(SHORT_END, DENSE_END, WARMUP_END, SPARSE_END), help="end of each stage as a share of the time")
    parser.add_argument("--init-from", help="checkpoint folder to continue from")
    parser.add_argument("--start-at", choices=("short", "long", "warmup", "sparse"), default="short", help="with --init-from: skip the stages before (give their --ends as 0)")
    parser.add_argument("--eval-items", type=int, default=500)
    parser.add_argument("--quick-items", type=int, default=64, help="items per task of the evaluations on the way; 0: none")
    return parser.parse_args()


def weighted_loss(hidden, head, targets, weights):
    """Sum of weighted cross entropies of hidden [B, S, H] under head [V, H]."""
    logits = F.linear(hidden, head).float().flatten(0, 1)
    losses = F.cross_entropy(logits, targets.flatten(), reduction="none") * weights.flatten()
    return losses.sum()


class Trainer:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.device = args.device
        torch.manual_seed(args.seed)
        torch.set_float32_matmul_precision("high")
        os.makedirs(args.out, exist_ok=True)
        self.tokenizer_file = os.path.join(args.model, "tokenizer.json")
        self.model = ours.Model(ours.Config.load(os.path.join(args.model, "config.json")))
        self.model.initialize(args.seed)
        if args.init_from:
            export.load_checkpoint(self.model, args.init_from)
        self.model.to(self.device)
        self.index_params = [p for n, p in self.model.named_parameters() if ".indexer." in n]
        main = [(n, p) for n, p in self.model.named_parameters() if ".indexer." not in n]
        self.main_params = [p for _, p in main]
        decay = [p for n, p in main if p.dim() > 1 and "embed" not in n]
        plain = [p for n, p in main if p.dim() <= 1 or "embed" in n]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}, {"params": self.index_params, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), eps=1e-10, fused=True)
        self.loss = weighted_loss
        if not args.no_compile:
            torch._dynamo.config.recompile_limit = 64  # one graph per kind of layer, stage and sequence length
            self.loss = torch.compile(weighted_loss, dynamic=False)
            self.compiled_layer = torch.compile(ours.run_layer, dynamic=False)
        else:
            self.compiled_layer = ours.run_layer
        self.pool = Pool(args.pool, args.workers, tuple(args.lengths), self.tokenizer_file, args.data, args.seed)
        self.start = time.monotonic()
        self.total = args.minutes * 60
        self.step = self.tokens = 0
        self.log_file = open(os.path.join(args.out, "train.log"), "a")
        self.loads = None

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def log(self, text: str) -> None:
        line = f"[{self.elapsed():7.1f} s] {text}"
        print(line, flush=True)
        self.log_file.write(line + "\n")
        self.log_file.flush()

    def forward_backward(self, tokens, weights, mode: str, scale: float, again: bool) -> torch.Tensor:
        """Adds the gradients of one micro-batch; returns [main loss, MTP loss, second MTP loss, KL] as a tensor."""
        model, length = self.model, tokens.shape[1] - 2
        inputs, next_tokens, targets = tokens[:, :length], tokens[:, 1 : length + 1], tokens[:, 2:]
        w1, w2 = weights[:, 1 : length + 1], weights[:, 2:]
        with torch.autocast(self.device, dtype=torch.bfloat16):
            hidden, kls, loads = model(inputs, mode)
            _, out, kl, load = model.draft(next_tokens, hidden, mode, with_logits=False)
            kl_total = torch.stack(kls + [kl]).sum()
            if mode == ours.WARMUP:
                (kl_total * scale).backward()
                return torch.stack((kl_total * 0, kl_total * 0, kl_total * 0, kl_total / (len(kls) + 1))).detach()
            head = model.lm_head.weight
            main = self.loss(hidden, head, next_tokens, w1) / w1.sum()
            mtp = self.loss(model.mtp.norm(out), head, targets, w2) / w2.sum()
            total = main + MTP_WEIGHT * mtp + kl_total
            second = torch.zeros_like(main)
            if again:
                # Half of the positions get the layer's own output of the position before, as in a chain of drafts.
                own = torch.rand(tokens.shape[0], length, device=tokens.device) < 0.5
                own[:, 0] = False
                chained = torch.where(own.unsqueeze(-1), out.roll(1, dims=1).to(hidden.dtype), hidden)
                _, out2, _, _ = model.draft(next_tokens, chained, mode, with_logits=False)
                w3 = w2 * own
                second = self.loss(model.mtp.norm(out2), head, targets, w3) / w3.sum().clamp_min(1.0)
                total = total + MTP_AGAIN_WEIGHT * second
        (total * scale).backward()
        self.loads = torch.stack(loads + [load]) * scale + (self.loads if self.loads is not None else 0)
        return torch.stack((main, mtp, second, kl_total / (len(kls) + 1))).detach()

    def train_step(self, mode: str, batch: int, micro: int, seq_len: int, lr: float, index_lr: float, bias_step: float, again: bool) -> None:
        for group, rate in zip(self.optimizer.param_groups, (lr, lr, index_lr)):
            group["lr"] = rate
        tokens, weights = self.pool.batch(batch, seq_len, self.device)
        self.loads, parts = None, 0
        self.model.run_layer = self.compiled_layer
        pieces = range(0, batch, micro)
        for i in pieces:
            parts = parts + self.forward_backward(tokens[i : i + micro], weights[i : i + micro], mode, 1 / len(pieces), again)
        self.model.run_layer = ours.run_layer
        if mode != ours.WARMUP:
            torch.nn.utils.clip_grad_norm_(self.main_params, 1.0)
        if mode != ours.DENSE:
            torch.nn.utils.clip_grad_norm_(self.index_params, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if bias_step and self.loads is not None:
            for moe, load in zip(self.model.moe_layers(), self.loads):
                moe.gate.e_score_correction_bias += bias_step * torch.sign(load.mean() - load)
        self.step += 1
        self.tokens += batch * seq_len
        self.parts = parts / len(pieces)

    def stage(self, name: str, mode: str, index: int, seq_len: int, end: float, schedule, bias_step: float = 0.0, again=lambda x: False) -> None:
        """Runs until `end` (seconds). schedule(progress 0..1) gives (lr of the model, lr of the indexer)."""
        batch, micro = self.args.batch[index], self.args.micro[index]
        begin, begin_tokens, begin_step = self.elapsed(), self.tokens, self.step
        end += begin if self.args.smoke else 0.0
        self.log(f"stage {name}: {mode}, {batch} x {seq_len} tokens a step, until {end:.0f} s")
        next_report, next_eval, mark = begin + 5, begin + 100, (self.elapsed(), self.tokens)
        while self.elapsed() < end or self.step - begin_step < MIN_STEPS:
            progress = min(1.0, (self.elapsed() - begin) / max(1.0, end - begin))
            lr, index_lr = schedule(progress)
            self.train_step(mode, batch, micro, seq_len, lr, index_lr, bias_step, again(progress))
            if self.step - begin_step in (1, 2, 10) or self.elapsed() > next_report:
                main, mtp, second, kl = self.parts.tolist()  # waits for the device
                if not math.isfinite(main + mtp + kl):
                    raise RuntimeError(f"the loss is not finite in stage {name}, step {self.step}")
                now = self.elapsed()
                speed = (self.tokens - mark[1]) / max(1e-6, now - mark[0])
                worst = self.loads.max(-1).values.tolist() if self.loads is not None else []
                self.log(f"{name} step {self.step} loss {main:.4f} mtp {mtp:.4f} again {second:.4f} kl {kl:.4f} lr {lr:.1e} {speed / 1e3:.0f}K tok/s "
                         f"reused {self.pool.reused}/{self.pool.taken} load {[round(w, 2) for w in worst]}")
                next_report, mark = now + 10, (now, self.tokens)
            if self.elapsed() > next_eval and not self.args.smoke:
                self.quick_eval(mode if mode == ours.DENSE else ours.SPARSE)
                next_eval, mark = self.elapsed() + 100, (self.elapsed(), self.tokens)
        if self.device == "cuda":
            torch.cuda.synchronize()
            self.log(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
        self.log(f"stage {name} done: {self.step - begin_step} steps, {(self.tokens - begin_tokens) / 1e6:.1f} M tokens in {self.elapsed() - begin:.0f} s")

    def evaluator(self, model) -> evaluate.Evaluator:
        return evaluate.Evaluator(model, self.tokenizer_file, self.device, autocast=self.device == "cuda")

    def quick_eval(self, mode: str) -> None:
        items = self.args.quick_items
        if not items:
            return
        e = self.evaluator(self.model)
        begin = self.elapsed()
        results = {task: round(e.teacher_forced(make_eval.items(task)[:items], mode), 3) for task in make_eval.TASKS}
        self.log(f"quick eval ({mode}, {items} items, teacher-forced): {results}, {self.elapsed() - begin:.1f} s")

    def save(self, name: str) -> str:
        """Writes a checkpoint beside its final place, then renames: a reader never sees half of one."""
        folder = os.path.join(self.args.out, name)
        shutil.rmtree(folder + ".tmp", ignore_errors=True)
        export.save_checkpoint(self.model, folder + ".tmp")
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(folder + ".tmp", folder)
        self.log(f"saved {folder}")
        return folder

    def freeze_main(self, frozen: bool) -> None:
        for p in self.main_params:
            p.requires_grad_(not frozen)

    def run(self) -> None:
        args, (short, long) = self.args, self.args.lengths
        order = ("short", "long", "warmup", "sparse")
        end = {n: share * self.total for n, share in zip(order, args.ends)}
        first = order.index(args.start_at)
        if args.smoke:
            end = dict.fromkeys(order, args.smoke / 4)  # of each stage's own time
        share = SHORT_END / DENSE_END

        def dense_lr(x: float) -> tuple[float, float]:
            return args.lr * min(1.0, x / 0.03) * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * x))), 0.0

        def long_lr(x: float) -> tuple[float, float]:
            # After --init-from the optimizer starts anew: a short warm-up.
            return dense_lr(share + x * (1 - share))[0] * (min(1.0, x / 0.03) if args.init_from else 1.0), 0.0

        if first <= 0:
            self.stage("short", ours.DENSE, 0, short, end["short"], lambda x: dense_lr(x * share), BIAS_STEP)
            self.save("short")
        self.pool.go_long()
        if first <= 1:
            self.stage("long", ours.DENSE, 1, long, end["long"], long_lr, BIAS_STEP, lambda x: bool(args.smoke or args.init_from) or x > 0.5)
            self.save("dense")
            if not args.smoke:
                self.quick_eval(ours.DENSE)
        if first <= 2:
            self.freeze_main(True)
            self.stage("warmup", ours.WARMUP, 2, long, end["warmup"], lambda x: (0.0, 1e-3 * min(1.0, x / 0.05) * (1 - 0.5 * x)))
            self.freeze_main(False)
            self.save("warmup")
            if not args.smoke:
                self.quick_eval(ours.SPARSE)
        decay = lambda x: 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * x))
        self.stage("sparse", ours.SPARSE, 3, long, end["sparse"], lambda x: (0.1 * args.lr * min(1.0, x / 0.02) * decay(x), 5e-4 * decay(x)), BIAS_STEP * 0.1,
                   lambda x: True)
        final = self.save("final")
        self.pool.close()
        if args.smoke:
            return
        rounded = export.load_model(final, args.model, self.device).eval()  # what is measured is what ships: bf16 weights
        report = evaluate.full_report(self.evaluator(rounded), args.eval_items)
        report |= {"train_tokens": self.tokens, "train_steps": self.step}
        with open(os.path.join(args.out, "results.json"), "w") as f:
            json.dump(report, f, indent=1)
        self.log("results " + json.dumps(report))


def main() -> int:
    trainer = Trainer(parse_args())
    try:
        trainer.run()
    finally:
        trainer.pool.close()
    trainer.log("finished")
    return 0


if __name__ == "__main__":
    sys.exit(main())
