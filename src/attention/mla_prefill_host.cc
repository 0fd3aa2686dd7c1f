#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "attention/cuda_attention.h"
#include "attention/host_choice.h"
#include "attention/host_math.h"
#include "attention/kv_up_projection.h"
#include "attention/mla.h"
#include "attention/mla_splits.h"
#include "attention/prefill_tile.h"
#include "attention/scratch_layout.h"
#include "base/check.h"

// For each request, tile after tile of keys at absolute positions in ascending order: decode the latents, expand them
// for all heads, then let every (head, block of queries) take the tile in by an online softmax. A query's result goes
// through the same operations whatever other queries the chunk holds: keys that it cannot see get probability 0, which
// adds nothing, and a tile in which it sees none multiplies its sums by exactly 1.

namespace lantern {
namespace {

using host_math::kTile;

// Keys that are expanded together: the weight, the queries and the outputs are read once for so many. A multiple of
// kTile, by which they are attended to; the size changes no result.
constexpr int32_t kExpandTile = 256;
constexpr int32_t kTiles = kExpandTile / kTile;
// Queries of one work unit: the packed keys and values of a head serve this many.
constexpr int32_t kQueryBlock = PrefillWorker::kQueryBlock;
// Rows and columns of kv_b decoded at a time on the stack (32 KiB); sums of 512 columns are added in order.
constexpr int64_t kExpandRows = 16;
constexpr int64_t kExpandCols = 512;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct PrefillScratch {
  float* max;         // [heads, tokens]
  float* sum;         // [heads, tokens]
  uint64_t* visible;  // [kTiles, tokens]: keys of the current tiles
  int32_t* cursor;    // [tokens]: first entry of the selection list not yet passed
  uint8_t* finished;  // [heads, tokens]: the output is final
  float* latents;     // [kExpandTile, kv_lora_rank]
  float* rope;        // [kExpandTile, rope_dim]
  float* expanded;    // [kExpandTile, heads * (nope_dim + v_dim)]
  std::byte* workers;
};

PrefillShape tile_shape(const KvUpProjection& shape, int32_t rope_dim) {
  return {.nope_dim = shape.nope_dim, .rope_dim = rope_dim, .v_dim = shape.v_dim};
}

PrefillScratch prefill_scratch(std::byte* base, int32_t tokens, const KvUpProjection& shape, int32_t rope_dim,
                               int32_t threads, int64_t* bytes) {
  ScratchLayout layout(base);
  PrefillScratch s{};
  s.max = layout.take<float>(int64_t{tokens} * shape.heads);
  s.sum = layout.take<float>(int64_t{tokens} * shape.heads);
  s.visible = layout.take<uint64_t>(int64_t{kTiles} * tokens);
  s.cursor = layout.take<int32_t>(tokens);
  s.finished = layout.take<uint8_t>(int64_t{tokens} * shape.heads);
  s.latents = layout.take<float>(int64_t{kExpandTile} * shape.kv_lora_rank);
  s.rope = layout.take<float>(int64_t{kExpandTile} * rope_dim);
  s.expanded = layout.take<float>(int64_t{kExpandTile} * shape.heads * (shape.nope_dim + shape.v_dim));
  s.workers = layout.take<std::byte>(PrefillWorker::scratch_bytes(tile_shape(shape, rope_dim)) * threads);
  *bytes = layout.used();
  return s;
}

// The library's own product of latents and kv_b, in float.
void expand_latents(const KvUpProjection& kv_b, const float* latents, int64_t rows, float* out, HostContext& context) {
  const int64_t outputs = int64_t{kv_b.heads} * (kv_b.nope_dim + kv_b.v_dim);
  const int64_t rank = kv_b.kv_lora_rank;
  auto body = [&](int64_t begin, int64_t end, int) {
    alignas(64) float weight[kExpandRows * kExpandCols];
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit * kExpandRows;
      const int64_t count = std::min(kExpandRows, outputs - first);
      for (int64_t column = 0; column < rank; column += kExpandCols) {
        const int64_t columns = std::min(kExpandCols, rank - column);
        for (int64_t r = 0; r < count; ++r) decode_kv_b(kv_b, first + r, column, columns, weight + r * columns);
        host_math::multiply_nt(rows, count, columns, latents + column, rank, weight, columns, out + first, outputs,
                               column > 0);
      }
    }
  };
  context.threads.parallel_for((outputs + kExpandRows - 1) / kExpandRows, 4, std::ref(body));
}

HostPrefillKernel kernel_for(LatentLayout layout) {
  return choose<HostPrefillKernel>(kHostPrefillKernels, HostPrefillDesc{layout}, DeviceTraits{});
}

class Prefill {
 public:
  Prefill(const MlaPrefillParams& p, HostContext& context)
      : p_(p),
        context_(context),
        nope_(p.kv_b.nope_dim),
        rope_(p.cache.rope_dim),
        value_(p.kv_b.v_dim),
        expanded_stride_(int64_t{p.heads} * (nope_ + value_)),
        split_(kernel_for(p.cache.layout) == HostPrefillKernel::kAmx) {
    check_kv_b(p.kv_b);
    CHECK(p.heads == p.kv_b.heads && p.cache.kv_lora_rank == p.kv_b.kv_lora_rank,
          "attention with {} heads and kv_lora_rank {} got a kv_b_proj of {} heads and {} columns", p.heads,
          p.cache.kv_lora_rank, p.kv_b.heads, p.kv_b.kv_lora_rank);
    int64_t bytes = 0;
    s_ = prefill_scratch(p.scratch.get(), p.step.tokens, p.kv_b, rope_, context.threads.thread_count(), &bytes);
    CHECK(bytes <= p.scratch_bytes, "mla_prefill needs {} bytes of scratch and got {}", bytes, p.scratch_bytes);
    worker_bytes_ = PrefillWorker::scratch_bytes(tile_shape(p.kv_b, rope_));
  }

  void run() {
    const int32_t tokens = p_.step.tokens;
    std::fill_n(s_.max, int64_t{tokens} * p_.heads, kMinusInfinity);
    std::fill_n(s_.sum, int64_t{tokens} * p_.heads, 0.0f);
    std::fill_n(s_.cursor, tokens, 0);
    std::fill_n(s_.finished, int64_t{tokens} * p_.heads, uint8_t{0});
    for (int32_t begin = 0; begin < tokens;) {
      const int32_t request = p_.step.token_request[begin];
      int32_t end = begin + 1;
      while (end < tokens && p_.step.token_request[end] == request) ++end;
      if (request >= 0) attend_request(request, begin, end);
      begin = end;
    }
    auto body = [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        finish(row / p_.heads, row % p_.heads, p_.out.get() + row * value_);
      }
    };
    context_.threads.parallel_for(int64_t{tokens} * p_.heads, 64, std::ref(body));
  }

 private:
  void attend_request(int32_t request, int32_t begin, int32_t end) {
    int32_t keys = 0;
    for (int32_t t = begin; t < end; ++t) keys = std::max(keys, p_.step.token_context_len[t]);
    for (int32_t base = 0; base < keys; base += kExpandTile) {
      int32_t first = end;
      for (int32_t i = 0; i < kTiles; ++i) first = std::min(first, mark_visible(begin, end, base, i));
      if (first == end) continue;
      const int32_t count = std::min(kExpandTile, keys - base);
      const bool last = base + kExpandTile >= keys;
      load_keys(request, base, count);
      const int32_t blocks = (end - first + kQueryBlock - 1) / kQueryBlock;
      auto body = [&, this](int64_t unit_begin, int64_t unit_end, int worker) {
        for (int64_t unit = unit_begin; unit < unit_end; ++unit) {
          const auto h = static_cast<int32_t>(unit / blocks);
          const auto query = static_cast<int32_t>(first + unit % blocks * kQueryBlock);
          attend_keys(h, query, std::min(end, query + kQueryBlock), count, last, worker);
        }
      };
      context_.threads.parallel_for(int64_t{p_.heads} * blocks, 1, std::ref(body));
    }
  }

  uint64_t* visible(int32_t tile) const { return s_.visible + int64_t{tile} * p_.step.tokens; }

  // Says for the tokens [begin, end) which keys of tile i from `base` on they see; returns the first that sees any.
  int32_t mark_visible(int32_t begin, int32_t end, int32_t base, int32_t i) {
    const int32_t tile = base + i * kTile;
    int32_t first = end;
    for (int32_t t = begin; t < end; ++t) {
      const int32_t prefix = std::clamp(p_.step.token_context_len[t] - tile, 0, kTile);
      uint64_t bits = prefix == kTile ? ~uint64_t{0} : (uint64_t{1} << prefix) - 1;
      if (p_.selection.counts) bits &= selected(t, tile);
      visible(i)[t] = bits;
      if (bits != 0 && first == end) first = t;
    }
    return first;
  }

  // Bits of the positions in [tile, tile + kTile) that token t's list holds. Tiles come in ascending order.
  uint64_t selected(int32_t t, int32_t tile) {
    const int32_t* positions = p_.selection.positions.get() + int64_t{t} * p_.selection.top_k;
    const int32_t count = p_.selection.counts[t];
    int32_t at = s_.cursor[t];
    uint64_t bits = 0;
    for (; at < count && positions[at] < tile + kTile; ++at) {
      if (positions[at] >= tile) bits |= uint64_t{1} << (positions[at] - tile);
    }
    s_.cursor[t] = at;
    return bits;
  }

  // Decodes and expands the keys [base, base + count) of a request.
  void load_keys(int32_t request, int32_t base, int32_t count) {
    const int32_t* table = p_.step.block_table.get() + int64_t{request} * p_.step.block_table_stride;
    const std::byte* rows[kExpandTile] = {};
    for (int32_t j = 0; j < count; ++j) {
      rows[j] = p_.cache.data.get() + p_.step.slot_of(table, base + j) * p_.cache.row_bytes;
    }
    host_math::decode_latent_rows(p_.cache.layout, rows, count, p_.cache.kv_lora_rank, rope_, s_.latents,
                                  p_.cache.kv_lora_rank, s_.rope, rope_);
    if (p_.expand != nullptr) {
      p_.expand(p_.kv_b, s_.latents, count, s_.expanded, p_.expand_scratch.get(), p_.expand_scratch_bytes, context_);
    } else {
      expand_latents(p_.kv_b, s_.latents, count, s_.expanded, context_);
    }
  }

  // Takes the loaded keys into the results of head h for the tokens [begin, end); after the last ones these are final.
  void attend_keys(int32_t h, int32_t begin, int32_t end, int32_t count, bool last, int worker) const {
    PrefillWorker w(s_.workers + worker * worker_bytes_, tile_shape(p_.kv_b, rope_), split_);
    const auto value_bytes = static_cast<size_t>(value_) * sizeof(float);
    float* max = s_.max + int64_t{h} * p_.step.tokens;
    float* sum = s_.sum + int64_t{h} * p_.step.tokens;
    for (int32_t t = begin; t < end; ++t) {
      w.set_query(t - begin, p_.q.get() + t * p_.q_token_stride + h * p_.q_head_stride);
      if (max[t] == kMinusInfinity) {
        std::fill_n(w.out(t - begin), value_, 0.0f);  // nothing yet: the output holds what was there before
      } else {
        std::memcpy(w.out(t - begin), out_row(t, h), value_bytes);
      }
    }
    for (int32_t i = 0; i * kTile < count; ++i) {
      int32_t first = begin;
      while (first < end && visible(i)[first] == 0) ++first;
      if (first == end) continue;
      PrefillKeys keys;
      keys.expanded = s_.expanded + i * kTile * expanded_stride_ + int64_t{h} * (nope_ + value_);
      keys.stride = expanded_stride_;
      keys.rope = s_.rope + int64_t{i} * kTile * rope_;
      keys.count = std::min(kTile, count - i * kTile);
      w.attend(first - begin, end - first, keys, visible(i) + first, p_.scale, max + first, sum + first);
    }
    for (int32_t t = begin; t < end; ++t) {
      if (last) finish(t, h, w.out(t - begin));
      std::memcpy(out_row(t, h), w.out(t - begin), value_bytes);
    }
  }

  float* out_row(int32_t t, int32_t h) const { return p_.out.get() + (int64_t{t} * p_.heads + h) * value_; }

  // Divides the values of (t, h) in `out` by the sum of the probabilities, once.
  void finish(int64_t t, int64_t h, float* out) const {
    const int64_t state = h * p_.step.tokens + t;
    if (s_.finished[state] != 0) return;
    s_.finished[state] = 1;
    const float sum = s_.sum[state];
    if (sum == 0.0f) {
      std::fill_n(out, value_, 0.0f);
    } else {
      host_math::scale(value_, out, 1.0f / sum);
    }
    if (p_.lse) p_.lse[t * p_.heads + h] = sum == 0.0f ? kMinusInfinity : s_.max[state] + std::log(sum);
  }

  const MlaPrefillParams& p_;
  HostContext& context_;
  int32_t nope_;
  int32_t rope_;
  int32_t value_;
  int64_t expanded_stride_;
  bool split_;
  int64_t worker_bytes_ = 0;
  PrefillScratch s_{};
};

void mla_prefill_kernel(const MlaPrefillParams& p, HostContext& context) {
  if (p.step.tokens == 0) return;
  Prefill(p, context).run();
}

}  // namespace

int32_t mla_prefill_key_tile() { return kExpandTile; }

int64_t mla_prefill_scratch_bytes(int32_t max_tokens, const KvUpProjection& shape, int32_t rope_dim, int32_t threads) {
  int64_t bytes = 0;
  prefill_scratch(nullptr, max_tokens, shape, rope_dim, threads, &bytes);
  return std::max(bytes, cuda_mla_prefill_scratch_bytes(max_tokens, shape.heads, shape.kv_lora_rank));
}

std::string mla_host_implementation() {
  const auto kernel = static_cast<size_t>(kernel_for(LatentLayout::kBf16));
  const std::string_view name = kHostPrefillKernels[kernel].name;
  return std::string(name.substr(name.rfind('.') + 1)) + ", " + highway_target();
}

void mla_prefill(Stream& stream, const MlaPrefillParams& params) {
  launch_attention(stream, "mla_prefill", &mla_prefill_kernel, &CudaAttention::mla_prefill, params);
}

}  // namespace lantern
