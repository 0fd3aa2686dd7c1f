"""Plans a speculative decode step through liblantern_attention.so: on the CPU, and, where torch sees a GPU, on torch's
tensors inside a torch CUDA graph that is captured once and replayed with other batches.

    python3 examples/plan/plan_example.py --library build/release/liblantern_attention.so
"""

import argparse
import ctypes

import lantern_plan as lp

LIMITS = dict(max_requests=4, max_tokens=16, max_query_len=4, max_model_len=128)
BUCKET = dict(tokens=12, requests=4, query_width=4)
# query_start_loc, seq_lens, blocks of each request, and the lengths that the tokens of the bucket must see.
BATCHES = [
    ([0, 3, 4, 8, 8], [10, 7, 12, 0], [[3, 0], [5, 0], [2, 0], [0, 0]], [8, 9, 10, 7, 9, 10, 11, 12, 0, 0, 0, 0]),
    ([0, 4, 8, 12, 12], [100, 64, 4, 0], [[3, 4], [5, 0], [2, 0], [0, 0]],
     [97, 98, 99, 100, 61, 62, 63, 64, 1, 2, 3, 4]),
    ([0, 0, 0, 0, 0], [0, 0, 0, 0], [[0, 0]] * 4, [0] * 12),
    ([0, 1, 2, 3, 4], [65, 1, 128, 64], [[3, 4], [5, 0], [7, 6], [1, 0]], [65, 1, 128, 64, 0, 0, 0, 0, 0, 0, 0, 0]),
]


def config(device_kind):
    group = lp.Group(block_size=64, num_blocks=9, max_blocks_per_request=2)
    made = lp.Config(device_kind=device_kind, groups=ctypes.pointer(group), num_groups=1,
                     outputs=lp.FLATTENED | lp.PER_REQUEST, workers=4, mla_parts=4, mla_fixed_overhead_blocks=5,
                     **LIMITS)
    made.keep = group
    return made


def expect(got, want, what):
    if got != want:
        raise SystemExit(f"{what}: got {got}, but expected {want}")


def plan_on_cpu(library):
    made = config(lp.CPU)
    size = library.buffer_bytes(made)
    buffer = (ctypes.c_int32 * (size // 4 + 4))()
    address = (ctypes.addressof(buffer) + 15) // 16 * 16
    plan = lp.Plan(library, made, address, size)

    def ints(values):
        return (ctypes.c_int32 * len(values))(*values)

    for query_start_loc, seq_lens, blocks, want in BATCHES:
        arrays = [ints([4]), ints([query_start_loc[-1]]), ints(query_start_loc), ints(seq_lens), ints([0] * 4)]
        table = ints([block for row in blocks for block in row])
        plan.run(lp.inputs(*map(ctypes.addressof, arrays), [ctypes.addressof(table)]), lp.Bucket(**BUCKET))
        data, _ = plan.output("token_context_len")
        expect(list((ctypes.c_int32 * 12).from_address(data)), want, "token_context_len on the CPU")
    plan.close()
    print(f"cpu: {len(BATCHES)} batches planned")


def view(torch, buffer, plan, name, count):
    """An output as a slice of the tensor that it lies in."""
    data, size = plan.output(name)
    begin = (data - buffer.data_ptr()) // 4
    assert count <= size
    return buffer[begin:begin + count]


def plan_in_torch_graph(library, torch):
    device = torch.device("cuda")
    made = config(lp.CUDA)
    size = library.buffer_bytes(made)
    buffer = torch.full((size // 4,), 0x7FFFFFF0, dtype=torch.int32, device=device)
    plan = lp.Plan(library, made, buffer.data_ptr(), size)
    num_requests, num_tokens = (torch.zeros(1, dtype=torch.int32, device=device) for _ in range(2))
    query_start_loc = torch.zeros(5, dtype=torch.int32, device=device)
    seq_lens, prefilling = (torch.zeros(4, dtype=torch.int32, device=device) for _ in range(2))
    table = torch.zeros((4, 2), dtype=torch.int32, device=device)
    tensors = [num_requests, num_tokens, query_start_loc, seq_lens, prefilling]
    given = lp.inputs(*(tensor.data_ptr() for tensor in tensors), [table.data_ptr()])
    bucket = lp.Bucket(**BUCKET)

    plan.run(given, bucket, torch.cuda.current_stream().cuda_stream)  # loads the code, which a capture must not
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.run(given, bucket, torch.cuda.current_stream().cuda_stream)

    for starts, lens, blocks, want in BATCHES * 3:
        buffer.fill_(0x7FFFFFF0)
        num_requests.fill_(4)
        num_tokens.fill_(starts[-1])
        query_start_loc.copy_(torch.tensor(starts, dtype=torch.int32))
        seq_lens.copy_(torch.tensor(lens, dtype=torch.int32))
        table.copy_(torch.tensor(blocks, dtype=torch.int32))
        graph.replay()
        torch.cuda.synchronize()
        expect(view(torch, buffer, plan, "token_context_len", 12).tolist(), want, "token_context_len in a CUDA graph")
        expect(view(torch, buffer, plan, "counts", 9).tolist()[8], 0, "errors")
    print(f"cuda: {3 * len(BATCHES)} replays of one torch CUDA graph on {torch.cuda.get_device_name()}")
    del graph
    plan.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="path of liblantern_attention.so")
    library = lp.Library(parser.parse_args().library)
    plan_on_cpu(library)
    try:
        import torch
    except ImportError as error:
        print(f"cuda: skipped, torch is not installed ({error})")
        return
    if not torch.cuda.is_available():
        print("cuda: skipped, torch sees no GPU")
        return
    plan_in_torch_graph(library, torch)


if __name__ == "__main__":
    main()
