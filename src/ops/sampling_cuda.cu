// A row of logits is taken in three steps. Blocks that have a part of it each find its largest logit; then they make
// its weights and count them by size; then one block finds where the kept tokens end, by counting again in the one bin
// that matters, and draws. Masses of tokens are added as integers, so that sums depend on no order: a row draws the
// same token wherever and whenever it runs.
#include "base/host_device.h"
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/float_order.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/quads.cuh"
#include "ops/cuda_launches.h"
#include "ops/cuda_scratch.h"
#include "ops/log_softmax.cuh"
#include "ops/pass_sizes.h"
#include "ops/philox.h"

namespace lantern::cuda {
namespace {

constexpr int32_t kThreads = 1024;
constexpr int32_t kWarps = kThreads / kWarp;
static_assert(kWarps == kWarp);  // a warp holds one value of each warp
constexpr int kPartQuads = kCudaVocabPart / (kThreads * kQuad);
constexpr int32_t kNoToken = INT32_MAX;
constexpr int32_t kBins = kCudaSampleBins;
static_assert(kBins == 2 * kThreads);
// Bins of weights are ranges of their bits from one of these on; the bits of 1.0 need 30.
constexpr int kCoarse = 19, kFine = 8;

// 2^43 for the most likely token: 2^20 of them still fit.
__device__ uint64_t mass_of(float weight) { return static_cast<uint64_t>(weight * 0x1p43f); }

struct Tally {
  uint64_t count, mass;
};

// The masses of a bin's weights, less that of its least one, are multiples of 2^unit_of() (its weights have one
// exponent) below 2^19 of them: counts and sums of a part fit 32 bits, which shared memory adds fast.
__device__ int unit_of(uint32_t bits) { return max(0, static_cast<int>(bits >> 23) - 107); }
__device__ uint32_t excess_of(uint32_t bits, int bin_shift) {
  const uint64_t least = mass_of(__uint_as_float(bits >> bin_shift << bin_shift));
  return static_cast<uint32_t>((mass_of(__uint_as_float(bits)) - least) >> unit_of(bits));
}
__device__ Tally tally_of(uint32_t count, uint32_t excess, uint32_t least_bits) {
  const uint64_t least = mass_of(__uint_as_float(least_bits));
  return {count, count * least + (static_cast<uint64_t>(excess) << unit_of(least_bits))};
}

struct Part {
  uint64_t best;  // rank_of() the first token; 0: no logit is above -infinity
  double sum;     // of exp(logit - the largest); of a largest that is infinite, how many
};
// Larger for a larger logit, then for a lower id.
__device__ uint64_t rank_of(float logit, int32_t id) {
  return static_cast<uint64_t>(order_of(logit)) << 32 | ~static_cast<uint32_t>(id);
}
__device__ float logit_of(uint64_t rank) { return rank == 0 ? -INFINITY : value_of(static_cast<uint32_t>(rank >> 32)); }
__device__ int32_t id_of(uint64_t rank) { return static_cast<int32_t>(~static_cast<uint32_t>(rank)); }
struct Larger {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return max(a, b); }
};

struct Scratch {
  float* weights;  // [vocab, to a multiple of four], 0 beyond the vocabulary
  unsigned long long* masses;
  uint32_t* counts;
  Part* parts;
};
__device__ Scratch scratch_of(const SampleParams& p, int64_t row) {
  std::byte* begin = p.scratch.get() + row * cuda_sample_row_bytes(p.vocab);
  std::byte* masses = begin + cuda_sample_weight_bytes(p.vocab);
  std::byte* counts = masses + kBins * sizeof(unsigned long long);
  return {reinterpret_cast<float*>(begin), reinterpret_cast<unsigned long long*>(masses),
          reinterpret_cast<uint32_t*>(counts), reinterpret_cast<Part*>(counts + kBins * sizeof(uint32_t))};
}

__device__ bool is_padding(const SampleParams& p, int64_t r) { return p.row_slots && p.row_slots[r] < 0; }

// Rank of the row's first token, in every lane.
__device__ uint64_t best_of(const Part* parts, int32_t vocab) {
  uint64_t best = 0;
  for (auto i = static_cast<int32_t>(threadIdx.x % kWarp); i < cuda_vocab_parts(vocab); i += kWarp) {
    best = max(best, parts[i].best);
  }
  return warp_reduce(best, Larger{});
}

__device__ LogSoftmax log_softmax_of(const Part* parts, int32_t vocab, float maximum) {
  if (maximum == -INFINITY) return {maximum, 0};
  double sum = 0;
  for (auto i = static_cast<int32_t>(threadIdx.x % kWarp); i < cuda_vocab_parts(vocab); i += kWarp) {
    const float largest = logit_of(parts[i].best);
    if (largest == maximum) {
      sum += parts[i].sum;
    } else if (largest > -INFINITY) {
      sum += parts[i].sum * exp(static_cast<double>(largest) - static_cast<double>(maximum));
    }
  }
  return {maximum, log(warp_sum(sum))};
}

// The logits of this block's part that this thread has.
struct Logits {
  float v[kPartQuads][kQuad];

  __device__ Logits(const float* row, int32_t vocab) {
    const bool aligned = is_aligned(row);
#pragma unroll
    for (int k = 0; k < kPartQuads; ++k) load_quad(v[k], row, id(k), vocab, aligned, -INFINITY);
  }
  // Of v[k][0]; later ones are larger.
  __device__ static int32_t id(int k) {
    return static_cast<int32_t>(blockIdx.x) * kCudaVocabPart +
           (k * kThreads + static_cast<int32_t>(threadIdx.x)) * kQuad;
  }
  // function(k, j) for each.
  template <class Function>
  __device__ void for_each(const Function& function) const {
#pragma unroll
    for (int k = 0; k < kPartQuads; ++k) {
#pragma unroll
      for (int j = 0; j < kQuad; ++j) function(k, j);
    }
  }
};

__global__ void __launch_bounds__(kThreads) find_largest_kernel(SampleParams p, int64_t first_row) {
  ptx::begin_overlapped();
  __shared__ uint64_t ranks[kWarps];
  __shared__ double sums[kWarps];
  const int64_t r = first_row + blockIdx.y;
  if (is_padding(p, r)) return;
  const Scratch scratch = scratch_of(p, blockIdx.y);
  const Logits logits(p.logits.get() + r * p.vocab, p.vocab);
  if (p.settings[r].temperature > 0) {
    for (int32_t b = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x); b < kBins;
         b += static_cast<int32_t>(gridDim.x * kThreads)) {
      scratch.masses[b] = 0;
      scratch.counts[b] = 0;
    }
  }
  uint64_t best = 0;
  logits.for_each([&](int k, int j) {
    if (logits.v[k][j] > -INFINITY) best = max(best, rank_of(logits.v[k][j], Logits::id(k) + j));
  });
  best = block_reduce(best, uint64_t{0}, ranks, Larger{});
  double sum = 0;
  if (p.logprobs && best != 0) {
    const float largest = logit_of(best);
    logits.for_each([&](int k, int j) {
      const float logit = logits.v[k][j];
      if (largest == INFINITY) {
        sum += logit == INFINITY ? 1.0 : 0.0;
      } else if (logit > -INFINITY) {
        sum += static_cast<double>(expf(logit - largest));
      }
    });
    sum = block_sum(sum, sums);
  }
  if (threadIdx.x == 0) scratch.parts[blockIdx.x] = {best, sum};
}

__device__ float weight_of(float logit, float maximum, float temperature) {
  if (maximum == INFINITY) return logit == INFINITY ? 1.0f : 0.0f;
  return logit > -INFINITY ? fminf(expf((logit - maximum) / temperature), 1.0f) : 0.0f;
}

__global__ void __launch_bounds__(kThreads, 1) weigh_kernel(SampleParams p, int64_t first_row) {
  ptx::begin_overlapped();
  __shared__ uint32_t counts[kBins], excesses[kBins];
  const int64_t r = first_row + blockIdx.y;
  if (is_padding(p, r)) return;
  const float temperature = p.settings[r].temperature;
  if (!(temperature > 0)) return;
  const Scratch scratch = scratch_of(p, blockIdx.y);
  Logits logits(p.logits.get() + r * p.vocab, p.vocab);
  const float maximum = logit_of(best_of(scratch.parts, p.vocab));
  if (maximum == -INFINITY) return;
  for (auto b = static_cast<int32_t>(threadIdx.x); b < kBins; b += kThreads) counts[b] = excesses[b] = 0;
  __syncthreads();
  logits.for_each([&](int k, int j) {
    logits.v[k][j] = weight_of(logits.v[k][j], maximum, temperature);
    const uint32_t bits = __float_as_uint(logits.v[k][j]);
    if (bits == 0) return;  // counted nowhere: such a token is never drawn
    atomicAdd(counts + (bits >> kCoarse), 1u);
    atomicAdd(excesses + (bits >> kCoarse), excess_of(bits, kCoarse));
  });
#pragma unroll
  for (int k = 0; k < kPartQuads; ++k) {
    store_quad(scratch.weights, Logits::id(k), (p.vocab + kQuad - 1) / kQuad * kQuad, true, logits.v[k]);
  }
  __syncthreads();
  for (auto b = static_cast<int32_t>(threadIdx.x); b < kBins; b += kThreads) {
    if (counts[b] == 0) continue;
    const Tally tally = tally_of(counts[b], excesses[b], static_cast<uint32_t>(b) << kCoarse);
    atomicAdd(scratch.counts + b, counts[b]);
    atomicAdd(scratch.masses + b, static_cast<unsigned long long>(tally.mass));
  }
}

// The last kept token of the order "descending weight, ascending id".
struct Cut {
  float weight = 0;
  int32_t id = kNoToken;

  __device__ bool keeps(float token_weight, int32_t token_id) const {
    return token_weight > weight || (token_weight == weight && token_id <= id);
  }
};
__device__ Cut shorter(const Cut& a, const Cut& b) { return a.keeps(b.weight, b.id) ? b : a; }

// The shortest prefix of at least `amount` tokens, or of at least that mass; above 0.
struct Goal {
  uint64_t amount;
  bool by_mass;

  __device__ uint64_t of(const Tally& tally) const { return by_mass ? tally.mass : tally.count; }
};
struct Prefix {
  Cut cut;
  uint64_t mass;
};

struct DrawShared {
  uint32_t counts[kBins], excesses[kBins];
  uint64_t sums[kWarps], range_sums[kWarps];
  int32_t bin;  // where a prefix ends, what is before it and how many are in it
  Tally before;
  uint64_t in_bin;
  int32_t token;
};

// One row of weights in [0, 1], by one block. Everything returned is the same in all threads.
class WeightedRow {
 public:
  __device__ WeightedRow(const Scratch& scratch, int32_t vocab, DrawShared& shared)
      : row_(scratch), quads_((vocab + kQuad - 1) / kQuad), s_(shared), thread_(static_cast<int32_t>(threadIdx.x)) {}

  __device__ uint64_t mass() const {
    return block_sum<uint64_t>(row_.masses[2 * thread_] + row_.masses[2 * thread_ + 1], s_.sums);
  }

  __device__ Prefix prefix(const Goal& goal) const {
    Tally before{};
    const auto coarse = [this](int32_t bin) { return Tally{row_.counts[bin], row_.masses[bin]}; };
    if (!find_bin(coarse, goal, before)) return {Cut{}, mass()};
    uint32_t bits = static_cast<uint32_t>(s_.bin);
    LANTERN_NO_UNROLL
    for (int shift = kCoarse; shift > 0;) {
      const int lower = shift > kFine ? kFine : 0;
      refine(shift, lower, goal, before, bits);
      shift = lower;
    }
    // Of the tokens of this very weight, those of the lowest ids.
    const float weight = __uint_as_float(bits);
    const uint64_t one = mass_of(weight), rest = goal.amount - goal.of(before);
    const uint64_t equals = goal.by_mass ? (rest + one - 1) / one : rest;
    const bool all = equals == s_.in_bin;
    const int32_t last =
        all ? kNoToken
            : find([&](float w, int32_t) { return uint64_t{w == weight}; }, [&](uint64_t) { return equals - 1; });
    return {Cut{weight, last}, before.mass + equals * one};
  }

  // First kept token by ascending id whose cumulated mass exceeds u times that of all kept ones.
  __device__ int32_t token_at(const Cut& cut, double u) const {
    return find([&](float w, int32_t id) { return cut.keeps(w, id) ? mass_of(w) : 0; },
                [&](uint64_t total) { return min(static_cast<uint64_t>(u * static_cast<double>(total)), total - 1); });
  }

 private:
  // function(weight, id) for the quads begin + first, begin + first + step, ... before `end`.
  template <class Function>
  __device__ void for_each(int32_t begin, int32_t end, int32_t step, const Function& function) const {
    constexpr int kAtOnce = 4;
    LANTERN_NO_UNROLL
    for (int32_t q = begin; q < end; q += kAtOnce * step) {
      float4 v[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int32_t quad = q + k * step;
        v[k] = quad < end ? reinterpret_cast<const float4*>(row_.weights)[quad] : make_float4(0, 0, 0, 0);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int32_t id = (q + k * step) * kQuad;
        function(v[k].x, id);
        function(v[k].y, id + 1);
        function(v[k].z, id + 2);
        function(v[k].w, id + 3);
      }
    }
  }

  // Whether the prefix ends in one of the bins, which are of descending weight from the last on; s_.bin then is that
  // one, and `before` has what lies before it added.
  template <class TallyOfBin>
  __device__ bool find_bin(const TallyOfBin& tally_of_bin, const Goal& goal, Tally& before) const {
    const int32_t bin = kBins - 1 - 2 * thread_;
    const Tally high = tally_of_bin(bin), low = tally_of_bin(bin - 1);
    __syncthreads();  // what an earlier search found has been read
    if (thread_ == 0) s_.bin = -1;
    uint64_t total = 0;
    Tally here = before;
    here.count += block_exclusive_sum(high.count + low.count, s_.sums, &total);
    here.mass += block_exclusive_sum(high.mass + low.mass, s_.sums, &total);
    const uint64_t start = goal.of(here), middle = start + goal.of(high);
    if (start < goal.amount && goal.amount <= middle + goal.of(low)) {
      const bool in_high = goal.amount <= middle;
      s_.bin = in_high ? bin : bin - 1;
      s_.in_bin = in_high ? high.count : low.count;
      s_.before = in_high ? here : Tally{here.count + high.count, here.mass + high.mass};
    }
    __syncthreads();
    if (s_.bin < 0) return false;
    before = s_.before;
    return true;
  }

  // The weights whose bits from `shift` on are `bits` are counted in bins of their bits from `lower` on, and those of
  // the bin where the prefix ends join `bits`.
  __device__ void refine(int shift, int lower, const Goal& goal, Tally& before, uint32_t& bits) const {
    for (int32_t b = thread_; b < kBins; b += kThreads) s_.counts[b] = s_.excesses[b] = 0;
    __syncthreads();
    const uint32_t mask = (1u << (shift - lower)) - 1;
    for_each(thread_, quads_, kThreads, [&](float w, int32_t) {
      const uint32_t own = __float_as_uint(w);
      if (own == 0 || own >> shift != bits) return;
      atomicAdd(s_.counts + (own >> lower & mask), 1u);
      atomicAdd(s_.excesses + (own >> lower & mask), excess_of(own, lower));
    });
    __syncthreads();
    const uint32_t upper = bits << (shift - lower);
    find_bin(
        [&](int32_t bin) {
          return tally_of(s_.counts[bin], s_.excesses[bin], (upper | static_cast<uint32_t>(bin)) << lower);
        },
        goal, before);
    bits = upper | static_cast<uint32_t>(s_.bin);
  }

  // The first id at which the sum of amount(weight, id), by ascending id, exceeds target(sum of all); 0 where all is 0.
  // First over a range for each warp, then over the one range with the target.
  template <class Amount, class Target>
  __device__ int32_t find(const Amount& amount, const Target& target) const {
    const int32_t warp = thread_ / kWarp, lane = thread_ % kWarp;
    const int32_t length = (quads_ + kWarps - 1) / kWarps;
    uint64_t own = 0;
    for_each(min(quads_, warp * length) + lane, min(quads_, (warp + 1) * length), kWarp,
             [&](float w, int32_t id) { own += amount(w, id); });
    own = warp_sum(own);
    __syncthreads();  // an earlier result has been read
    if (lane == 0) s_.range_sums[warp] = own;
    if (thread_ == 0) s_.token = 0;
    __syncthreads();
    const uint64_t mine = s_.range_sums[lane];
    uint64_t sum = mine;  // with those of the ranges before
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const uint64_t before = __shfl_up_sync(~0u, sum, offset);
      if (lane >= offset) sum += before;
    }
    const uint64_t total = __shfl_sync(~0u, sum, kWarp - 1);
    if (total == 0) return 0;
    const uint64_t wanted = target(total);
    const int range = __ffs(static_cast<int>(__ballot_sync(~0u, sum > wanted))) - 1;
    uint64_t start = __shfl_sync(~0u, sum - mine, range);
    const int32_t end = min(quads_, (range + 1) * length);
    LANTERN_NO_UNROLL
    for (int32_t q = range * length; q < end; q += kThreads) {
      const int32_t quad = q + thread_;
      uint64_t amounts[kQuad] = {}, own_sum = 0, chunk = 0;
      if (quad < end) {
        float v[kQuad];
        load_quad(v, row_.weights, quad * kQuad, quads_ * kQuad, true, 0.0f);
#pragma unroll
        for (int j = 0; j < kQuad; ++j) own_sum += amounts[j] = amount(v[j], quad * kQuad + j);
      }
      uint64_t before = start + block_exclusive_sum(own_sum, s_.sums, &chunk);
#pragma unroll
      for (int j = 0; j < kQuad; ++j) {
        if (before <= wanted && wanted < before + amounts[j]) s_.token = quad * kQuad + j;
        before += amounts[j];
      }
      start += chunk;
    }
    __syncthreads();
    return s_.token;
  }

  Scratch row_;
  int32_t quads_;
  DrawShared& s_;
  int32_t thread_;
};

__device__ int32_t draw(const Scratch& scratch, int32_t vocab, const SamplingSettings& settings, int64_t position,
                        DrawShared& shared) {
  const WeightedRow row(scratch, vocab, shared);
  const bool has_top_k = settings.top_k > 0 && settings.top_k < vocab;
  Cut cut;
  uint64_t mass = 0;
  LANTERN_NO_UNROLL
  for (int filter = 0; filter < 2; ++filter) {  // top_k, top_p
    const bool by_mass = filter == 1;
    if (by_mass ? !(settings.top_p < 1) : !has_top_k) continue;
    Goal goal{static_cast<uint64_t>(settings.top_k), by_mass};
    if (by_mass) {
      const double of = static_cast<double>(has_top_k ? mass : row.mass());
      goal.amount = max(uint64_t{1}, static_cast<uint64_t>(ceil(static_cast<double>(settings.top_p) * of)));
    }
    const Prefix prefix = row.prefix(goal);
    cut = shorter(cut, prefix.cut);
    mass = prefix.mass;
  }
  // The largest weight is 1.
  if (settings.min_p > 0) cut = shorter(cut, Cut{fminf(settings.min_p, 1.0f), kNoToken});
  return row.token_at(cut, philox_uniform_53(settings.seed, static_cast<uint64_t>(position)));
}

// A block for each row.
__global__ void __launch_bounds__(kThreads) sample_kernel(SampleParams p, int64_t first_row) {
  ptx::begin_overlapped();
  __shared__ DrawShared shared;
  const int64_t r = first_row + blockIdx.x;
  if (is_padding(p, r)) {
    if (threadIdx.x == 0) {
      p.tokens[r] = -1;
      if (p.logprobs) p.logprobs[r] = 0;
    }
    return;
  }
  const Scratch scratch = scratch_of(p, blockIdx.x);
  const SamplingSettings settings = p.settings[r];
  const uint64_t best = best_of(scratch.parts, p.vocab);
  int32_t token = best == 0 ? 0 : id_of(best);
  if (best != 0 && settings.temperature > 0) token = draw(scratch, p.vocab, settings, p.output_positions[r], shared);
  if (threadIdx.x >= kWarp) return;
  LogSoftmax softmax;
  if (p.logprobs) softmax = log_softmax_of(scratch.parts, p.vocab, logit_of(best));
  if (threadIdx.x == 0) {
    p.tokens[r] = token;
    if (p.logprobs) p.logprobs[r] = softmax.of(p.logits[r * p.vocab + token]);
  }
}

}  // namespace

void sample(void* stream, const SampleParams& p) {
  for (int64_t first = 0; first < p.rows; first += kRowsAtOnce) {
    const unsigned rows = blocks_for(std::min(kRowsAtOnce, p.rows - first), 1);
    const dim3 parts(static_cast<unsigned>(cuda_vocab_parts(p.vocab)), rows);
    launch_overlapped(stream, "sample, largest", &find_largest_kernel, parts, kThreads, 0, p, first);
    launch_overlapped(stream, "sample, weights", &weigh_kernel, parts, kThreads, 0, p, first);
    launch_overlapped(stream, "sample", &sample_kernel, rows, kThreads, 0, p, first);
  }
}

}  // namespace lantern::cuda
