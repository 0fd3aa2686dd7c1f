#include "cli/kernel_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <set>

#include "attention/cache_layout.h"
#include "attention/cache_write.h"
#include "base/check.h"

namespace lantern::cli {
namespace {

constexpr int32_t kBlock = 128;
constexpr int32_t kKvLoraRank = 512, kRopeDim = 64;
// Rows that are encoded at a time; whole blocks.
constexpr int64_t kCacheChunk = 1 << 13;
static_assert(kCacheChunk % DecodeShape::kBlockSize == 0);

Fixed<std::byte> bytes_of(const Fixed<float>& floats) {
  return borrow_fixed(reinterpret_cast<std::byte*>(floats.data()), floats.size() * int64_t{sizeof(float)});
}

// Encodes the pool's slots from the first block on, chunk by chunk: write(values, slots, first slot, count).
template <class Write>
void fill_cache(KernelMemory& memory, const DecodeShape& shape, int32_t width, const Write& write) {
  const int64_t slots = (shape.pool_blocks() - 1) * DecodeShape::kBlockSize, chunk = std::min(slots, kCacheChunk);
  const Fixed<float> values = memory.floats(chunk * width);
  std::vector<int32_t> ascending(static_cast<size_t>(chunk));
  std::iota(ascending.begin(), ascending.end(), 0);
  const Fixed<int32_t> places = memory.put(ascending);
  if (memory.counting()) return;
  for (int64_t first = 0; first < slots; first += chunk) {
    const int64_t count = std::min(chunk, slots - first);
    write(Fixed<const float>(values), Fixed<const int32_t>(places), DecodeShape::kBlockSize + first, count);
    memory.refill(values);
  }
}

}  // namespace

void KernelMemory::fill(const Fixed<std::byte>& bytes, RandomValues values, float width) {
  const uint64_t key = random_word(seed_, next_++);
  if (counting()) return;
  random_fill(*stream_, {.data = bytes, .bytes = bytes.size(), .values = values, .key = key, .width = width});
}

void KernelMemory::refill(const Fixed<float>& floats, float width) {
  fill(bytes_of(floats), RandomValues::kF32, width);
}

Fixed<float> KernelMemory::floats(int64_t count, float width) {
  const Fixed<float> floats = room<float>(count);
  refill(floats, width);
  return floats;
}

QuantizedMatrix KernelMemory::bf16(int64_t rows, int64_t cols) {
  const Fixed<std::byte> data = room<std::byte>(rows * cols * 2);
  fill(data, RandomValues::kBf16, random_weight_width(cols));
  QuantizedMatrix w;
  w.data = Fixed<const std::byte>(data);
  w.dtype = DType::kBF16;
  w.rows = rows;
  w.cols = cols;
  w.row_bytes = 2 * cols;
  return w;
}

QuantizedMatrix KernelMemory::fp8(int64_t rows, int64_t cols) {
  const Fixed<std::byte> data = room<std::byte>(rows * cols);
  fill(data, RandomValues::kE4m3, 1.0f);
  QuantizedMatrix w;
  w.data = Fixed<const std::byte>(data);
  w.dtype = DType::kF8E4M3;
  w.rows = rows;
  w.cols = cols;
  w.row_bytes = cols;
  w.block_rows = w.block_cols = kBlock;
  w.scale_row_stride = (cols + kBlock - 1) / kBlock;
  const float scale = random_weight_scale(cols);
  std::vector<std::byte> scales(static_cast<size_t>((rows + kBlock - 1) / kBlock * w.scale_row_stride) * sizeof(scale));
  for (size_t at = 0; at < scales.size(); at += sizeof(scale)) std::memcpy(scales.data() + at, &scale, sizeof(scale));
  w.scales = Fixed<const std::byte>(put(scales));
  return w;
}

DecodeStep decode_step(KernelMemory& memory, const DecodeShape& shape) {
  CHECK(shape.query_len <= shape.context, "{} tokens cannot be among {} keys", shape.query_len, shape.context);
  DecodeStep step;
  step.shape = shape;
  step.block_table.resize(static_cast<size_t>(shape.pool_blocks() - 1));
  std::iota(step.block_table.begin(), step.block_table.end(), 1);
  std::shuffle(step.block_table.begin(), step.block_table.end(), std::mt19937(1));
  std::vector<int32_t> token_request, context_len;
  for (int32_t request = 0; request < shape.requests; ++request) {
    for (int32_t j = 0; j < shape.query_len; ++j) {
      token_request.push_back(request);
      context_len.push_back(shape.context - shape.query_len + 1 + j);
    }
  }
  step.view.tokens = step.view.decode_tokens = shape.tokens();
  step.view.requests = shape.requests;
  step.view.block_size = DecodeShape::kBlockSize;
  step.view.block_table_stride = shape.blocks();
  step.view.token_request = Fixed<const int32_t>(memory.put(token_request));
  step.view.token_context_len = Fixed<const int32_t>(memory.put(context_len));
  step.view.slot_mapping = Fixed<const int32_t>(memory.put(std::vector<int32_t>(token_request.size(), -1)));
  step.view.block_table = Fixed<const int32_t>(memory.put(step.block_table));
  return step;
}

LatentCacheView latent_cache(KernelMemory& memory, const DecodeShape& shape, LatentLayout layout) {
  const Result<int64_t> row_bytes = latent_row_bytes(layout, kKvLoraRank, kRopeDim);
  CHECK(row_bytes.ok(), "{}", row_bytes.error().message());
  const Fixed<std::byte> cache = memory.room<std::byte>(shape.pool_blocks() * DecodeShape::kBlockSize * *row_bytes);
  fill_cache(memory, shape, kKvLoraRank + kRopeDim, [&](auto values, auto places, int64_t first, int64_t count) {
    write_latent(memory.stream(), {.latent = values,
                                   .latent_stride = kKvLoraRank + kRopeDim,
                                   .slot_mapping = places,
                                   .cache = cache.sub(first * *row_bytes, count * *row_bytes),
                                   .row_bytes = *row_bytes,
                                   .layout = layout,
                                   .kv_lora_rank = kKvLoraRank,
                                   .rope_dim = kRopeDim,
                                   .tokens = count});
  });
  return {.data = Fixed<const std::byte>(cache),
          .row_bytes = *row_bytes,
          .layout = layout,
          .kv_lora_rank = kKvLoraRank,
          .rope_dim = kRopeDim};
}

Fixed<const std::byte> index_cache(KernelMemory& memory, const DecodeShape& shape, int32_t dim) {
  constexpr int32_t kBlockSize = DecodeShape::kBlockSize;
  const int64_t block_bytes = index_block_bytes(IndexKeyLayout::kFp8, dim, kBlockSize);
  const Fixed<std::byte> cache = memory.room<std::byte>(shape.pool_blocks() * block_bytes);
  fill_cache(memory, shape, dim, [&](auto values, auto places, int64_t first, int64_t count) {
    write_index_key(memory.stream(),
                    {.key = values,
                     .key_stride = dim,
                     .slot_mapping = places,
                     .cache = cache.sub(first / kBlockSize * block_bytes, count / kBlockSize * block_bytes),
                     .block_bytes = block_bytes,
                     .block_size = kBlockSize,
                     .layout = IndexKeyLayout::kFp8,
                     .dim = dim,
                     .tokens = count});
  });
  return cache;
}

KernelSelection random_selection(KernelMemory& memory, const DecodeStep& step, int32_t top_k) {
  const DecodeShape& shape = step.shape;
  std::vector<int32_t> positions, slots, counts;
  KernelSelection selection;
  std::mt19937 random(2);
  for (int32_t request = 0; request < shape.requests; ++request) {
    const int32_t* table = step.block_table.data() + int64_t{request} * shape.blocks();
    std::set<int32_t> touched;
    for (int32_t j = 0; j < shape.query_len; ++j) {
      std::vector<int32_t> visible(static_cast<size_t>(shape.context - shape.query_len + 1 + j));
      std::iota(visible.begin(), visible.end(), 0);
      const auto begin = std::ssize(positions);
      std::sample(visible.begin(), visible.end(), std::back_inserter(positions), top_k, random);
      counts.push_back(static_cast<int32_t>(std::ssize(positions) - begin));
      positions.resize(static_cast<size_t>(begin + top_k), -1);
      for (int32_t i = 0; i < top_k; ++i) {
        const int32_t position = positions[static_cast<size_t>(begin + i)];
        slots.push_back(position < 0 ? -1 : static_cast<int32_t>(step.view.slot_of(table, position)));
      }
      touched.insert(positions.begin() + begin, positions.begin() + begin + counts.back());
    }
    selection.distinct_keys += std::ssize(touched);
  }
  selection.view = {.positions = Fixed<const int32_t>(memory.put(positions)),
                    .slots = Fixed<const int32_t>(memory.put(slots)),
                    .counts = Fixed<const int32_t>(memory.put(counts)),
                    .top_k = top_k};
  return selection;
}

}  // namespace lantern::cli
