#include "attention/plan/plan_replay.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/plan/plan_invariants.h"
#include "attention/plan/step_inputs.h"
#include "attention/plan/step_plan_buffers.h"
#include "base/check.h"

namespace lantern {
namespace {

Status check_sizes(const PlanCase& c) {
  const auto refuse = [](std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); };
  const StepLimits& limits = c.config.limits;
  if (c.num_requests < 0 || c.num_requests > limits.max_requests) {
    return refuse(
        fmt::format("num_requests is {}, but must lie in [0, {}], max_requests", c.num_requests, limits.max_requests));
  }
  if (c.num_tokens < 0 || c.num_tokens > limits.max_tokens) {
    return refuse(
        fmt::format("num_tokens is {}, but must lie in [0, {}], max_tokens", c.num_tokens, limits.max_tokens));
  }
  const auto need = [&](const char* name, size_t size, int64_t least) -> Status {
    if (static_cast<int64_t>(size) >= least) return {};
    return refuse(fmt::format("{} has {} entries, but {} requests need {}", name, size, c.num_requests, least));
  };
  RETURN_IF_ERROR(need("query_start_loc", c.query_start_loc.size(), int64_t{c.num_requests} + 1));
  RETURN_IF_ERROR(need("seq_lens", c.seq_lens.size(), c.num_requests));
  if (!c.prefilling.empty()) RETURN_IF_ERROR(need("prefilling", c.prefilling.size(), c.num_requests));
  if (c.config.drafts) RETURN_IF_ERROR(need("accepted", c.accepted.size(), c.num_requests));
  if (c.block_table.size() != c.config.groups.size()) {
    return refuse(
        fmt::format("{} block tables were given for {} cache groups", c.block_table.size(), c.config.groups.size()));
  }
  for (const auto& table : c.block_table) RETURN_IF_ERROR(need("block_table", table.size(), c.num_requests));
  return {};
}

template <class T>
std::span<const T> first(const std::vector<T>& values, int32_t count) {
  return std::span<const T>(values).first(static_cast<size_t>(count));
}

void write_inputs(Device& device, const PlanCase& c, const StepInputs& inputs) {
  const std::vector<int32_t> nobody(static_cast<size_t>(c.num_requests), 0);
  inputs.write(device, {.num_requests = c.num_requests,
                        .num_tokens = c.num_tokens,
                        .query_start_loc = first(c.query_start_loc, c.num_requests + 1),
                        .seq_lens = first(c.seq_lens, c.num_requests),
                        .prefilling = first(c.prefilling.empty() ? nobody : c.prefilling, c.num_requests),
                        .accepted = first(c.accepted, c.config.drafts ? c.num_requests : 0)});
  for (size_t g = 0; g < c.block_table.size(); ++g) {
    const auto width = static_cast<size_t>(c.config.groups[g].max_blocks_per_request);
    for (int32_t b = 0; b < c.num_requests; ++b) {
      std::vector<int32_t> row = c.block_table[g][static_cast<size_t>(b)];
      row.resize(width, kMissingBlock);
      inputs.write_block_table(device, static_cast<int32_t>(g), b, row);
    }
  }
}

PlanResult read_outputs(Device& device, const StepPlanParams& p) {
  const auto read = [&](const DevPtr<int32_t>& from, int64_t count) {
    std::vector<int32_t> values(from ? static_cast<size_t>(count) : 0);
    if (!values.empty()) device.copy_to_host(values.data(), from.get(), values.size() * sizeof(int32_t));
    return values;
  };
  const int64_t tokens = p.bucket.tokens, requests = p.bucket.requests;
  const int64_t drafts = p.draft_steps * requests;
  PlanResult r;
  r.bucket = p.bucket;
  r.counts = read(p.counts, kNumCounts);
  r.query_start = read(p.query_start, requests);
  r.query_len = read(p.query_len, requests);
  r.seq_len = read(p.seq_len, requests);
  r.token_request = read(p.token_request, tokens);
  r.token_context_len = read(p.token_context_len, tokens);
  r.local_context_len = read(p.local_context_len, tokens);
  r.decode_lens = read(p.decode_lens, tokens);
  r.per_request_context_lens = read(p.per_request_context_lens, requests * p.bucket.query_width);
  r.paged_mqa_sm90 = read(p.paged_mqa_sm90, 2 * (int64_t{p.workers} + 1));
  r.paged_mqa_sm100 = read(p.paged_mqa_sm100, 2 * (int64_t{p.workers} + 1));
  r.mla_tiles = read(p.mla_tiles, int64_t{p.mla.parts} * kMlaTileScheduleInts);
  r.mla_num_splits = read(p.mla_num_splits, requests + 1);
  r.prefill_chunks = read(p.prefill_chunks, int64_t{r.counts[kNumPrefillChunks]} * kPrefillChunkInts);
  r.draft_query_start_loc = read(p.draft_query_start_loc, requests + 1);
  r.draft_token_indices = read(p.draft_token_indices, requests);
  r.draft_seq_lens = read(p.draft_seq_lens, drafts);
  r.draft_positions = read(p.draft_positions, drafts);
  for (int32_t g = 0; g < p.num_groups; ++g) {
    const PlanGroupParams& group = p.groups[g];
    PlanResult::Group& out = r.groups.emplace_back();
    out.slot_mapping = read(group.slot_mapping, tokens);
    out.compressed_context_len =
        group.compressed_context_len ? read(group.compressed_context_len, tokens) : r.token_context_len;
    out.compressed_slot_mapping =
        group.compressed_slot_mapping ? read(group.compressed_slot_mapping, tokens) : out.slot_mapping;
    out.expanded_block_table = read(group.expanded_block_table, tokens * group.group.max_blocks_per_request);
    out.draft_slot_mapping = read(group.draft_slot_mapping, drafts);
  }
  const std::vector<int32_t> errors = read(p.errors, 2 * int64_t{r.counts[kNumErrors]});
  for (size_t i = 0; i < errors.size(); i += 2) r.errors.push_back({errors[i], static_cast<PlanFault>(errors[i + 1])});
  return r;
}

}  // namespace

BucketShape bucket_of(const PlanCase& c) {
  int32_t widest = 1;
  for (size_t b = 0; b < static_cast<size_t>(c.num_requests); ++b) {
    const int64_t query_len = int64_t{c.query_start_loc[b + 1]} - c.query_start_loc[b];
    const bool decode = c.prefilling.empty() || c.prefilling[b] == 0;
    if (decode && query_len <= c.config.limits.max_query_len) {
      widest = std::max(widest, static_cast<int32_t>(std::max<int64_t>(query_len, 0)));
    }
  }
  return {c.bucket_tokens.value_or(c.num_tokens), c.bucket_requests.value_or(c.num_requests),
          c.bucket_query_width.value_or(widest)};
}

Result<PlanResult> replay_plan(Device& device, const PlanCase& given, const PlanStep& step) {
  PlanCase c = given;
  if (c.config.groups.empty()) c.config.groups = {StepPlanConfig::group_of(c.config.limits)};
  RETURN_IF_ERROR(c.config.check());
  RETURN_IF_ERROR(check_sizes(c));
  const BucketShape bucket = bucket_of(c);
  RETURN_IF_ERROR(check_bucket(bucket, c.config.limits));
  StepInputs inputs;
  StepPlanBuffers buffers;
  RETURN_IF_ERROR(inputs.create(device, c.config));
  RETURN_IF_ERROR(buffers.create(device, c.config));
  if (c.poison) {
    inputs.poison(device);
    buffers.poison(device);
  }
  write_inputs(device, c, inputs);
  const StepPlanParams params = buffers.params(inputs, bucket);
  Stream stream(device);
  step(stream, params);
  stream.synchronize();
  PlanResult result = read_outputs(device, params);
  // They walk the whole plan on the host; builds that are timed leave them to the tests.
  if (kCheckedBuild) {
    for (const std::string& violation : plan_violations(c, result)) CHECK(false, "{}", violation);
  }
  return result;
}

}  // namespace lantern
