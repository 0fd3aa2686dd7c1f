#include "attention/plan/step_plan_buffers.h"

#include <fmt/format.h>

#include "base/check.h"

namespace lantern {

void StepPlanBuffers::lay_out(plan::IntArena& arena) {
  const int64_t tokens = config_.limits.max_tokens;
  const int64_t requests = config_.limits.max_requests;
  const int64_t schedule = 2 * (int64_t{config_.workers} + 1);
  StepPlanParams& p = outputs_;
  p.query_start = arena.take(requests);
  p.query_len = arena.take(requests);
  p.seq_len = arena.take(requests);
  p.counts = counts_ = arena.take(kNumCounts);
  p.errors = arena.take(2 * (requests + kMostBatchErrors));
  p.token_request = token_request_ = arena.take(tokens);
  p.token_context_len = token_context_len_ = arena.take(tokens);
  if (config_.dcp) p.local_context_len = arena.take(tokens);
  if (config_.flattened) p.decode_lens = arena.take(tokens);
  if (config_.per_request) p.per_request_context_lens = arena.take(config_.limits.max_sample_rows());
  if (config_.workers > 0) {
    p.paged_mqa_sm90 = arena.take(schedule);
    p.paged_mqa_sm100 = arena.take(schedule);
  }
  if (config_.mla) {
    p.mla_tiles = arena.take(int64_t{config_.mla->parts} * kMlaTileScheduleInts);
    p.mla_num_splits = arena.take(requests + 1);
  }
  if (config_.prefill) p.prefill_chunks = arena.take(tokens * kPrefillChunkInts);
  const int64_t drafts = config_.draft_steps() * requests;
  if (config_.drafts) {
    p.draft_query_start_loc = arena.take(requests + 1);
    p.draft_seq_lens = arena.take(drafts);
    p.draft_positions = arena.take(drafts);
    p.draft_token_indices = arena.take(requests);
  }
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    PlanGroupParams& group = p.groups[g];
    group.slot_mapping = slot_mappings_[g] = arena.take(tokens);
    if (group.group.compress_ratio > 1) {
      group.compressed_context_len = arena.take(tokens);
      group.compressed_slot_mapping = arena.take(tokens);
    }
    if (config_.flattened) group.expanded_block_table = arena.take(tokens * group.group.max_blocks_per_request);
    if (config_.drafts) group.draft_slot_mapping = arena.take(drafts);
  }
}

void StepPlanBuffers::configure(const StepPlanConfig& config) {
  config_ = config;
  StepPlanParams& p = outputs_;
  p.max_query_len = config.limits.max_query_len;
  p.max_model_len = config.limits.max_model_len;
  p.num_groups = static_cast<int32_t>(config.groups.size());
  p.workers = config.workers;
  p.draft_steps = config.draft_steps();
  p.dcp = config.dcp.value_or(ContextShard{});
  p.mla = config.mla.value_or(MlaTiles{});
  p.prefill = config.prefill.value_or(PrefillBudget{});
  for (size_t g = 0; g < config.groups.size(); ++g) {
    p.groups[g].group = config.groups[g];
    p.groups[g].block_size = plan::Divider(config.groups[g].block_size);
    int32_t& stride = p.groups[g].group.block_table_stride;
    if (stride == 0) stride = config.groups[g].max_blocks_per_request;
  }
}

Status StepPlanBuffers::create(Device& device, const StepPlanConfig& config) {
  RETURN_IF_ERROR(config.check());
  configure(config);
  return arena_.create(device, "step plan", [&](plan::IntArena& arena) { lay_out(arena); });
}

Result<int64_t> StepPlanBuffers::ints_needed(const StepPlanConfig& config) {
  RETURN_IF_ERROR(config.check());
  StepPlanBuffers buffers;
  buffers.configure(config);
  const int64_t ints = buffers.arena_.count([&](plan::IntArena& arena) { buffers.lay_out(arena); });
  if (ints < plan::IntArena::kMost) return ints;
  return Error(
      ErrorCode::kInvalidArgument,
      fmt::format("a plan for max_tokens {} and max_requests {} with these cache groups takes more memory than "
                  "any machine has; lower them or max_blocks_per_request",
                  config.limits.max_tokens, config.limits.max_requests));
}

Status StepPlanBuffers::create_in(const Fixed<int32_t>& memory, const StepPlanConfig& config) {
  ASSIGN_OR_RETURN(const int64_t needed, ints_needed(config));
  if (memory.size() < needed) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("a plan of this configuration needs {} bytes, but was given {}", needed * 4, memory.size() * 4));
  }
  configure(config);
  arena_.lay_out_in(memory, [&](plan::IntArena& arena) { lay_out(arena); });
  return {};
}

StepPlanParams StepPlanBuffers::params(const StepInputs& inputs, const BucketShape& bucket) const {
  const Status fits = check_bucket(bucket, config_.limits);
  CHECK(fits.ok(), "{}", fits.error().message());
  StepPlanParams p = outputs_;
  p.bucket = bucket;
  p.num_requests = inputs.num_requests();
  p.num_tokens = inputs.num_tokens();
  p.query_start_loc = inputs.query_start_loc();
  p.seq_lens = inputs.seq_lens();
  p.prefilling = inputs.prefilling();
  if (config_.drafts) p.accepted = inputs.accepted();
  for (int32_t g = 0; g < p.num_groups; ++g) {
    CHECK(inputs.block_table_stride(g) == p.groups[g].group.block_table_stride,
          "the inputs' block table has rows of {} entries, the plan's of {}", inputs.block_table_stride(g),
          p.groups[g].group.block_table_stride);
    p.groups[g].block_table = inputs.block_table(g);
  }
  return p;
}

StepView StepPlanBuffers::view(const StepInputs& inputs, const BucketShape& bucket, int32_t decode_tokens,
                               int32_t group) const {
  StepView view;
  view.tokens = bucket.tokens;
  view.real_tokens.count = inputs.num_tokens();
  view.decode_tokens = decode_tokens;
  view.requests = bucket.requests;
  view.block_size = config_.groups[static_cast<size_t>(group)].block_size;
  view.block_table_stride = inputs.block_table_stride(group);
  view.token_request = Fixed<const int32_t>(token_request_);
  view.token_context_len = Fixed<const int32_t>(token_context_len_);
  view.slot_mapping = Fixed<const int32_t>(slot_mappings_[static_cast<size_t>(group)]);
  view.block_table = inputs.block_table(group);
  return view;
}

int32_t StepPlanBuffers::num_errors(Device& device) const {
  int32_t errors = 0;
  device.copy_to_host(&errors, counts_.sub(kNumErrors, 1).data(), sizeof(errors));
  return errors;
}

}  // namespace lantern
