"""The step plan against the same outputs made by eager PyTorch operations, on the same tensors in the same run.

What an engine in Python does each step for multi-token decode on kernels that take one row per token: lengths of each
token from query_start_loc and seq_lens, the block table expanded to a row per token, query lengths of 1, and the slot of
each token; each copied into the persistent buffer that a captured graph reads. Both sides are checked to agree first.

    python3 tools/bench/plan_eager_torch.py --library build/release/liblantern_attention.so --output result.json
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "plan"))
import lantern_plan as lp  # noqa: E402

BLOCK_SIZE = 64


class Batch:
    """Every request has `width` tokens and `blocks` blocks, in any order of the pool."""

    def __init__(self, torch, requests, width, blocks):
        make = dict(dtype=torch.int32, device="cuda")
        self.requests, self.width, self.blocks, self.tokens = requests, width, blocks, requests * width
        self.num_requests = torch.full((1,), requests, **make)
        self.num_tokens = torch.full((1,), self.tokens, **make)
        self.query_start_loc = torch.arange(0, self.tokens + 1, width, **make)
        spread = torch.randint(width, BLOCK_SIZE, (requests,), **make)
        self.seq_lens = (blocks - 1) * BLOCK_SIZE + spread
        self.prefilling = torch.zeros(requests, **make)
        self.num_blocks = requests * blocks + 1
        self.block_table = (torch.randperm(requests * blocks, device="cuda").to(torch.int32) + 1).view(requests, blocks)


class Eager:
    def __init__(self, torch, batch):
        self.torch, self.batch = torch, batch
        make = dict(dtype=torch.int32, device="cuda")
        self.arange = torch.arange(batch.tokens, **make)
        self.context_lens = torch.zeros(batch.tokens, **make)
        self.decode_lens = torch.zeros(batch.tokens, **make)
        self.slots = torch.zeros(batch.tokens, **make)
        self.table = torch.zeros((batch.tokens, batch.blocks), **make)

    def lengths_and_table(self):
        torch, b, n = self.torch, self.batch, self.batch.tokens
        query_lens = b.query_start_loc[1:] - b.query_start_loc[:-1]
        before = b.seq_lens - query_lens - b.query_start_loc[:-1]
        lens = torch.repeat_interleave(before, query_lens, output_size=n) + self.arange + 1
        self.context_lens.copy_(lens.clamp_(min=0))
        self.table.copy_(torch.repeat_interleave(b.block_table, query_lens, dim=0, output_size=n))
        self.decode_lens.fill_(1)

    def slot_mapping(self):
        torch, b, n = self.torch, self.batch, self.batch.tokens
        query_lens = b.query_start_loc[1:] - b.query_start_loc[:-1]
        request = torch.repeat_interleave(self.arange[: b.requests], query_lens, output_size=n)
        positions = self.context_lens - 1
        block = b.block_table[request, (positions // BLOCK_SIZE).long()]
        slots = block * BLOCK_SIZE + positions % BLOCK_SIZE
        self.slots.copy_(torch.where(block == 0, -1, slots))

    def step(self):
        self.lengths_and_table()
        self.slot_mapping()


class Lantern:
    """With the same outputs, and those that a plan always has beside them."""

    def __init__(self, torch, batch, library, expanded):
        self.torch, self.batch = torch, batch
        group = lp.Group(block_size=BLOCK_SIZE, num_blocks=batch.num_blocks, max_blocks_per_request=batch.blocks)
        config = lp.Config(device_kind=lp.CUDA, max_requests=batch.requests, max_tokens=batch.tokens,
                           max_query_len=batch.width, max_model_len=batch.blocks * BLOCK_SIZE,
                           groups=ctypes.pointer(group), num_groups=1, outputs=lp.FLATTENED if expanded else 0)
        size = library.buffer_bytes(config)
        self.buffer = torch.full((size // 4,), 0x7FFFFFF0, dtype=torch.int32, device="cuda")
        self.plan = lp.Plan(library, config, self.buffer.data_ptr(), size)
        tensors = [batch.num_requests, batch.num_tokens, batch.query_start_loc, batch.seq_lens, batch.prefilling]
        self.inputs = lp.inputs(*(tensor.data_ptr() for tensor in tensors), [batch.block_table.data_ptr()])
        self.bucket = lp.Bucket(tokens=batch.tokens, requests=batch.requests, query_width=batch.width)
        self.eager_step()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.eager_step()

    def eager_step(self):
        self.plan.run(self.inputs, self.bucket, self.torch.cuda.current_stream().cuda_stream)

    def step(self):
        self.graph.replay()

    def output(self, name, shape):
        data, _ = self.plan.output(name)
        begin = (data - self.buffer.data_ptr()) // 4
        count = 1
        for extent in shape:
            count *= extent
        return self.buffer[begin:begin + count].view(shape)


def check_equal(torch, eager, lantern):
    tokens, blocks = eager.batch.tokens, eager.batch.blocks
    pairs = [("token_context_len", eager.context_lens, (tokens,)), ("slot_mapping", eager.slots, (tokens,)),
             ("decode_lens", eager.decode_lens, (tokens,)), ("expanded_block_table", eager.table, (tokens, blocks))]
    for name, want, shape in pairs:
        if not torch.equal(lantern.output(name, shape), want):
            raise SystemExit(f"{name}: PyTorch and Lantern disagree")


def measure(torch, step, batches, repetitions):
    """Microseconds a step, from the first submission until all has run; and of the submitting thread alone."""
    for _ in range(repetitions):
        step()
    whole, host = [], []
    for _ in range(batches):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repetitions):
            step()
        submitted = time.perf_counter()
        torch.cuda.synchronize()
        whole.append((time.perf_counter() - start) / repetitions * 1e6)
        host.append((submitted - start) / repetitions * 1e6)
    return {"min_us": round(min(whole), 2), "median_us": round(statistics.median(whole), 2),
            "host_median_us": round(statistics.median(host), 2)}


def clocks():
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.mem", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--output", help="write the JSON there too")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=2560)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--repetitions", type=int, default=100)
    args = parser.parse_args()
    import torch
    if not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU")
    torch.manual_seed(1)
    batch = Batch(torch, args.requests, args.width, args.blocks)
    library = lp.Library(args.library)
    eager, lantern = Eager(torch, batch), Lantern(torch, batch, library, expanded=True)
    lean = Lantern(torch, batch, library, expanded=False)
    eager.step()
    lantern.step()
    torch.cuda.synchronize()
    check_equal(torch, eager, lantern)

    def timed(step):
        return measure(torch, step, args.batches, args.repetitions)

    results = {
        "eager_lengths_and_table": timed(eager.lengths_and_table),
        "eager_slots": timed(eager.slot_mapping),
        "eager_all": timed(eager.step),
        "lantern_in_graph": timed(lantern.step),
        "lantern_in_graph_without_table": timed(lean.step),
        "lantern_two_launches": timed(lantern.eager_step),
    }
    ratio = results["eager_all"]["median_us"] / results["lantern_in_graph"]["median_us"]
    document = {
        "benchmark": "plan against eager PyTorch", "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "driver_and_clocks": clocks(), "commit": args.commit, "command": " ".join(sys.argv),
        "requests": args.requests, "query_width": args.width, "blocks_per_request": args.blocks,
        "batches": args.batches, "repetitions": args.repetitions, "results": results,
        "ratio_eager_to_lantern": round(ratio, 1),
    }
    text = json.dumps(document, indent=1)
    print(text)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
