// The raw description of a batch, at addresses that never change: what the host copies in before each step.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "attention/plan/int_arena.h"
#include "attention/plan/plan_config.h"
#include "device/device.h"
#include "device/fixed.h"

namespace lantern {

// What `poison()` fills with: as a length or an index it is far outside everything.
constexpr int32_t kPlanPoison = 0x7ffffff0;

class StepInputs {
 public:
  // Sized by config.limits; `accepted` exists where config.drafts asks for it.
  Status create(Device& device, const StepPlanConfig& config);

  // Batch-sized arrays are copied as they are; nothing beyond them is written.
  struct Batch {
    int32_t num_requests = 0;
    int32_t num_tokens = 0;
    std::span<const int32_t> query_start_loc;  // [num_requests + 1]
    std::span<const int32_t> seq_lens;         // [num_requests]
    std::span<const int32_t> prefilling;       // [num_requests]
    std::span<const int32_t> accepted = {};    // [num_requests], or empty
  };
  void write(Device& device, const Batch& batch) const;
  // Entries [0, blocks.size()) of a request's row.
  void write_block_table(Device& device, int32_t group, int32_t request, std::span<const int32_t> blocks) const;
  void poison(Device& device) const { arena_.fill(device, kPlanPoison); }

  // Everything below and the gaps between: a whole image may be copied in at once.
  Fixed<int32_t> all() const { return arena_.all(); }
  Fixed<const int32_t> num_requests() const { return num_requests_; }
  Fixed<const int32_t> num_tokens() const { return num_tokens_; }
  Fixed<const int32_t> query_start_loc() const { return query_start_loc_; }
  Fixed<const int32_t> seq_lens() const { return seq_lens_; }
  Fixed<const int32_t> prefilling() const { return prefilling_; }
  Fixed<const int32_t> accepted() const { return accepted_; }  // empty without drafts
  Fixed<const int32_t> block_table(int32_t group) const { return block_tables_[static_cast<size_t>(group)]; }
  // For kernels that fill them in on the device.
  struct Writable {
    DevPtr<int32_t> num_requests, num_tokens, query_start_loc, seq_lens, prefilling;
    DevPtr<int32_t> block_table;  // of one group
    int32_t block_table_stride = 0;
  };
  Writable writable(int32_t group) const;
  int32_t block_table_stride(int32_t group) const { return strides_[static_cast<size_t>(group)]; }

 private:
  plan::IntArena arena_;
  Fixed<int32_t> num_requests_, num_tokens_, query_start_loc_, seq_lens_, prefilling_, accepted_;
  std::array<Fixed<int32_t>, kMaxCacheGroups> block_tables_;
  std::array<int32_t, kMaxCacheGroups> strides_{};
};

}  // namespace lantern
