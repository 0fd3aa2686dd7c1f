#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "attention/cache_write.h"
#include "attention/cuda_attention.h"
#include "attention/host_math.h"
#include "attention/index_scratch.h"
#include "attention/indexer.h"
#include "attention/scratch_layout.h"
#include "attention/top_k.h"
#include "base/check.h"
#include "base/e4m3_encode.h"

// Tokens that must choose are scored in groups of up to kGroup, each into a row of scores over all its keys, then the
// rows are selected from. Within a group the work is shared out by ranges of keys, so that one token with a long
// context keeps all threads busy, and the keys of a range are decoded once for all tokens of a request.

namespace lantern {
namespace {

using host_math::kTile;

constexpr int32_t kGroup = 16;
// Keys of one work unit; a multiple of kTile.
constexpr int32_t kRangeKeys = 512;

struct WorkerScratch {
  float* rows;        // [kTile, dim]
  float* keys;        // [dim, kTile], transposed
  float* key_scales;  // [kTile]
  float* products;    // [heads, kTile]
  uint32_t* bins;     // [kTopKBins]
};

struct IndexScratch {
  int32_t* tokens;  // [kGroup]
  float* query;     // [kGroup, heads, dim], as its layout stores it, without the scale
  float* weights;   // [kGroup, heads], times the query's scale
  std::byte* workers;
  float* scores;  // [kGroup, row_stride]
};

WorkerScratch worker_scratch(std::byte* base, int32_t heads, int32_t dim, int64_t* bytes) {
  ScratchLayout layout(base);
  WorkerScratch s{};
  s.rows = layout.take<float>(int64_t{kTile} * dim);
  s.keys = layout.take<float>(int64_t{kTile} * dim);
  s.key_scales = layout.take<float>(kTile);
  s.products = layout.take<float>(int64_t{heads} * kTile);
  s.bins = layout.take<uint32_t>(kTopKBins);
  if (bytes != nullptr) *bytes = layout.used();
  return s;
}

IndexScratch index_scratch(std::byte* base, int64_t row_stride, int32_t heads, int32_t dim, int32_t threads,
                           int64_t* bytes) {
  ScratchLayout layout(base);
  IndexScratch s{};
  s.tokens = layout.take<int32_t>(kGroup);
  s.query = layout.take<float>(int64_t{kGroup} * heads * dim);
  s.weights = layout.take<float>(int64_t{kGroup} * heads);
  int64_t worker_bytes = 0;
  worker_scratch(nullptr, heads, dim, &worker_bytes);
  s.workers = layout.take<std::byte>(worker_bytes * threads);
  s.scores = layout.take<float>(kGroup * row_stride);
  *bytes = layout.used();
  return s;
}

int64_t row_stride_for(int64_t context) { return (context + kTile - 1) / kTile * kTile; }

class IndexSelect {
 public:
  IndexSelect(const IndexSelectParams& p, HostContext& context) : p_(p), context_(context) {}

  void run() {
    int32_t longest = 0;
    for (int32_t t = 0; t < p_.step.tokens; ++t) {
      if (must_score(t)) longest = std::max(longest, context_len(t));
    }
    auto trivial = [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        if (!must_score(static_cast<int32_t>(t))) take_last(static_cast<int32_t>(t));
      }
    };
    context_.threads.parallel_for(p_.step.tokens, 16, std::ref(trivial));
    if (longest == 0) return;

    row_stride_ = row_stride_for(longest);
    int64_t bytes = 0;
    s_ = index_scratch(p_.scratch.get(), row_stride_, p_.heads, p_.dim, context_.threads.thread_count(), &bytes);
    CHECK(bytes <= p_.scratch_bytes, "index_select over {} keys needs {} bytes of scratch and got {}", longest, bytes,
          p_.scratch_bytes);
    worker_scratch(nullptr, p_.heads, p_.dim, &worker_bytes_);
    for (int32_t t = 0; t < p_.step.tokens; ++t) {
      if (!must_score(t)) continue;
      s_.tokens[group_++] = t;
      if (group_ == kGroup) flush();
    }
    if (group_ > 0) flush();
  }

 private:
  int32_t context_len(int32_t t) const { return p_.step.token_request[t] < 0 ? 0 : p_.step.token_context_len[t]; }
  bool must_score(int32_t t) const { return p_.mode == IndexSelectParams::Mode::kScore && context_len(t) > p_.top_k; }
  int32_t* positions(int32_t t) const { return p_.positions.get() + int64_t{t} * p_.top_k; }

  const int32_t* table(int32_t t) const {
    return p_.step.block_table.get() + int64_t{p_.step.token_request[t]} * p_.step.block_table_stride;
  }

  // The last positions, all of them where they are few enough.
  void take_last(int32_t t) {
    const int32_t keys = context_len(t);
    const int32_t count = std::min(keys, p_.top_k);
    for (int32_t i = 0; i < count; ++i) positions(t)[i] = keys - count + i;
    finish(t, count);
  }

  // Slots for the positions, -1 behind them, and the count.
  void finish(int32_t t, int32_t count) {
    int32_t* slots = p_.slots.get() + int64_t{t} * p_.top_k;
    if (count > 0) {
      const int32_t* blocks = table(t);
      for (int32_t i = 0; i < count; ++i) {
        slots[i] = static_cast<int32_t>(p_.step.slot_of(blocks, positions(t)[i]));
      }
    }
    std::fill(positions(t) + count, positions(t) + p_.top_k, -1);
    std::fill(slots + count, slots + p_.top_k, -1);
    p_.counts[t] = count;
  }

  static bool all_numbers(const float* scores, int32_t count) {
    uint32_t bad = 0;
    for (int32_t i = 0; i < count; ++i) bad |= static_cast<uint32_t>(scores[i] != scores[i]);
    return bad == 0;
  }

  void spoil_query(int32_t t) const {
    for (int32_t h = 0; h < p_.attention_heads; ++h) {
      p_.attention_q[t * p_.q_token_stride + h * p_.q_head_stride] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  void flush() {
    auto prepare = [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        prepare_query(static_cast<int32_t>(row / p_.heads), static_cast<int32_t>(row % p_.heads));
      }
    };
    context_.threads.parallel_for(int64_t{group_} * p_.heads, 16, std::ref(prepare));
    // Runs of tokens of one request share their keys.
    for (int32_t begin = 0; begin < group_;) {
      int32_t end = begin + 1;
      int32_t keys = context_len(s_.tokens[begin]);
      while (end < group_ && p_.step.token_request[s_.tokens[end]] == p_.step.token_request[s_.tokens[begin]]) {
        keys = std::max(keys, context_len(s_.tokens[end++]));
      }
      auto score = [&, this](int64_t unit_begin, int64_t unit_end, int worker) {
        const auto first = static_cast<int32_t>(unit_begin * kRangeKeys);
        const auto last = static_cast<int32_t>(std::min<int64_t>(keys, unit_end * kRangeKeys));
        for (int32_t tile = first; tile < last; tile += kTile) score_tile(begin, end, tile, keys, worker);
      };
      context_.threads.parallel_for((keys + kRangeKeys - 1) / kRangeKeys, 1, std::ref(score));
      begin = end;
    }
    auto select = [&](int64_t begin, int64_t end, int worker) {
      const WorkerScratch w = worker_scratch(s_.workers + worker * worker_bytes_, p_.heads, p_.dim, nullptr);
      for (int64_t g = begin; g < end; ++g) {
        const int32_t t = s_.tokens[g];
        const float* scores = s_.scores + g * row_stride_;
        select_top_k(scores, context_len(t), p_.top_k, w.bins, positions(t));
        if (p_.attention_q && !all_numbers(scores, context_len(t))) spoil_query(t);
        finish(t, p_.top_k);
      }
    };
    context_.threads.parallel_for(group_, 1, std::ref(select));
    group_ = 0;
  }

  // The query of one head as it meets the keys: transformed and rounded like them.
  void prepare_query(int32_t g, int32_t h) {
    const int64_t row = int64_t{s_.tokens[g]} * p_.heads + h;
    float* query = s_.query + (int64_t{g} * p_.heads + h) * p_.dim;
    float& weight = s_.weights[int64_t{g} * p_.heads + h];
    std::memcpy(query, p_.query.get() + row * p_.dim, static_cast<size_t>(p_.dim) * sizeof(float));
    weight = p_.weights[row];
    if (p_.hadamard) hadamard_transform(query, p_.dim);
    if (p_.layout != IndexKeyLayout::kFp8) return;
    float amax = 0.0f;
    for (int32_t i = 0; i < p_.dim; ++i) amax = std::max(amax, std::fabs(query[i]));
    const float scale = index_query_fp8_scale(amax);
    for (int32_t i = 0; i < p_.dim; ++i) query[i] = to_float(encode_e4m3(query[i] / scale));
    weight *= scale;
  }

  // Scores the keys [tile, tile + kTile) for the tokens [begin, end) of the group.
  void score_tile(int32_t begin, int32_t end, int32_t tile, int32_t keys, int worker) {
    const WorkerScratch w = worker_scratch(s_.workers + worker * worker_bytes_, p_.heads, p_.dim, nullptr);
    const int32_t count = std::min(kTile, keys - tile);
    load_keys(table(s_.tokens[begin]), tile, count, w);
    for (int32_t g = begin; g < end; ++g) {
      if (context_len(s_.tokens[g]) <= tile) continue;
      host_math::multiply_nn(p_.heads, kTile, p_.dim, s_.query + int64_t{g} * p_.heads * p_.dim, p_.dim, w.keys, kTile,
                             w.products, kTile, false);
      float* scores = s_.scores + g * row_stride_ + tile;
      host_math::relu_weighted_sum(p_.heads, w.products, s_.weights + int64_t{g} * p_.heads, scores);
      if (p_.layout == IndexKeyLayout::kFp8) {
        for (int32_t j = 0; j < kTile; ++j) scores[j] *= w.key_scales[j];
      }
    }
  }

  void load_keys(const int32_t* blocks, int32_t tile, int32_t count, const WorkerScratch& w) const {
    const int32_t block_size = p_.step.block_size;
    const int32_t dim = p_.dim;
    for (int32_t j = 0; j < count; ++j) {
      const int32_t place = tile + j + p_.step.key_offset;
      const int32_t offset = place % block_size;
      const std::byte* block = p_.cache.get() + blocks[place / block_size] * p_.block_bytes;
      float* row = w.rows + int64_t{j} * dim;
      switch (p_.layout) {
        case IndexKeyLayout::kF32:
          std::memcpy(row, block + 4 * int64_t{offset} * dim, static_cast<size_t>(dim) * sizeof(float));
          break;
        case IndexKeyLayout::kBf16:
          host_math::decode_values(DType::kBF16, block + 2 * int64_t{offset} * dim, dim, 1.0f, row);
          break;
        case IndexKeyLayout::kFp8:
          host_math::decode_values(DType::kF8E4M3, block + int64_t{offset} * dim, dim, 1.0f, row);
          std::memcpy(w.key_scales + j, block + int64_t{block_size} * dim + 4 * int64_t{offset}, sizeof(float));
          break;
      }
    }
    if (count < kTile) {
      std::fill_n(w.keys, int64_t{dim} * kTile, 0.0f);
      std::fill(w.key_scales + count, w.key_scales + kTile, 0.0f);
    }
    host_math::transpose(count, dim, w.rows, dim, w.keys, kTile);
  }

  const IndexSelectParams& p_;
  HostContext& context_;
  IndexScratch s_{};
  int64_t row_stride_ = 0;
  int64_t worker_bytes_ = 0;
  int32_t group_ = 0;
};

void index_select_kernel(const IndexSelectParams& p, HostContext& context) {
  CHECK(p.top_k > 0, "index_select with top_k {}", p.top_k);
  IndexSelect(p, context).run();
}

// A row's source is never before it, so that going up reads every row before it is overwritten.
void keep_selection_kernel(const KeepSelectionParams& p, HostContext&) {
  for (int32_t i = 0; i < p.count; ++i) {
    const int64_t from = p.rows[i];
    p.counts[i] = from < 0 ? 0 : p.counts[from];
    if (from <= i) continue;
    std::copy_n(p.positions.get() + from * p.top_k, p.counts[i], p.positions.get() + int64_t{i} * p.top_k);
    std::copy_n(p.slots.get() + from * p.top_k, p.counts[i], p.slots.get() + int64_t{i} * p.top_k);
  }
}

}  // namespace

int64_t index_scratch_bytes(int32_t max_context, int32_t heads, int32_t dim, int32_t threads) {
  int64_t bytes = 0;
  index_scratch(nullptr, row_stride_for(max_context), heads, dim, threads, &bytes);
  return std::max(bytes, cuda_index_scratch_bytes(max_context, heads, dim));
}

void index_select(Stream& stream, const IndexSelectParams& params) {
  launch_attention(stream, "index_select", &index_select_kernel, &CudaAttention::index_select, params);
}

void keep_selection(Stream& stream, const KeepSelectionParams& params) {
  launch_attention(stream, "keep_selection", &keep_selection_kernel, &CudaAttention::keep_selection, params);
}

}  // namespace lantern
