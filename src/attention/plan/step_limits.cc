#include "attention/plan/step_limits.h"

#include <fmt/format.h>

namespace lantern {
namespace {

Error refuse(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

}  // namespace

Result<StepLimits> StepLimits::checked(const StepLimits& limits) {
  const std::pair<const char*, int64_t> counts[] = {
      {"max_tokens", limits.max_tokens},       {"max_requests", limits.max_requests},
      {"max_query_len", limits.max_query_len}, {"max_blocks_per_request", limits.max_blocks_per_request},
      {"block_size", limits.block_size},       {"num_blocks", limits.num_blocks},
      {"max_model_len", limits.max_model_len},
  };
  for (const auto& [name, count] : counts) {
    if (count < 1) return refuse(fmt::format("{} is {}, but must be at least 1", name, count));
  }
  if (limits.index_topk < 0)
    return refuse(fmt::format("index_topk is {}, but must not be negative", limits.index_topk));
  if (limits.scratch_bytes < 0) {
    return refuse(fmt::format("scratch_bytes is {}, but must not be negative", limits.scratch_bytes));
  }
  if (limits.max_tokens < limits.max_sample_rows()) {
    return refuse(
        fmt::format("max_tokens is {}, but a decode step of max_requests {} with max_query_len {} has {} tokens; raise "
                    "max_tokens or lower one of the others",
                    limits.max_tokens, limits.max_requests, limits.max_query_len, limits.max_sample_rows()));
  }
  if (int64_t{limits.num_blocks} * limits.block_size > INT32_MAX) {
    return refuse(
        fmt::format("num_blocks {} of block_size {} make {} slots, but slots are numbered by int32; lower "
                    "num_blocks",
                    limits.num_blocks, limits.block_size, int64_t{limits.num_blocks} * limits.block_size));
  }
  return limits;
}

}  // namespace lantern
