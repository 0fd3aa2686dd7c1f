#include "engine/step_verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/check.h"

namespace lantern {
namespace {

// Caches are found by slots of tokens: block * block_size + place.
struct CachePlaces {
  std::vector<int64_t> rows;
  std::set<int64_t> blocks;
};

// Where a row may write: from its length on, with room for every draft that it verifies and that is made behind it.
CachePlaces places_of_step(Device& device, const StepBatch& batch, const StepLimits& limits, const SlotArrays& slots) {
  CachePlaces places;
  const int64_t stride = slots.block_table_stride;
  std::vector<int32_t> table(static_cast<size_t>(stride));
  for (const StepRow& row : batch.rows) {
    int32_t begin = 0;
    device.copy_to_host(&begin, slots.seq_len.get() + row.slot, sizeof(begin));
    device.copy_to_host(table.data(), slots.block_table.get() + row.slot * stride, table.size() * sizeof(int32_t));
    const int64_t end = std::min(int64_t{begin} + row.query_len + limits.max_query_len, stride * limits.block_size);
    for (int64_t place = begin; place < end; ++place) {
      const int64_t block = table[static_cast<size_t>(place / limits.block_size)];
      if (block == kNullBlock) continue;
      places.rows.push_back(block * limits.block_size + place % limits.block_size);
      places.blocks.insert(block);
    }
  }
  return places;
}

void add_caches(const CachePlaces& places, const KvCache& cache, std::vector<NamedMemory>& memory) {
  const auto row_bytes = static_cast<size_t>(cache.latent_row_bytes());
  const auto index_bytes = static_cast<size_t>(cache.index_block_bytes());
  for (int32_t layer = 0; layer < cache.num_layers(); ++layer) {
    std::byte* const latent = cache.latent_data(layer).get();
    memory.push_back({fmt::format("the null block of layer {}", layer), latent,
                      row_bytes * static_cast<size_t>(cache.block_size())});
    for (const int64_t row : places.rows) {
      memory.push_back({fmt::format("slot {} of layer {}'s latent cache", row, layer),
                        latent + row * cache.latent_row_bytes(), row_bytes});
    }
    std::byte* const keys = cache.index_data(layer).get();
    if (keys == nullptr) continue;
    memory.push_back({fmt::format("the null block of layer {}'s index keys", layer), keys, index_bytes});
    for (const int64_t block : places.blocks) {
      memory.push_back({fmt::format("block {} of layer {}'s index keys", block, layer),
                        keys + block * cache.index_block_bytes(), index_bytes});
    }
  }
}

}  // namespace

MemorySnapshot::MemorySnapshot(Device& device, const std::vector<NamedMemory>& memory) : memory_(memory) {
  size_t bytes = 0;
  for (const NamedMemory& part : memory) bytes += part.bytes;
  bytes_.resize(bytes);
  size_t at = 0;
  for (const NamedMemory& part : memory) {
    device.copy_to_host(bytes_.data() + at, part.begin, part.bytes);
    at += part.bytes;
  }
}

void MemorySnapshot::restore(Device& device) const {
  size_t at = 0;
  for (const NamedMemory& part : memory_) {
    device.copy_to_device(part.begin, bytes_.data() + at, part.bytes);
    at += part.bytes;
  }
}

std::string MemorySnapshot::difference(const MemorySnapshot& other) const {
  CHECK(&memory_ == &other.memory_ && bytes_.size() == other.bytes_.size(), "snapshots of different memory");
  const size_t first = static_cast<size_t>(std::ranges::mismatch(bytes_, other.bytes_).in1 - bytes_.begin());
  size_t at = 0;
  for (const NamedMemory& part : memory_) {
    if (first < at + part.bytes)
      return fmt::format("{} differs from byte {} of {} on", part.name, first - at, part.bytes);
    at += part.bytes;
  }
  return "";
}

std::vector<NamedMemory> memory_of_step(Device& device, const StepBatch& batch, const StepLimits& limits,
                                        const SlotState& slots, const Sampler& sampler, const KvCache& cache) {
  const auto all_of = [](const char* name, const Fixed<int32_t>& view) {
    return NamedMemory{name, view.data(), static_cast<size_t>(view.size()) * sizeof(int32_t)};
  };
  std::vector<NamedMemory> memory{all_of("the state of slots", slots.all()),
                                  all_of("the lengths of texts", sampler.history_len())};
  for (const StepRow& row : batch.rows) {
    if (!row.samples) continue;
    int32_t length = 0;
    device.copy_to_host(&length, sampler.history_len().data() + row.slot, sizeof(length));
    // What a step appends: at most a token for each that it ran.
    const Fixed<int32_t> text = sampler.history(row.slot);
    const int64_t begin = std::min<int64_t>(length, text.size());
    const Fixed<int32_t> end = text.sub(begin, std::min<int64_t>(row.query_len, text.size() - begin));
    memory.push_back(
        {fmt::format("the text in slot {}", row.slot), end.data(), static_cast<size_t>(end.size()) * sizeof(int32_t)});
  }
  add_caches(places_of_step(device, batch, limits, slots.arrays()), cache, memory);
  return memory;
}

}  // namespace lantern
