#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "attention/cuda_attention.h"
#include "attention/host_math.h"
#include "attention/mla.h"
#include "attention/mla_splits.h"
#include "attention/scratch_layout.h"
#include "base/check.h"

// A token's keys (positions, or entries of its selection list) are cut into ranges of kRangeKeys at fixed places. Each
// range is reduced by itself, tile after tile; the ranges of a token are then combined in ascending order. Who computes
// a range, and when, has no influence on a bit.
//
// Ranges are computed in waves of as many as the scratch holds partial results, so that the scratch does not grow with
// the context.

namespace lantern {
namespace {

using host_math::kTile;

constexpr int32_t kRangeKeys = 256;
// Ranges in flight per thread: enough that a wave's end costs little.
constexpr int32_t kRangesPerThread = 8;
// Heads whose queries stay in the first-level cache beside the keys.
constexpr int32_t kHeadBlock = 12;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Range {
  int32_t token;
  int32_t begin;  // first key
  int32_t end;
  bool whole;  // the token's only range: its result goes straight to the output
};

// One thread's own.
struct WorkerScratch {
  float* keys;    // [kTile, stride]
  float* query;   // [heads, stride]
  float* scores;  // [kHeadBlock, kTile]
};

struct DecodeScratch {
  float* max;          // [tokens, heads]
  float* sum;          // [tokens, heads]
  Range* ranges;       // [wave]
  float* partial_max;  // [wave, heads]
  float* partial_sum;  // [wave, heads]
  float* partial_out;  // [wave, heads, kv_lora_rank]
  std::byte* workers;
  int32_t wave;
};

WorkerScratch worker_scratch(std::byte* base, int32_t heads, int32_t stride, int64_t* bytes) {
  ScratchLayout layout(base);
  WorkerScratch s{};
  s.keys = layout.take<float>(int64_t{kTile} * stride);
  s.query = layout.take<float>(int64_t{heads} * stride);
  s.scores = layout.take<float>(int64_t{kHeadBlock} * kTile);
  if (bytes != nullptr) *bytes = layout.used();
  return s;
}

DecodeScratch decode_scratch(std::byte* base, int32_t tokens, int32_t heads, int32_t kv_lora_rank, int32_t rope_dim,
                             int32_t threads, int64_t* bytes) {
  ScratchLayout layout(base);
  DecodeScratch s{};
  s.wave = kRangesPerThread * threads;
  s.max = layout.take<float>(int64_t{tokens} * heads);
  s.sum = layout.take<float>(int64_t{tokens} * heads);
  s.ranges = layout.take<Range>(s.wave);
  s.partial_max = layout.take<float>(int64_t{s.wave} * heads);
  s.partial_sum = layout.take<float>(int64_t{s.wave} * heads);
  s.partial_out = layout.take<float>(int64_t{s.wave} * heads * kv_lora_rank);
  int64_t worker_bytes = 0;
  worker_scratch(nullptr, heads, host_math::padded(kv_lora_rank + rope_dim), &worker_bytes);
  s.workers = layout.take<std::byte>(worker_bytes * threads);
  *bytes = layout.used();
  return s;
}

class Decode {
 public:
  Decode(const MlaDecodeParams& p, HostContext& context)
      : p_(p),
        context_(context),
        rank_(p.cache.kv_lora_rank),
        width_(rank_ + p.cache.rope_dim),
        stride_(host_math::padded(width_)) {
    int64_t bytes = 0;
    s_ = decode_scratch(p.scratch.get(), p.step.tokens, p.heads, rank_, p.cache.rope_dim,
                        context.threads.thread_count(), &bytes);
    CHECK(bytes <= p.scratch_bytes, "mla_decode needs {} bytes of scratch and got {}", bytes, p.scratch_bytes);
    worker_scratch(nullptr, p.heads, stride_, &worker_bytes_);
  }

  void run() {
    for (int32_t t = 0; t < p_.step.tokens; ++t) {
      const int32_t keys = key_count(t);
      if (keys == 0) clear(t);
      for (int32_t begin = 0; begin < keys; begin += kRangeKeys) {
        s_.ranges[used_++] = Range{t, begin, std::min(keys, begin + kRangeKeys), keys <= kRangeKeys};
        if (used_ == s_.wave) flush();
      }
    }
    flush();
    auto body = [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) finish(row);
    };
    context_.threads.parallel_for(int64_t{p_.step.tokens} * p_.heads, 64, std::ref(body));
  }

 private:
  int32_t key_count(int32_t t) const {
    if (p_.step.token_request[t] < 0) return 0;
    return p_.selection.counts ? p_.selection.counts[t] : p_.step.token_context_len[t];
  }

  float* out_row(int64_t row) const { return p_.out.get() + row * rank_; }

  void clear(int32_t t) {
    const int64_t row = int64_t{t} * p_.heads;
    std::memset(out_row(row), 0, static_cast<size_t>(p_.heads) * static_cast<size_t>(rank_) * sizeof(float));
    std::fill_n(s_.max + row, p_.heads, kMinusInfinity);
    std::fill_n(s_.sum + row, p_.heads, 0.0f);
  }

  // Computes the ranges collected and adds them to their tokens' results.
  void flush() {
    if (used_ == 0) return;
    // With fewer ranges than threads the heads of a range are shared out as well.
    const int32_t threads = context_.threads.thread_count();
    const int32_t shares = std::clamp((2 * threads) / used_, 1, std::max(1, p_.heads / 4));
    const int32_t share = (p_.heads + shares - 1) / shares;
    auto compute = [&](int64_t begin, int64_t end, int worker) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const auto first = static_cast<int32_t>(unit % shares) * share;
        const int32_t last = std::min(p_.heads, first + share);
        if (first < last) compute_range(static_cast<int32_t>(unit / shares), first, last, worker);
      }
    };
    context_.threads.parallel_for(int64_t{used_} * shares, 1, std::ref(compute));

    bool all_whole = true;
    for (int32_t i = 0; i < used_; ++i) all_whole = all_whole && s_.ranges[i].whole;
    if (!all_whole) {
      auto merge = [&](int64_t begin, int64_t end, int) {
        for (int64_t h = begin; h < end; ++h) merge_head(static_cast<int32_t>(h));
      };
      context_.threads.parallel_for(p_.heads, 1, std::ref(merge));
    }
    used_ = 0;
  }

  // Row pointers of keys [begin, end) of a token.
  void find_rows(const Range& range, int32_t begin, int32_t end, const std::byte** rows) const {
    const std::byte* data = p_.cache.data.get();
    if (p_.selection.counts) {
      const int32_t* slots = p_.selection.slots.get() + int64_t{range.token} * p_.selection.top_k;
      for (int32_t j = begin; j < end; ++j) rows[j - begin] = data + slots[j] * p_.cache.row_bytes;
      return;
    }
    const int32_t* table =
        p_.step.block_table.get() + int64_t{p_.step.token_request[range.token]} * p_.step.block_table_stride;
    for (int32_t j = begin; j < end; ++j) rows[j - begin] = data + p_.step.slot_of(table, j) * p_.cache.row_bytes;
  }

  void compute_range(int32_t index, int32_t first_head, int32_t last_head, int worker) {
    const Range& range = s_.ranges[index];
    const int32_t heads = last_head - first_head;
    const WorkerScratch w = worker_scratch(s_.workers + worker * worker_bytes_, p_.heads, stride_, nullptr);
    const int64_t row = (range.whole ? int64_t{range.token} : int64_t{index}) * p_.heads + first_head;
    float* out = (range.whole ? p_.out.get() : s_.partial_out) + row * rank_;
    float* max = (range.whole ? s_.max : s_.partial_max) + row;
    float* sum = (range.whole ? s_.sum : s_.partial_sum) + row;
    std::fill_n(max, heads, kMinusInfinity);
    std::fill_n(sum, heads, 0.0f);

    // [latent | rope | zeros up to the stride], so that one product covers both parts.
    for (int32_t h = 0; h < heads; ++h) {
      float* query = w.query + int64_t{h} * stride_;
      const int64_t token_head = int64_t{range.token} * p_.heads + first_head + h;
      std::memcpy(query, p_.q_latent.get() + token_head * rank_, static_cast<size_t>(rank_) * sizeof(float));
      std::memcpy(query + rank_,
                  p_.q_rope.get() + range.token * p_.q_rope_token_stride + (first_head + h) * p_.q_rope_head_stride,
                  static_cast<size_t>(p_.cache.rope_dim) * sizeof(float));
      std::fill(query + width_, query + stride_, 0.0f);
    }
    const std::byte* rows[kTile];
    for (int32_t begin = range.begin; begin < range.end; begin += kTile) {
      const int32_t count = std::min(kTile, range.end - begin);
      find_rows(range, begin, begin + count, rows);
      host_math::decode_latent_rows(p_.cache.layout, rows, count, rank_, p_.cache.rope_dim, w.keys, stride_,
                                    w.keys + rank_, stride_);
      for (int32_t r = 0; r < count; ++r) std::fill(w.keys + r * stride_ + width_, w.keys + (r + 1) * stride_, 0.0f);
      for (int32_t h = 0; h < heads; h += kHeadBlock) {
        const int32_t block = std::min(kHeadBlock, heads - h);
        attend(w, h, block, count, begin == range.begin, out + int64_t{h} * rank_, max + h, sum + h);
      }
    }
  }

  void attend(const WorkerScratch& w, int32_t head, int32_t block, int32_t count, bool first, float* out, float* max,
              float* sum) const {
    uint64_t visible[kHeadBlock];
    float factor[kHeadBlock];
    std::fill_n(visible, block, count == kTile ? ~uint64_t{0} : (uint64_t{1} << count) - 1);
    host_math::multiply_nt(block, count, stride_, w.query + int64_t{head} * stride_, stride_, w.keys, stride_, w.scores,
                           kTile, false);
    if (count < kTile) {
      for (int32_t h = 0; h < block; ++h) std::fill(w.scores + h * kTile + count, w.scores + (h + 1) * kTile, 0.0f);
    }
    host_math::softmax_tile(block, w.scores, visible, p_.scale, max, sum, factor);
    host_math::multiply_nn(block, rank_, count, w.scores, kTile, w.keys, stride_, out, rank_, false,
                           first ? nullptr : factor);
  }

  // Adds the wave's ranges to head h of their tokens, in order.
  void merge_head(int32_t h) {
    for (int32_t i = 0; i < used_; ++i) {
      const Range& range = s_.ranges[i];
      if (range.whole) continue;
      const int64_t row = int64_t{range.token} * p_.heads + h;
      const int64_t part = int64_t{i} * p_.heads + h;
      const float* part_out = s_.partial_out + part * rank_;
      if (range.begin == 0) {
        std::memcpy(out_row(row), part_out, static_cast<size_t>(rank_) * sizeof(float));
        s_.max[row] = s_.partial_max[part];
        s_.sum[row] = s_.partial_sum[part];
        continue;
      }
      const float max = std::max(s_.partial_max[part], s_.max[row]);  // in this order a NaN of the part stays
      if (max == kMinusInfinity) continue;
      const float old_factor = host_math::exponential(s_.max[row] - max);
      const float part_factor = host_math::exponential(s_.partial_max[part] - max);
      host_math::combine(rank_, out_row(row), old_factor, part_out, part_factor);
      s_.sum[row] = s_.sum[row] * old_factor + s_.partial_sum[part] * part_factor;
      s_.max[row] = max;
    }
  }

  void finish(int64_t row) {
    const float sum = s_.sum[row];
    if (sum != 0.0f) host_math::scale(rank_, out_row(row), 1.0f / sum);
    if (p_.lse) p_.lse[row] = sum == 0.0f ? kMinusInfinity : s_.max[row] + std::log(sum);
  }

  const MlaDecodeParams& p_;
  HostContext& context_;
  int32_t rank_;
  int32_t width_;
  int32_t stride_;
  int64_t worker_bytes_ = 0;
  DecodeScratch s_{};
  int32_t used_ = 0;
};

void mla_decode_kernel(const MlaDecodeParams& p, HostContext& context) {
  if (p.step.tokens == 0) return;
  Decode(p, context).run();
}

}  // namespace

int64_t mla_decode_scratch_bytes(int32_t max_tokens, int32_t heads, int32_t kv_lora_rank, int32_t rope_dim,
                                 int32_t threads) {
  int64_t bytes = 0;
  decode_scratch(nullptr, max_tokens, heads, kv_lora_rank, rope_dim, threads, &bytes);
  return std::max(bytes, cuda_mla_decode_scratch_bytes(max_tokens, heads, kv_lora_rank));
}

void mla_decode(Stream& stream, const MlaDecodeParams& params) {
  launch_attention(stream, "mla_decode", &mla_decode_kernel, &CudaAttention::mla_decode, params);
}

}  // namespace lantern
