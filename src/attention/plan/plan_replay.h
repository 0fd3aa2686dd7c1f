// A whole plan as plain host data: a batch goes in, every output comes out. For replaying a bug report and for tests;
// the step path uses StepInputs and StepPlanBuffers themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "attention/plan/plan_config.h"
#include "attention/plan/plan_faults.h"
#include "attention/plan/step_plan.h"
#include "device/device.h"

namespace lantern {

struct PlanCase {
  // Every output is made that the config asks for; groups may be left empty for the one of the limits.
  StepPlanConfig config;
  std::optional<int32_t> bucket_tokens;       // default: num_tokens
  std::optional<int32_t> bucket_requests;     // default: num_requests
  std::optional<int32_t> bucket_query_width;  // default: the widest decode that max_query_len allows, at least 1
  int32_t num_requests = 0;
  int32_t num_tokens = 0;
  // At least as long as num_requests says; what lies beyond is not copied.
  std::vector<int32_t> query_start_loc;
  std::vector<int32_t> seq_lens;
  std::vector<int32_t> prefilling;                             // empty: nobody is
  std::vector<int32_t> accepted;                               // used with config.drafts
  std::vector<std::vector<std::vector<int32_t>>> block_table;  // [group][request][entry]; rows of any length
  bool poison = false;                                         // fill all buffers with kPlanPoison first
};

struct PlanResult {
  BucketShape bucket;
  std::vector<int32_t> counts;  // by PlanCount
  std::vector<int32_t> query_start, query_len, seq_len;
  std::vector<int32_t> token_request, token_context_len, local_context_len, decode_lens;
  std::vector<int32_t> per_request_context_lens;
  std::vector<int32_t> paged_mqa_sm90, paged_mqa_sm100, mla_tiles, mla_num_splits;
  std::vector<int32_t> prefill_chunks;  // of the chunks there are
  std::vector<int32_t> draft_query_start_loc, draft_token_indices;
  std::vector<int32_t> draft_seq_lens, draft_positions;  // [draft_steps][requests]
  struct Group {
    std::vector<int32_t> slot_mapping;
    std::vector<int32_t> compressed_context_len, compressed_slot_mapping;  // with ratio 1, as without compression
    std::vector<int32_t> expanded_block_table;
    std::vector<int32_t> draft_slot_mapping;
  };
  std::vector<Group> groups;
  struct Fault {
    int32_t request;  // -1: the whole batch
    PlanFault fault;
    friend bool operator==(const Fault&, const Fault&) = default;
  };
  std::vector<Fault> errors;
};

BucketShape bucket_of(const PlanCase& plan_case);
// invalid_argument where the config, the bucket or the sizes of the arrays make no sense; faults of the batch itself
// are in the result. `step` makes the plan: tests compare others with plan_step.
using PlanStep = std::function<void(Stream&, const StepPlanParams&)>;
Result<PlanResult> replay_plan(Device& device, const PlanCase& plan_case, const PlanStep& step = &plan_step);

}  // namespace lantern
