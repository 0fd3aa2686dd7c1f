// Times attention on the host against what the machine allows: for each case the floor is the larger of
// bytes read / read bandwidth and multiply-adds / f32 multiply-add peak, both measured in the same run on the same
// threads. Caches that fit the last-level cache, and products on matrix units, can be faster than this floor. On a
// machine shared with others read cpu_milliseconds and cpu_fma_ratio, with one thread. Prints one JSON object to
// stdout.
//
//   build/release/bench/attention_bench [threads]
#include <fmt/core.h>
#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "attention/indexer.h"
#include "attention/mla.h"
#include "device/device.h"
#include "device/stream.h"

namespace lantern {
namespace {

struct Seconds {
  double wall = 1e30;
  double cpu = 1e30;  // of all threads together; what counts on a machine shared with others
};

double now(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The best of several runs for at least half a second: other work on the machine only adds.
Seconds seconds_of(const std::function<void()>& body) {
  Seconds best;
  double total = 0.0;
  body();
  for (int runs = 0; runs < 5 || total < 0.5; ++runs) {
    const double wall = now(CLOCK_MONOTONIC);
    const double cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    body();
    best.cpu = std::min(best.cpu, now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    best.wall = std::min(best.wall, now(CLOCK_MONOTONIC) - wall);
    total += now(CLOCK_MONOTONIC) - wall;
  }
  return best;
}

// Memory as an engine's buffers have it: lines are not shared by vectors.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{4096})); }
  void deallocate(T* memory, size_t) { ::operator delete(memory, std::align_val_t{4096}); }
  bool operator==(const AlignedAllocator&) const { return true; }
};
template <class T>
using Buffer = std::vector<T, AlignedAllocator<T>>;

template <class T>
Fixed<T> fixed(Buffer<T>& values) {
  return borrow_fixed(values.data(), static_cast<int64_t>(values.size()));
}
template <class T>
DevPtr<const T> in(Buffer<T>& values) {
  return Fixed<const T>(fixed(values));
}

constexpr int64_t kFmaSteps = 4000000;

// 24 independent chains of multiply-adds; returns multiply-adds done.
__attribute__((target("avx512f"))) int64_t fma_loop_512(float* sink) {
  __m512 sum[24];
  for (int i = 0; i < 24; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (int64_t step = 0; step < kFmaSteps; ++step) {
#pragma GCC unroll 24
    for (int i = 0; i < 24; ++i) sum[i] = _mm512_fmadd_ps(sum[i], a, b);
  }
  for (int i = 1; i < 24; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  alignas(64) float lanes[16];
  _mm512_store_ps(lanes, sum[0]);
  *sink = lanes[0];
  return kFmaSteps * 24 * 16;
}

__attribute__((target("avx2,fma"))) int64_t fma_loop_256(float* sink) {
  __m256 sum[12];
  for (int i = 0; i < 12; ++i) sum[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (int64_t step = 0; step < kFmaSteps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sum[i] = _mm256_fmadd_ps(sum[i], a, b);
  }
  for (int i = 1; i < 12; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, sum[0]);
  *sink = lanes[0];
  return kFmaSteps * 12 * 8;
}

// Sums 64-byte lines with plain integer loads, which compilers vectorise at any level.
uint64_t read_all(const uint64_t* data, int64_t count) {
  uint64_t sum[8] = {};
  for (int64_t i = 0; i + 8 <= count; i += 8) {
    for (int64_t j = 0; j < 8; ++j) sum[j] += data[i + j];
  }
  return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

struct Machine {
  double bytes_per_second = 0.0;
  double fma_per_second = 0.0;
  double fma_per_cpu_second = 0.0;  // of one thread
};

Machine measure_machine(ThreadPool& threads) {
  Machine m;
  const int64_t count = int64_t{1} << 26;  // 512 MiB: more than the last-level cache
  Buffer<uint64_t> data(static_cast<size_t>(count), 1);
  Buffer<uint64_t> sinks(static_cast<size_t>(threads.thread_count()) * 8);
  auto read = [&](int64_t begin, int64_t end, int worker) {
    sinks[static_cast<size_t>(worker) * 8] += read_all(data.data() + begin, end - begin);
  };
  m.bytes_per_second =
      static_cast<double>(count) * 8 / seconds_of([&] { threads.parallel_for(count, 1 << 18, std::ref(read)); }).wall;
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  Buffer<float> results(static_cast<size_t>(threads.thread_count()) * 16);
  int64_t done = 0;
  auto multiply = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      float* sink = results.data() + i * 16;
      const int64_t count_done = wide ? fma_loop_512(sink) : fma_loop_256(sink);
      if (i == 0) done = count_done;
    }
  };
  const Seconds seconds = seconds_of([&] { threads.parallel_for(threads.thread_count(), 1, std::ref(multiply)); });
  m.fma_per_second = static_cast<double>(done) * threads.thread_count() / seconds.wall;
  m.fma_per_cpu_second = static_cast<double>(done) * threads.thread_count() / seconds.cpu;
  return m;
}

struct Shape {
  const char* name;
  int32_t heads, rank, rope, nope, value;
};
constexpr Shape kTiny{"tiny", 4, 512, 64, 128, 128};
constexpr Shape kGlmFlash{"glm47_flash", 20, 512, 64, 192, 256};
constexpr Shape kV3{"deepseek_v3", 128, 512, 64, 128, 128};

class Bench {
 public:
  explicit Bench(int threads) : device_(make_host_device(threads)), stream_(*device_) {
    stream_.launch("measure", &measure, this);
    fmt::print(
        "{{\"threads\": {}, \"instructions\": \"{}\", \"read_gb_per_second\": {:.2f}, \"f32_gfma_per_second\": "
        "{:.1f}, \"f32_gfma_per_cpu_second\": {:.1f}, \"cases\": [",
        threads_, mla_host_implementation(), machine_.bytes_per_second / 1e9, machine_.fma_per_second / 1e9,
        machine_.fma_per_cpu_second / 1e9);
  }
  ~Bench() { fmt::print("\n]}}\n"); }

  void decode(const Shape& s, LatentLayout layout, int32_t context) {
    prepare(layout, s.rank, s.rope, context, 1);
    Buffer<float> q(static_cast<size_t>(s.heads * s.rank), 0.01f);
    Buffer<float> q_rope(static_cast<size_t>(s.heads * s.rope), 0.01f);
    Buffer<float> out(static_cast<size_t>(s.heads * s.rank));
    MlaDecodeParams p;
    p.step = step_;
    p.q_latent = in(q);
    p.q_rope = in(q_rope);
    p.q_rope_token_stride = s.heads * s.rope;
    p.q_rope_head_stride = s.rope;
    p.cache = cache_;
    p.heads = s.heads;
    p.scale = 0.06f;
    p.out = fixed(out);
    Buffer<std::byte> scratch(static_cast<size_t>(mla_decode_scratch_bytes(1, s.heads, s.rank, s.rope, threads_)));
    p.scratch = fixed(scratch);
    p.scratch_bytes = static_cast<int64_t>(scratch.size());
    const Seconds seconds = seconds_of([&] { mla_decode(stream_, p); });
    report(fmt::format("decode {} {} context {}", s.name, to_string(layout), context), seconds,
           static_cast<double>(context) * static_cast<double>(cache_.row_bytes),
           static_cast<double>(context) * s.heads * (2.0 * s.rank + s.rope));
  }

  // One chunk from position 0. Without expansion the callback leaves the expanded tile as it is.
  void prefill(const Shape& s, int32_t tokens, bool expand) {
    prepare(LatentLayout::kBf16, s.rank, s.rope, tokens, tokens);
    const int64_t head = s.nope + s.rope;
    Buffer<float> q(static_cast<size_t>(tokens * s.heads * head), 0.01f);
    Buffer<float> out(static_cast<size_t>(tokens) * static_cast<size_t>(s.heads * s.value));
    Buffer<bf16_t> weight;
    MlaPrefillParams p;
    p.step = step_;
    p.q = in(q);
    p.q_token_stride = s.heads * head;
    p.q_head_stride = head;
    p.kv_b = kv_up_projection(s, weight);
    p.cache = cache_;
    p.heads = s.heads;
    p.scale = 0.06f;
    if (!expand)
      p.expand = [](const KvUpProjection&, const float*, int64_t, float*, std::byte*, int64_t, HostContext&) {};
    p.out = fixed(out);
    Buffer<std::byte> scratch(static_cast<size_t>(mla_prefill_scratch_bytes(tokens, p.kv_b, s.rope, threads_)));
    p.scratch = fixed(scratch);
    p.scratch_bytes = static_cast<int64_t>(scratch.size());
    const Seconds seconds = seconds_of([&] { mla_prefill(stream_, p); });
    const double pairs = 0.5 * tokens * (tokens + 1.0);
    report(fmt::format("prefill {} {} tokens{}", s.name, tokens, expand ? ", own expansion" : ", without expansion"),
           seconds, static_cast<double>(q.size() + out.size()) * 4,
           pairs * s.heads * static_cast<double>(head + s.value) +
               (expand ? static_cast<double>(tokens) * static_cast<double>(weight.size()) : 0.0));
  }

  void absorb(const Shape& s, int32_t tokens) {
    const int64_t head = s.nope + s.rope;
    Buffer<float> q(static_cast<size_t>(tokens * s.heads * head), 0.01f);
    Buffer<float> latent(static_cast<size_t>(tokens) * static_cast<size_t>(s.heads * s.rank));
    Buffer<float> out(static_cast<size_t>(tokens) * static_cast<size_t>(s.heads * s.value));
    Buffer<bf16_t> weight;
    AbsorbQueryParams a;
    a.q = in(q);
    a.q_token_stride = s.heads * head;
    a.q_head_stride = head;
    a.kv_b = kv_up_projection(s, weight);
    a.q_latent = fixed(latent);
    a.tokens = tokens;
    ProjectValueParams v;
    v.out_latent = in(latent);
    v.kv_b = a.kv_b;
    v.out = fixed(out);
    v.tokens = tokens;
    const Seconds seconds = seconds_of([&] {
      absorb_query(stream_, a);
      project_value(stream_, v);
    });
    report(fmt::format("absorb and project {} {} tokens", s.name, tokens), seconds,
           static_cast<double>(weight.size()) * 2, static_cast<double>(weight.size()) * tokens);
  }

  void index(int32_t heads, int32_t dim, int32_t top_k, IndexKeyLayout layout, int32_t context, int32_t tokens) {
    prepare(LatentLayout::kBf16, 8, 8, context, tokens);
    Buffer<float> query(static_cast<size_t>(tokens * heads * dim));
    for (size_t i = 0; i < query.size(); ++i) query[i] = static_cast<float>(static_cast<int>(i * 7919 % 201) - 100);
    Buffer<float> weights(static_cast<size_t>(tokens * heads), 0.1f);
    const int64_t block_bytes = index_block_bytes(layout, dim, 64);
    Buffer<std::byte> cache(static_cast<size_t>(block_bytes * (context / 64 + 2)));
    for (size_t i = 0; i < cache.size(); ++i) cache[i] = static_cast<std::byte>(0x20 + i * 31 % 29);
    Buffer<int32_t> positions(static_cast<size_t>(tokens * top_k)), slots = positions,
                                                                    counts(static_cast<size_t>(tokens));
    IndexSelectParams p;
    p.step = step_;
    p.query = in(query);
    p.weights = in(weights);
    p.heads = heads;
    p.dim = dim;
    p.top_k = top_k;
    p.cache = in(cache);
    p.block_bytes = block_bytes;
    p.layout = layout;
    p.positions = fixed(positions);
    p.slots = fixed(slots);
    p.counts = fixed(counts);
    Buffer<std::byte> scratch(static_cast<size_t>(index_scratch_bytes(context, heads, dim, threads_)));
    p.scratch = fixed(scratch);
    p.scratch_bytes = static_cast<int64_t>(scratch.size());
    const Seconds seconds = seconds_of([&] { index_select(stream_, p); });
    report(fmt::format("index {} heads {} context {} tokens {}", heads, to_string(layout), context, tokens), seconds,
           static_cast<double>(block_bytes) / 64 * context,
           static_cast<double>(context) * tokens * heads * (dim + 1.0));
  }

 private:
  // Fills `weight` [heads * (nope + value), rank], which must outlive the view.
  static KvUpProjection kv_up_projection(const Shape& s, Buffer<bf16_t>& weight) {
    weight.assign(static_cast<size_t>(int64_t{s.heads} * (s.nope + s.value) * s.rank), to_bf16(0.01f));
    KvUpProjection view;
    view.data = Fixed<const std::byte>(
        borrow_fixed(reinterpret_cast<const std::byte*>(weight.data()), static_cast<int64_t>(weight.size()) * 2));
    view.row_bytes = int64_t{2} * s.rank;
    view.heads = s.heads;
    view.nope_dim = s.nope;
    view.v_dim = s.value;
    view.kv_lora_rank = s.rank;
    return view;
  }

  // A function pointer and bytes are all that a launch takes.
  static void measure(Bench* const& bench, HostContext& context) {
    bench->threads_ = context.threads.thread_count();
    bench->machine_ = measure_machine(context.threads);
  }

  void prepare(LatentLayout layout, int32_t rank, int32_t rope, int32_t context, int32_t tokens) {
    const int32_t blocks = (context + 63) / 64;
    table_.resize(static_cast<size_t>(blocks));
    for (int32_t i = 0; i < blocks; ++i) table_[static_cast<size_t>(i)] = i + 1;
    request_.assign(static_cast<size_t>(tokens), 0);
    context_len_.resize(static_cast<size_t>(tokens));
    for (int32_t t = 0; t < tokens; ++t) context_len_[static_cast<size_t>(t)] = context - tokens + 1 + t;
    step_ = {};
    step_.tokens = tokens;
    step_.requests = 1;
    step_.block_table_stride = blocks;
    step_.token_request = in(request_);
    step_.token_context_len = in(context_len_);
    step_.block_table = in(table_);
    cache_.layout = layout;
    cache_.kv_lora_rank = rank;
    cache_.rope_dim = rope;
    cache_.row_bytes = latent_row_bytes(layout, rank, rope).value();
    rows_.resize(static_cast<size_t>(cache_.row_bytes) * 64 * static_cast<size_t>(blocks + 1));
    Buffer<float> latent(static_cast<size_t>(rank + rope));
    for (size_t i = 0; i < latent.size(); ++i)
      latent[i] = 0.01f * static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
    for (int64_t slot = 64; slot < 64 * (int64_t{blocks} + 1); ++slot) {
      encode_latent(layout, latent.data(), rank, rope, rows_.data() + slot * cache_.row_bytes);
    }
    cache_.data = in(rows_);
  }

  void report(const std::string& name, Seconds seconds, double bytes, double fmas) {
    const double memory_floor = bytes / machine_.bytes_per_second;
    const double compute_floor = fmas / machine_.fma_per_second;
    const double floor = std::max(memory_floor, compute_floor);
    fmt::print(
        "{}\n  {{\"case\": \"{}\", \"milliseconds\": {:.3f}, \"floor_milliseconds\": {:.3f}, \"bound\": \"{}\", "
        "\"floor_ratio\": {:.2f}, \"cpu_milliseconds\": {:.3f}, \"cpu_fma_ratio\": {:.2f}}}",
        first_ ? "" : ",", name, seconds.wall * 1e3, floor * 1e3, memory_floor > compute_floor ? "memory" : "fma",
        floor / seconds.wall, seconds.cpu * 1e3, fmas / machine_.fma_per_cpu_second / seconds.cpu);
    first_ = false;
    std::fflush(stdout);
  }

  std::unique_ptr<Device> device_;
  Stream stream_;
  int threads_ = 1;
  Machine machine_;
  bool first_ = true;
  Buffer<int32_t> table_, request_, context_len_;
  Buffer<std::byte> rows_;
  StepView step_;
  LatentCacheView cache_;
};

void run(int threads) {
  Bench bench(threads);
  bench.prefill(kGlmFlash, 512, false);
  bench.prefill(kGlmFlash, 512, true);
  bench.prefill(kTiny, 512, true);
  for (const LatentLayout layout : {LatentLayout::kBf16, LatentLayout::kFp8}) {
    for (const int32_t context : {4096, 32768}) {
      bench.decode(kTiny, layout, context);
      bench.decode(kGlmFlash, layout, context);
    }
  }
  bench.decode(kV3, LatentLayout::kBf16, 4096);
  bench.absorb(kGlmFlash, 1);
  bench.absorb(kGlmFlash, 512);
  bench.index(64, 128, 2048, IndexKeyLayout::kFp8, 32768, 1);
  bench.index(64, 128, 2048, IndexKeyLayout::kFp8, 32768, 16);
}

}  // namespace
}  // namespace lantern

int main(int argc, char** argv) {
  lantern::run(argc > 1 ? std::atoi(argv[1]) : 0);
  return 0;
}
