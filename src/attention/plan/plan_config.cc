#include "attention/plan/plan_config.h"

#include <fmt/format.h>

#include <algorithm>

namespace lantern {
namespace {

Error refuse(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

Status check_group(const CacheGroup& group, size_t index) {
  const std::pair<const char*, int32_t> counts[] = {{"block_size", group.block_size},
                                                    {"compress_ratio", group.compress_ratio},
                                                    {"num_blocks", group.num_blocks},
                                                    {"max_blocks_per_request", group.max_blocks_per_request}};
  for (const auto& [name, count] : counts) {
    if (count < 1) return refuse(fmt::format("cache group {}: {} is {}, but must be at least 1", index, name, count));
  }
  if (group.block_table_stride != 0 && group.block_table_stride < group.max_blocks_per_request) {
    return refuse(fmt::format("cache group {}: block_table_stride {} is less than max_blocks_per_request {}", index,
                              group.block_table_stride, group.max_blocks_per_request));
  }
  if (int64_t{group.num_blocks} * group.block_size > INT32_MAX) {
    return refuse(fmt::format("cache group {}: num_blocks {} of block_size {} make more slots than int32 can number",
                              index, group.num_blocks, group.block_size));
  }
  return {};
}

}  // namespace

CacheGroup StepPlanConfig::group_of(const StepLimits& limits) {
  return {.block_size = limits.block_size,
          .compress_ratio = 1,
          .num_blocks = limits.num_blocks,
          .max_blocks_per_request = limits.max_blocks_per_request,
          .block_table_stride = 0};
}

int32_t StepPlanConfig::draft_steps() const { return drafts ? std::max(0, limits.max_query_len - 2) : 0; }

Status StepPlanConfig::check() const {
  const Result<StepLimits> checked = StepLimits::checked(limits);
  if (!checked.ok()) return checked.error();
  if (groups.empty() || groups.size() > static_cast<size_t>(kMaxCacheGroups)) {
    return refuse(fmt::format("{} cache groups were given, but a plan has 1 to {}", groups.size(), kMaxCacheGroups));
  }
  for (size_t g = 0; g < groups.size(); ++g) RETURN_IF_ERROR(check_group(groups[g], g));
  if (dcp) {
    if (dcp->world < 1) return refuse(fmt::format("dcp world is {}, but must be at least 1", dcp->world));
    if (dcp->rank < 0 || dcp->rank >= dcp->world) {
      return refuse(fmt::format("dcp rank is {}, but must lie in [0, {}), the world", dcp->rank, dcp->world));
    }
    if (dcp->interleave < 1) {
      return refuse(fmt::format("dcp interleave is {}, but must be at least 1", dcp->interleave));
    }
    if (int64_t{dcp->world} * dcp->interleave > INT32_MAX) {
      return refuse(
          fmt::format("dcp world {} times interleave {} is more than int32 can hold", dcp->world, dcp->interleave));
    }
  }
  if (workers < 0) return refuse(fmt::format("workers is {}, but must not be negative", workers));
  if (mla) {
    if (mla->parts < 1 || mla->parts > kMostMlaParts) {
      return refuse(fmt::format("mla parts is {}, but must be from 1 to {}", mla->parts, kMostMlaParts));
    }
    if (mla->fixed_overhead_blocks < 0) {
      return refuse(
          fmt::format("mla fixed_overhead_blocks is {}, but must not be negative", mla->fixed_overhead_blocks));
    }
    if (mla->topk < 0) return refuse(fmt::format("mla topk is {}, but must not be negative", mla->topk));
  }
  if (prefill) {
    if (prefill->workspace_tokens < 1) {
      return refuse(fmt::format("prefill workspace_tokens is {}, but must be at least 1", prefill->workspace_tokens));
    }
    if (prefill->logits_bytes < 4) {
      return refuse(fmt::format("prefill logits_bytes is {}, but must be at least 4", prefill->logits_bytes));
    }
  }
  return {};
}

Status check_bucket(const BucketShape& bucket, const StepLimits& limits) {
  const auto check = [](const char* name, int32_t value, int32_t lowest, const char* limit, int32_t highest) -> Status {
    if (value >= lowest && value <= highest) return {};
    return refuse(fmt::format("bucket {} is {}, but must lie in [{}, {}], {}", name, value, lowest, highest, limit));
  };
  RETURN_IF_ERROR(check("tokens", bucket.tokens, 0, "max_tokens", limits.max_tokens));
  RETURN_IF_ERROR(check("requests", bucket.requests, 0, "max_requests", limits.max_requests));
  return check("query_width", bucket.query_width, 1, "max_query_len", limits.max_query_len);
}

}  // namespace lantern
