"""A decode step of sparse attention through liblantern_attention.so: cache writes, the choice of keys, MLA over the
chosen keys and over all, against float64 of torch (of numpy, where torch is not installed). On a GPU the step is
captured in a torch CUDA graph, and for each batch a replay must give the bits of eager calls.

    python3 examples/attention/attention_example.py --library build/release/liblantern_attention.so --device cpu
"""

import argparse

import lantern_attention as la

RANK, ROPE, INDEX_HEADS, DIM, BLOCK = 512, 64, 64, 128, 64
TOKENS, REQUESTS = 12, 4
SCALE = (128 + ROPE) ** -0.5
# (visible keys, tokens of this step) of each request: 1 to 6 tokens, lengths at both ends of a block, an empty request.
BATCHES = [[(700, 1), (64, 6), (333, 3), (65, 2)], [(1024, 4), (1, 1), (0, 0), (513, 6)], [(0, 0)] * 4]
LONGEST = 1024
TOP_K = 256


class Arrays:
    """What torch and numpy name differently."""

    def __init__(self, device):
        try:
            import torch
            self.xp, self.torch = torch, torch
        except ImportError:
            import numpy
            self.xp, self.torch = numpy, None
        self.device = device
        if device == "cuda" and not (self.torch and self.torch.cuda.is_available()):
            raise SystemExit("cuda: torch is not installed, or sees no GPU")

    def zeros(self, shape, dtype):
        dtype = getattr(self.xp, dtype)
        return self.torch.zeros(shape, dtype=dtype, device=self.device) if self.torch else self.xp.zeros(shape, dtype)

    def aligned(self, count):
        """Bytes at a multiple of 64."""
        memory = self.zeros((count + 64,), "uint8")
        begin = -self.address(memory) % 64
        return memory[begin:begin + count]

    def address(self, array):
        return array.data_ptr() if self.torch else array.ctypes.data

    def host(self, array):
        return array.cpu() if self.torch else array

    def cast(self, array, dtype):
        dtype = getattr(self.xp, dtype)
        return array.to(dtype) if self.torch else array.astype(dtype)

    def view(self, array, dtype):
        array = array.contiguous() if self.torch else self.xp.ascontiguousarray(array)
        return array.view(getattr(self.xp, dtype))

    def put(self, array, values):
        if self.torch:
            array.copy_(self.torch.tensor(values, dtype=array.dtype).reshape(array.shape))
        else:
            array[...] = self.xp.array(values, array.dtype).reshape(array.shape)

    def fill_normal(self, array, seed):
        if self.torch:
            generator = self.torch.Generator().manual_seed(seed)
            array.copy_(self.torch.randn(array.shape, generator=generator))
        else:
            array[...] = self.xp.random.default_rng(seed).standard_normal(array.shape)


class Problem:
    """Every array has one address for all batches, as a captured graph needs."""

    def __init__(self, arrays, attention, latent_format, heads):
        a, self.a, self.attention = arrays, arrays, attention
        stride = LONGEST // BLOCK
        self.num_blocks = 1 + REQUESTS * stride
        self.latents = la.LatentCache(format=latent_format, kv_lora_rank=RANK, rope_dim=ROPE, block_size=BLOCK,
                                      num_blocks=self.num_blocks)
        self.keys = la.IndexCache(dim=DIM, block_size=BLOCK, num_blocks=self.num_blocks)
        self.latent_bytes = a.aligned(attention.latent_cache_bytes(self.latents))
        self.key_bytes = a.aligned(attention.index_cache_bytes(self.keys))
        self.latents.data, self.keys.data = a.address(self.latent_bytes), a.address(self.key_bytes)

        # The whole cache is written once; a step writes its own tokens again.
        rows = self.num_blocks * BLOCK
        self.latent_values = a.zeros((rows, RANK + ROPE), "float32")
        self.key_values = a.zeros((rows, DIM), "float32")
        self.all_slots = a.zeros((rows,), "int32")
        a.fill_normal(self.latent_values, 1)
        a.fill_normal(self.key_values, 2)
        a.put(self.all_slots, [-1] * BLOCK + list(range(BLOCK, rows)))

        ints, floats = (lambda *shape, dtype=dtype: a.zeros(shape, dtype) for dtype in ("int32", "float32"))
        self.token_request, self.token_context_len, self.slot_mapping = ints(TOKENS), ints(TOKENS), ints(TOKENS)
        self.block_table = ints(REQUESTS, stride)
        a.put(self.block_table, [1 + (i * 37) % (REQUESTS * stride) for i in range(REQUESTS * stride)])
        self.step_latents, self.step_keys = floats(TOKENS, RANK + ROPE), floats(TOKENS, DIM)
        self.query, self.weights = floats(TOKENS, INDEX_HEADS, DIM), floats(TOKENS, INDEX_HEADS)
        self.q_latent, self.q_rope = floats(TOKENS, heads, RANK), floats(TOKENS, heads, ROPE)
        self.positions, self.slots, self.counts = ints(TOKENS, TOP_K), ints(TOKENS, TOP_K), ints(TOKENS)
        self.out = {name: floats(TOKENS, heads, RANK) for name in ("sparse", "dense")}
        self.lse = {name: floats(TOKENS, heads) for name in ("sparse", "dense")}

        self.step = la.Step(tokens=TOKENS, requests=REQUESTS, block_table_stride=stride,
                            token_request=a.address(self.token_request),
                            token_context_len=a.address(self.token_context_len),
                            block_table=a.address(self.block_table))
        self.select = la.Select(heads=INDEX_HEADS, top_k=TOP_K, query=a.address(self.query),
                                weights=a.address(self.weights), positions=a.address(self.positions),
                                slots=a.address(self.slots), counts=a.address(self.counts))
        self.decode = {}
        for name in self.out:
            lists = dict(top_k=TOP_K, slots=a.address(self.slots), counts=a.address(self.counts))
            self.decode[name] = la.Decode(heads=heads, scale=SCALE, q_latent=a.address(self.q_latent),
                                          q_rope=a.address(self.q_rope), out=a.address(self.out[name]),
                                          lse=a.address(self.lse[name]), **(lists if name == "sparse" else {}))
        calls = [(self.select, attention.select_workspace(self.keys, self.step, self.select))]
        calls += [(args, attention.decode_workspace(self.latents, self.step, args)) for args in self.decode.values()]
        self.workspace = a.aligned(max(size for _, size in calls))
        for args, size in calls:
            args.workspace, args.workspace_bytes = a.address(self.workspace), size

    def outputs(self):
        return [self.latent_bytes, self.key_bytes, self.positions, self.slots, self.counts, *self.out.values(),
                *self.lse.values()]

    def fill_caches(self, stream):
        rows = dict(tokens=self.num_blocks * BLOCK, slot_mapping=self.a.address(self.all_slots))
        self.attention.write_latents(self.latents, la.Rows(values=self.a.address(self.latent_values), **rows), stream)
        self.attention.write_index_keys(self.keys, la.Rows(values=self.a.address(self.key_values), **rows), stream)

    def set_batch(self, batch, seed):
        """What lantern_plan_run would make on the device."""
        requests, contexts = [], []
        for request, (keys, tokens) in enumerate(batch):
            requests += [request] * tokens
            contexts += [keys - tokens + 1 + j for j in range(tokens)]
        padding = TOKENS - len(requests)
        table = self.a.host(self.block_table)
        slots = [int(table[r, (n - 1) // BLOCK]) * BLOCK + (n - 1) % BLOCK for r, n in zip(requests, contexts)]
        self.a.put(self.token_request, requests + [-1] * padding)
        self.a.put(self.token_context_len, contexts + [0] * padding)
        self.a.put(self.slot_mapping, slots + [-1] * padding)
        for i, array in enumerate([self.step_latents, self.step_keys, self.query, self.weights, self.q_latent,
                                   self.q_rope]):
            self.a.fill_normal(array, 100 * seed + i)
        return list(zip(requests, contexts))

    def run(self, stream):
        rows = dict(tokens=TOKENS, slot_mapping=self.a.address(self.slot_mapping))
        self.attention.write_latents(self.latents, la.Rows(values=self.a.address(self.step_latents), **rows), stream)
        self.attention.write_index_keys(self.keys, la.Rows(values=self.a.address(self.step_keys), **rows), stream)
        self.attention.index_select(self.keys, self.step, self.select, stream)
        for args in self.decode.values():
            self.attention.mla_decode(self.latents, self.step, args, stream)


class Reference:
    """In float64, from the bytes of the caches."""

    def __init__(self, problem):
        self.p, self.a, self.xp = problem, problem.a, problem.a.xp
        codes = [(-1.0 if c & 128 else 1.0) * ((c & 7) * 2.0 ** -9 if (c >> 3 & 15) == 0
                                               else (8 + (c & 7)) * 2.0 ** ((c >> 3 & 15) - 10)) for c in range(256)]
        self.codes = self.xp.asarray(codes, dtype=self.xp.float64)
        self.table = self.a.host(problem.block_table)
        rows = self.a.host(problem.latent_bytes).reshape(problem.num_blocks * BLOCK, -1)
        latent = self.widen(rows[:, :2 * RANK]) if problem.latents.format == la.BF16 else self.decoded(
            rows[:, :RANK], self.a.view(rows[:, RANK:RANK + 16], "float32"), 128)
        self.latents, self.rope = latent, self.widen(rows[:, -2 * ROPE:])
        blocks = self.a.host(problem.key_bytes).reshape(problem.num_blocks, -1)
        self.keys = self.decoded(blocks[:, :BLOCK * DIM].reshape(-1, DIM),
                                 self.a.view(blocks[:, BLOCK * DIM:], "float32").reshape(-1, 1), DIM)

    def decoded(self, codes, scales, group):
        values = self.codes[self.a.cast(codes, "int64")].reshape(codes.shape[0], -1, group)
        return (values * self.a.cast(scales, "float64")[:, :, None]).reshape(codes.shape[0], -1)

    def widen(self, bytes_of_bf16):
        bits = self.a.cast(self.a.view(bytes_of_bf16, "int16"), "int32") << 16
        return self.a.cast(self.a.view(bits, "float32"), "float64")

    def rounded_to_bf16(self, values):
        bits = self.a.view(values, "int32")
        bits = bits + 0x7FFF + (bits >> 16 & 1)
        return self.a.cast(self.a.view(bits >> 16 << 16, "float32"), "float64")

    def rounded_to_e4m3(self, query):
        """[heads][dim] with a power of two as the scale of each head."""
        xp, query = self.xp, self.a.cast(query, "float64")
        largest = abs(query).max(1) if self.a.torch is None else abs(query).max(1).values
        mantissa, exponent = xp.frexp(largest / 448)
        scale = 2.0 ** self.a.cast(exponent - self.a.cast(mantissa == 0.5, "int32"), "float64")[:, None]
        scaled = query / scale
        _, exponent = xp.frexp(abs(scaled))  # below 2^exponent; e4m3 has 4 bits down to 2^-6
        step = 2.0 ** (self.a.cast(exponent, "float64").clip(-5) - 4)
        return xp.round(scaled / step) * step * scale

    def check(self, tokens):
        p, a, xp = self.p, self.a, self.xp
        host = {name: a.host(getattr(p, name)) for name in ("positions", "slots", "counts", "query", "weights",
                                                            "q_latent", "q_rope")}
        # A GPU rounds queries to bf16, which is part of the op, and each key's weight, by 2^-8 of itself at most: so much
        # of sum(weight * |value|) may the result be off. Beyond that, sums of float32: on the CPU of 576 products and
        # 1024 keys; on a GPU the scores' come from tensor cores, and are off by some 1e-5.
        gpu = a.device == "cuda"
        slack = 1e-4 if gpu else 1e-5
        cast = self.rounded_to_bf16 if gpu else (lambda x: a.cast(x, "float64"))
        worst = dict(out=0.0, lse=0.0)
        for t in range(TOKENS):
            request, context = tokens[t] if t < len(tokens) else (-1, 0)
            taken = min(context, TOP_K)
            assert int(host["counts"][t]) == taken, f"token {t}: count {int(host['counts'][t])}, expected {taken}"
            chosen = [int(x) for x in host["positions"][t]]
            slots = [int(self.table[request, s // BLOCK]) * BLOCK + s % BLOCK for s in range(context)]
            assert chosen[taken:] == [-1] * (TOP_K - taken), f"token {t}: positions behind the count"
            assert chosen[:taken] == sorted(set(chosen[:taken])), f"token {t}: positions are not ascending"
            assert [int(x) for x in host["slots"][t]] == [slots[s] for s in chosen[:taken]] + chosen[taken:], \
                f"token {t}: slots"
            if context > TOP_K:
                products = self.rounded_to_e4m3(host["query"][t]) @ self.keys[slots].T
                scores = a.cast(host["weights"][t], "float64") @ products.clip(0)
                ordered = sorted((float(x) for x in scores), reverse=True)
                # Sums of 64 heads of 128 products in float32: of keys as near as this either may be taken.
                tolerance = 1e-5 * float(abs(scores).max())
                inside = set(chosen[:taken])
                for s in range(context):
                    if s in inside:
                        assert float(scores[s]) >= ordered[TOP_K - 1] - tolerance, f"token {t}: chose position {s}"
                    else:
                        assert float(scores[s]) <= ordered[TOP_K - 1] + tolerance, f"token {t}: left position {s}"
            for name in p.out:
                seen = [slots[s] for s in chosen[:taken]] if name == "sparse" else slots
                out, lse = a.host(p.out[name])[t], a.host(p.lse[name])[t]
                if not seen:
                    assert float(abs(out).max()) == 0 and all(float(x) == float("-inf") for x in lse), \
                        f"token {t}: padding is not empty"
                    continue
                scores = (cast(host["q_latent"][t]) @ self.latents[seen].T +
                          cast(host["q_rope"][t]) @ self.rope[seen].T) * SCALE
                largest = float(scores.max())
                weights = xp.exp(scores - largest)
                sums = weights.sum(1)
                want = (weights @ self.latents[seen]) / sums[:, None]
                error = abs(a.cast(out, "float64") - want)
                allowed = (weights @ abs(self.latents[seen])) / sums[:, None] * (2.0 ** -8 if gpu else 0) + slack
                assert bool((error <= allowed).all()), f"token {t}, {name}: out is off by {float(error.max())}"
                lse_error = float(abs(a.cast(lse, "float64") - (xp.log(sums) + largest)).max())
                assert lse_error <= slack, f"token {t}, {name}: lse is off by {lse_error}"
                worst = dict(out=max(worst["out"], float(error.max())), lse=max(worst["lse"], lse_error))
        return worst


def check_on_cpu(arrays, attention, latent_format, heads):
    problem = Problem(arrays, attention, latent_format, heads)
    problem.fill_caches(None)
    for number, batch in enumerate(BATCHES):
        tokens = problem.set_batch(batch, number)
        problem.run(None)
        yield Reference(problem).check(tokens)


def check_in_torch_graph(arrays, attention, latent_format, heads):
    torch = arrays.torch
    problem = Problem(arrays, attention, latent_format, heads)
    stream = lambda: torch.cuda.current_stream().cuda_stream
    problem.fill_caches(stream())
    problem.set_batch(BATCHES[0], 0)
    problem.run(stream())  # loads the code, which a capture must not
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        problem.run(stream())
    caches = [problem.latent_bytes, problem.key_bytes]
    before = [cache.clone() for cache in caches]
    for number, batch in enumerate(BATCHES * 2):
        tokens = problem.set_batch(batch, number)
        results = []
        for run in (lambda: problem.run(stream()), graph.replay):
            for cache, saved in zip(caches, before):
                cache.copy_(saved)
            for output in problem.outputs()[2:] + [problem.workspace]:
                output.view(torch.uint8).fill_(0x7F)
            run()
            torch.cuda.synchronize()
            results.append([output.view(torch.uint8).clone() for output in problem.outputs()])
        assert all(torch.equal(eager, replayed) for eager, replayed in zip(*results)), \
            f"batch {number}: a replay gives other bits than eager calls"
        yield Reference(problem).check(tokens)
    del graph


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="path of liblantern_attention.so")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    try:
        arrays = Arrays(options.device)
    except ImportError as error:
        print(f"{options.device}: skipped, neither torch nor numpy is installed ({error})")
        raise SystemExit(77)  # what CTest calls skipped
    attention = la.Attention(options.library, la.CUDA if options.device == "cuda" else la.CPU)
    check = check_in_torch_graph if options.device == "cuda" else check_on_cpu
    for name, latent_format, heads in (("bf16", la.BF16, 16), ("bf16", la.BF16, 128), ("fp8", la.FP8, 16),
                                       ("fp8", la.FP8, 128)):
        worst = list(check(arrays, attention, latent_format, heads))
        print(f"{options.device}, {name} latents, {heads} heads: {len(worst)} batches against float64 of "
              f"{arrays.xp.__name__}{', eager = replay bit by bit' if options.device == 'cuda' else ''}; "
              f"largest errors: out {max(w['out'] for w in worst):.1e}, lse {max(w['lse'] for w in worst):.1e}")
    attention.close()


if __name__ == "__main__":
    main()
