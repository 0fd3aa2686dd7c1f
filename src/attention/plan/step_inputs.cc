#include "attention/plan/step_inputs.h"

#include "base/check.h"

namespace lantern {
namespace {

void put(Device& device, const Fixed<int32_t>& to, int64_t begin, std::span<const int32_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  if (count > 0) device.copy_to_device(to.sub(begin, count).data(), values.data(), values.size_bytes());
}

}  // namespace

Status StepInputs::create(Device& device, const StepPlanConfig& config) {
  RETURN_IF_ERROR(config.check());
  const int64_t requests = config.limits.max_requests;
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const CacheGroup& group = config.groups[g];
    strides_[g] = group.block_table_stride != 0 ? group.block_table_stride : group.max_blocks_per_request;
  }
  return arena_.create(device, "step inputs", [&](plan::IntArena& arena) {
    num_requests_ = arena.take(1);
    num_tokens_ = arena.take(1);
    query_start_loc_ = arena.take(requests + 1);
    seq_lens_ = arena.take(requests);
    prefilling_ = arena.take(requests);
    if (config.drafts) accepted_ = arena.take(requests);
    for (size_t g = 0; g < config.groups.size(); ++g) block_tables_[g] = arena.take(requests * strides_[g]);
  });
}

StepInputs::Writable StepInputs::writable(int32_t group) const {
  return {.num_requests = num_requests_,
          .num_tokens = num_tokens_,
          .query_start_loc = query_start_loc_,
          .seq_lens = seq_lens_,
          .prefilling = prefilling_,
          .block_table = block_tables_[static_cast<size_t>(group)],
          .block_table_stride = block_table_stride(group)};
}

void StepInputs::write(Device& device, const Batch& batch) const {
  CHECK(batch.num_requests >= 0 && batch.num_requests < query_start_loc_.size(),
        "a batch of {} requests was written into buffers for {}", batch.num_requests, query_start_loc_.size() - 1);
  const auto requests = static_cast<size_t>(batch.num_requests);
  CHECK(batch.query_start_loc.size() == requests + 1 && batch.seq_lens.size() == requests &&
            batch.prefilling.size() == requests && (batch.accepted.empty() || batch.accepted.size() == requests),
        "a batch of {} requests has arrays of {}, {}, {} and {} entries", requests, batch.query_start_loc.size(),
        batch.seq_lens.size(), batch.prefilling.size(), batch.accepted.size());
  put(device, num_requests_, 0, {&batch.num_requests, 1});
  put(device, num_tokens_, 0, {&batch.num_tokens, 1});
  put(device, query_start_loc_, 0, batch.query_start_loc);
  put(device, seq_lens_, 0, batch.seq_lens);
  put(device, prefilling_, 0, batch.prefilling);
  if (!accepted_.empty()) put(device, accepted_, 0, batch.accepted);
}

void StepInputs::write_block_table(Device& device, int32_t group, int32_t request,
                                   std::span<const int32_t> blocks) const {
  const int32_t stride = block_table_stride(group);
  CHECK(blocks.size() <= static_cast<size_t>(stride), "{} blocks were written into a block-table row of {}",
        blocks.size(), stride);
  put(device, block_tables_[static_cast<size_t>(group)], int64_t{request} * stride, blocks);
}

}  // namespace lantern
