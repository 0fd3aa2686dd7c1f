// include/lantern/plan.h over StepPlanBuffers.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "attention/c_answer.h"
#include "attention/plan/plan_cuda.h"
#include "attention/plan/plan_faults.h"
#include "attention/plan/plan_host.h"
#include "attention/plan/step_plan_buffers.h"
#include "base/c_struct.h"
#include "lantern/plan.h"

struct lantern_plan {
  lantern_device_kind device_kind = LANTERN_DEVICE_CPU;
  lantern::StepPlanBuffers buffers;
};

namespace lantern {
namespace {

static_assert(static_cast<int>(LANTERN_PLAN_NUM_ERRORS) == kNumErrors && kNumCounts == 9);
static_assert(kMostBatchErrors == 3 && kMaxCacheGroups == 4);

CAnswer& answer() {
  thread_local CAnswer of_this_thread;
  return of_this_thread;
}

lantern_status finish(const Status& status) { return answer().finish(status); }

template <class Struct>
Result<Struct> read_struct(const Struct* from, const char* name) {
  return read_c_struct(from, name, LANTERN_PLAN_ABI_VERSION);
}

Result<std::vector<CacheGroup>> read_groups(const lantern_plan_config& c) {
  if (c.groups == nullptr || c.num_groups == 0 || c.num_groups > static_cast<uint32_t>(kMaxCacheGroups)) {
    return refuse(fmt::format("a plan has 1 to {} cache groups, but num_groups is {} and groups is {}", kMaxCacheGroups,
                              c.num_groups, c.groups == nullptr ? "NULL" : "set"));
  }
  std::vector<CacheGroup> groups;
  const auto* bytes = reinterpret_cast<const unsigned char*>(c.groups);
  const size_t stride = c.groups->struct_size;
  for (uint32_t g = 0; g < c.num_groups; ++g) {
    const auto* at = reinterpret_cast<const lantern_plan_group*>(bytes + g * stride);
    if (at->struct_size != stride) {
      return refuse(fmt::format("lantern_plan_group.struct_size is {} in cache group {}, but {} in the first",
                                at->struct_size, g, stride));
    }
    ASSIGN_OR_RETURN(const lantern_plan_group group, read_struct(at, "lantern_plan_group"));
    groups.push_back({.block_size = group.block_size,
                      .compress_ratio = group.compress_ratio == 0 ? 1 : group.compress_ratio,
                      .num_blocks = group.num_blocks,
                      .max_blocks_per_request = group.max_blocks_per_request,
                      .block_table_stride = group.block_table_stride});
  }
  return groups;
}

struct ReadConfig {
  lantern_device_kind device_kind;
  StepPlanConfig plan;
};

Result<ReadConfig> read_config(const lantern_plan_config* from) {
  ASSIGN_OR_RETURN(const lantern_plan_config c, read_struct(from, "lantern_plan_config"));
  if (c.device_kind != LANTERN_DEVICE_CPU && c.device_kind != LANTERN_DEVICE_CUDA) {
    return refuse(
        fmt::format("device_kind is {}, but must be LANTERN_DEVICE_CPU (0) or LANTERN_DEVICE_CUDA (1)", c.device_kind));
  }
  constexpr uint32_t kKnown = LANTERN_PLAN_FLATTENED | LANTERN_PLAN_PER_REQUEST | LANTERN_PLAN_DRAFTS;
  if ((c.outputs & ~kKnown) != 0) {
    return refuse(fmt::format("outputs has bits {:#x}, which this library does not know", c.outputs & ~kKnown));
  }
  ReadConfig read{static_cast<lantern_device_kind>(c.device_kind), {}};
  StepPlanConfig& plan = read.plan;
  ASSIGN_OR_RETURN(plan.groups, read_groups(c));
  const CacheGroup& first = plan.groups[0];
  plan.limits = {.max_tokens = c.max_tokens,
                 .max_requests = c.max_requests,
                 .max_query_len = c.max_query_len,
                 .scratch_bytes = 0,
                 .max_blocks_per_request = first.max_blocks_per_request,
                 .block_size = first.block_size,
                 .num_blocks = first.num_blocks,
                 .index_topk = 0,
                 .max_model_len = c.max_model_len};
  plan.flattened = (c.outputs & LANTERN_PLAN_FLATTENED) != 0;
  plan.per_request = (c.outputs & LANTERN_PLAN_PER_REQUEST) != 0;
  plan.drafts = (c.outputs & LANTERN_PLAN_DRAFTS) != 0;
  plan.workers = c.workers;
  if (c.mla_parts != 0) plan.mla = MlaTiles{c.mla_parts, c.mla_fixed_overhead_blocks, c.mla_topk};
  if (c.dcp_world != 0) plan.dcp = ContextShard{c.dcp_world, c.dcp_rank, c.dcp_interleave};
  if (c.prefill_workspace_tokens != 0) {
    plan.prefill = PrefillBudget{c.prefill_workspace_tokens, c.prefill_logits_bytes};
  }
  RETURN_IF_ERROR(plan.check());
  return read;
}

Status buffer_bytes(const lantern_plan_config* config, size_t* bytes) {
  if (bytes == nullptr) return refuse("bytes is NULL");
  ASSIGN_OR_RETURN(const ReadConfig read, read_config(config));
  ASSIGN_OR_RETURN(const int64_t ints, StepPlanBuffers::ints_needed(read.plan));
  *bytes = static_cast<size_t>(ints) * sizeof(int32_t);
  return {};
}

Status create(const lantern_plan_config* config, void* buffer, size_t bytes, lantern_plan** plan) {
  if (plan == nullptr) return refuse("plan is NULL");
  *plan = nullptr;
  ASSIGN_OR_RETURN(const ReadConfig read, read_config(config));
  if (buffer == nullptr || reinterpret_cast<uintptr_t>(buffer) % 16 != 0) {
    return refuse(fmt::format("the buffer at {} must not be NULL and must be aligned to 16 bytes", buffer));
  }
  if (read.device_kind == LANTERN_DEVICE_CUDA) RETURN_IF_ERROR(plan::load_plan_kernels());
  auto made = std::make_unique<lantern_plan>();
  made->device_kind = read.device_kind;
  RETURN_IF_ERROR(made->buffers.create_in(
      borrow_fixed(static_cast<int32_t*>(buffer), static_cast<int64_t>(bytes / sizeof(int32_t))), read.plan));
  *plan = made.release();
  return {};
}

// By lantern_plan_output; those of a group follow kOutputs.
constexpr DevPtr<int32_t> StepPlanParams::* kOutputs[] = {&StepPlanParams::query_start,
                                                          &StepPlanParams::query_len,
                                                          &StepPlanParams::seq_len,
                                                          &StepPlanParams::counts,
                                                          &StepPlanParams::errors,
                                                          &StepPlanParams::token_request,
                                                          &StepPlanParams::token_context_len,
                                                          &StepPlanParams::local_context_len,
                                                          &StepPlanParams::decode_lens,
                                                          &StepPlanParams::per_request_context_lens,
                                                          &StepPlanParams::paged_mqa_sm90,
                                                          &StepPlanParams::paged_mqa_sm100,
                                                          &StepPlanParams::mla_tiles,
                                                          &StepPlanParams::mla_num_splits,
                                                          &StepPlanParams::prefill_chunks,
                                                          &StepPlanParams::draft_query_start_loc,
                                                          &StepPlanParams::draft_seq_lens,
                                                          &StepPlanParams::draft_positions,
                                                          &StepPlanParams::draft_token_indices};
constexpr DevPtr<int32_t> PlanGroupParams::* kGroupOutputs[] = {
    &PlanGroupParams::slot_mapping, &PlanGroupParams::compressed_context_len, &PlanGroupParams::compressed_slot_mapping,
    &PlanGroupParams::expanded_block_table, &PlanGroupParams::draft_slot_mapping};
static_assert(std::size(kOutputs) == LANTERN_PLAN_SLOT_MAPPING &&
              std::size(kOutputs) + std::size(kGroupOutputs) == LANTERN_PLAN_DRAFT_SLOT_MAPPING + 1);

Status get_output(const lantern_plan* plan, lantern_plan_output output, uint32_t group, lantern_plan_array* array) {
  if (plan == nullptr) return refuse("plan is NULL");
  ASSIGN_OR_RETURN(lantern_plan_array known, read_struct(array, "lantern_plan_array"));
  const StepPlanParams& params = plan->buffers.outputs();
  const auto index = static_cast<size_t>(output);
  const bool of_group = index >= std::size(kOutputs);
  if (index >= std::size(kOutputs) + std::size(kGroupOutputs)) {
    return refuse(fmt::format("{} is no lantern_plan_output that this library knows", index));
  }
  if (group >= (of_group ? static_cast<uint32_t>(params.num_groups) : 1u)) {
    return refuse(
        of_group ? fmt::format("the plan has {} cache groups, but group {} was asked for", params.num_groups, group)
                 : fmt::format("output {} is not of a cache group, but group {} was asked for", index, group));
  }
  const DevPtr<int32_t>& found =
      of_group ? params.groups[group].*kGroupOutputs[index - std::size(kOutputs)] : params.*kOutputs[index];
  known.data = found.get();
  known.size = static_cast<size_t>(found.size());
  std::memcpy(array, &known, sizeof(known));
  return {};
}

Result<DevPtr<const int32_t>> input(const int32_t* address, const char* name, int64_t count) {
  if (address == nullptr) return refuse(fmt::format("lantern_plan_inputs.{} is NULL", name));
  return DevPtr<const int32_t>(borrow_fixed(address, count));
}

Result<StepPlanParams> params_of(const lantern_plan* plan, const lantern_plan_inputs* given,
                                 const lantern_plan_bucket* shape) {
  if (plan == nullptr) return refuse("plan is NULL");
  ASSIGN_OR_RETURN(const lantern_plan_inputs in, read_struct(given, "lantern_plan_inputs"));
  ASSIGN_OR_RETURN(const lantern_plan_bucket bucket, read_struct(shape, "lantern_plan_bucket"));
  StepPlanParams p = plan->buffers.outputs();
  p.bucket = {bucket.tokens, bucket.requests, bucket.query_width};
  RETURN_IF_ERROR(check_bucket(p.bucket, plan->buffers.config().limits));
  const int64_t requests = bucket.requests;
  ASSIGN_OR_RETURN(p.num_requests, input(in.num_requests, "num_requests", 1));
  ASSIGN_OR_RETURN(p.num_tokens, input(in.num_tokens, "num_tokens", 1));
  ASSIGN_OR_RETURN(p.query_start_loc, input(in.query_start_loc, "query_start_loc", requests + 1));
  ASSIGN_OR_RETURN(p.seq_lens, input(in.seq_lens, "seq_lens", requests));
  ASSIGN_OR_RETURN(p.prefilling, input(in.prefilling, "prefilling", requests));
  if (plan->buffers.config().drafts) {
    ASSIGN_OR_RETURN(p.accepted, input(in.accepted, "accepted", requests));
  }
  if (in.block_tables == nullptr || in.num_block_tables != static_cast<uint32_t>(p.num_groups)) {
    return refuse(fmt::format("the plan has {} cache groups, but lantern_plan_inputs has {} block tables", p.num_groups,
                              in.block_tables == nullptr ? 0 : in.num_block_tables));
  }
  for (int32_t g = 0; g < p.num_groups; ++g) {
    ASSIGN_OR_RETURN(p.groups[g].block_table,
                     input(in.block_tables[g], "block_tables[]", requests * p.groups[g].group.block_table_stride));
  }
  return p;
}

Status run(const lantern_plan* plan, const lantern_plan_inputs* inputs, const lantern_plan_bucket* bucket,
           void* stream) {
  ASSIGN_OR_RETURN(const StepPlanParams params, params_of(plan, inputs, bucket));
  if (plan->device_kind == LANTERN_DEVICE_CUDA) return plan::launch_plan_kernels(stream, params);
  if (stream != nullptr) return refuse("a plan on the CPU has no stream, but one was given; pass NULL");
  plan::plan_step_on_host(params);
  return {};
}

const PlanFaultName& fault_name(int32_t code) { return plan_fault_name(static_cast<PlanFault>(code)); }

}  // namespace
}  // namespace lantern

uint32_t lantern_plan_abi_version() { return LANTERN_PLAN_ABI_VERSION; }

lantern_status lantern_plan_buffer_bytes(const lantern_plan_config* config, size_t* bytes) {
  return lantern::finish(lantern::buffer_bytes(config, bytes));
}

lantern_status lantern_plan_create(const lantern_plan_config* config, void* buffer, size_t buffer_bytes,
                                   lantern_plan** plan) {
  return lantern::finish(lantern::create(config, buffer, buffer_bytes, plan));
}

void lantern_plan_destroy(lantern_plan* plan) { delete plan; }

lantern_status lantern_plan_get_output(const lantern_plan* plan, lantern_plan_output output, uint32_t group,
                                       lantern_plan_array* array) {
  return lantern::finish(lantern::get_output(plan, output, group, array));
}

lantern_status lantern_plan_run(const lantern_plan* plan, const lantern_plan_inputs* inputs,
                                const lantern_plan_bucket* bucket, void* stream) {
  return lantern::finish(lantern::run(plan, inputs, bucket, stream));
}

const char* lantern_plan_last_error() { return lantern::answer().last_error(); }
const char* lantern_plan_fault_name(int32_t code) { return lantern::fault_name(code).name.data(); }
const char* lantern_plan_fault_message(int32_t code) { return lantern::fault_name(code).message.data(); }
