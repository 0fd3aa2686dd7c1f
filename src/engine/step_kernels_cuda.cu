#include "attention/plan/step_plan.h"
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"
#include "engine/cuda_step_kernels.h"
#include "engine/step_math.h"

namespace lantern {
namespace {

constexpr unsigned kThreads = 256;
// Of kernels whose work is not known on the host: their blocks share it out.
constexpr unsigned kBlocks = 64;

__device__ int32_t thread() { return static_cast<int32_t>(threadIdx.x); }
__device__ int32_t block() { return static_cast<int32_t>(blockIdx.x); }
__device__ int64_t grid_thread() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }
__device__ int64_t grid_threads() { return int64_t{gridDim.x} * kThreads; }

__global__ void begin_slots_kernel(SlotChangesParams p) {
  const UploadView view(p.upload.get());
  const UploadPart& part = view.header().slot_inits;
  const auto* inits = view.records<UploadSlotInit>(part);
  for (int32_t i = block(); i < part.count; i += kBlocks) {
    if (thread() == 0) step::begin_slot(p.slots, inits[i]);
    int32_t* table = p.slots.block_table.get() + int64_t{inits[i].slot} * p.slots.block_table_stride;
    for (int32_t b = thread(); b < p.slots.block_table_stride; b += kThreads) table[b] = kNullBlock;
  }
}

__global__ void set_table_entries_kernel(SlotChangesParams p) {
  const UploadView view(p.upload.get());
  const UploadPart& part = view.header().table_entries;
  const auto* entries = view.records<UploadTableEntry>(part);
  for (int64_t i = grid_thread(); i < part.count; i += grid_threads()) {
    p.slots.block_table[int64_t{entries[i].slot} * p.slots.block_table_stride + entries[i].index] = entries[i].block;
  }
}

__global__ void build_inputs_kernel(BuildInputsParams p) {
  const UploadView view(p.upload.get());
  const step::Upload upload(view);
  const UploadHeader& header = upload.header;
  const auto* prompt_tokens = view.records<int32_t>(header.prompt_tokens);
  if (grid_thread() == 0) {
    p.inputs.num_requests[0] = header.rows.count;
    p.inputs.num_tokens[0] = header.num_tokens;
    p.inputs.query_start_loc[header.rows.count] = header.num_tokens;
  }
  for (int64_t t = header.num_tokens + grid_thread(); t < p.tokens; t += grid_threads()) p.token_ids[t] = -1;
  for (int32_t r = block(); r < header.rows.count; r += kBlocks) {
    const UploadRow& row = upload.rows[r];
    const int32_t blocks = step::build_row(p, row, r);  // by all threads alike
    for (int32_t j = thread(); j < row.query_len; j += kThreads) {
      p.token_ids[row.query_start + j] = step::input_token(p.slots, header, row, prompt_tokens, j);
    }
    const int32_t* table = p.slots.block_table.get() + int64_t{row.slot} * p.slots.block_table_stride;
    int32_t* target = p.inputs.block_table.get() + int64_t{r} * p.inputs.block_table_stride;
    for (int32_t b = thread(); b < blocks; b += kThreads) target[b] = table[b];
  }
}

// One block.
__global__ void mask_unwritten_kernel(MaskUnwrittenParams p) {
  const step::Upload upload{UploadView(p.upload.get())};
  for (int32_t r = thread(); r < upload.header.rows.count; r += kThreads) {
    const UploadRow& row = upload.rows[r];
    for (int32_t j = 0; j < row.num_unwritten; ++j) p.slot_mapping[row.query_start + j] = -1;
  }
}

// Runs body(row, r, used) for every row, in chunks of a thread each, `used` being the sum of count(row) over the rows
// before; returns the sum of all. By one block.
template <class Count, class Body>
__device__ int32_t for_rows_in_order(const step::Upload& upload, const Count& count, const Body& body) {
  __shared__ int32_t shared[kThreads / cuda::kWarp];
  int32_t before = 0;
  for (int32_t begin = 0; begin < upload.header.rows.count; begin += kThreads) {
    const int32_t r = begin + thread();
    const bool exists = r < upload.header.rows.count;
    int32_t total = 0;
    const int32_t used = cuda::block_exclusive_sum(exists ? count(upload.rows[r]) : 0, shared, &total);
    if (exists) body(upload.rows[r], r, before + used);
    before += total;
  }
  return before;
}

// One block.
__global__ void prepare_samples_kernel(PrepareSamplesParams p) {
  const step::Upload upload{UploadView(p.upload.get())};
  const auto count = [](const UploadRow& row) { return step::sample_rows_of(row); };
  const int32_t used = for_rows_in_order(upload, count, [&](const UploadRow& row, int32_t r, int32_t first) {
    p.sample_start_loc[r] = first;
    p.request_slots[r] = row.slot;
    const int32_t rows = step::sample_rows_of(row);
    for (int32_t j = 0; j < rows; ++j) {
      p.token_rows[first + j] = row.query_start + row.query_len - rows + j;
      if (p.row_masks) p.row_masks[first + j] = row.mask;
    }
  });
  if (thread() == 0) {
    p.sample_start_loc[upload.header.rows.count] = used;
    p.num_rows[0] = used;
  }
  for (int32_t i = used + thread(); i < p.rows; i += kThreads) {
    p.token_rows[i] = -1;
    if (p.row_masks) p.row_masks[i] = -1;
  }
}

// One block.
__global__ void prepare_scores_kernel(PrepareScoresParams p) {
  const step::Upload upload{UploadView(p.upload.get())};
  const auto put = [&](int32_t i, int32_t token, int32_t slot, int32_t position, int32_t count) {
    p.token_rows[i] = token;
    p.row_slots[i] = slot;
    p.positions[i] = position;
    p.counts[i] = count;
  };
  const auto count = [](const UploadRow& row) { return row.num_scored; };
  const int32_t used = for_rows_in_order(upload, count, [&](const UploadRow& row, int32_t, int32_t first) {
    for (int32_t i = 0; i < row.num_scored; ++i) {
      const int32_t j = row.score_from + i;
      put(first + i, row.query_start + j, row.slot, p.slots.seq_len[row.slot] + j, row.prompt_logprobs);
    }
  });
  for (int32_t i = used + thread(); i < p.rows; i += kThreads) put(i, -1, -1, 0, -1);
}

// A block for each row of the step.
__global__ void trace_selections_kernel(TraceSelectionsParams p) {
  const step::Upload upload{UploadView(p.upload.get())};
  for (int32_t r = block(); r < upload.header.rows.count; r += kBlocks) {
    const UploadRow& row = upload.rows[r];
    for (int32_t j = 0; j < step::traced_rows_of(row); ++j) {
      for (int32_t i = thread(); i <= p.top_k; i += kThreads) step::trace_word(p, row, j, i);
    }
  }
}

// One block.
__global__ void advance_slots_kernel(AdvanceSlotsParams p) {
  const step::Upload upload{UploadView(p.upload.get())};
  if (thread() == 0) p.outcome.faults[0] = p.plan_counts[kNumErrors];
  for (int32_t r = thread(); r < upload.header.rows.count; r += kThreads) step::advance_row(p, upload.rows[r], r);
}

__global__ void prepare_mtp_kernel(PrepareMtpParams p) {
  const step::Upload upload{UploadView(p.upload.get())};
  for (int64_t t = upload.header.num_tokens + grid_thread(); t < p.tokens; t += grid_threads()) {
    step::set_padding(p.mtp, t);
  }
  for (int32_t r = block(); r < upload.header.rows.count; r += kBlocks) {
    const UploadRow& row = upload.rows[r];
    for (int32_t j = thread(); j < row.query_len; j += kThreads) step::prepare_mtp_token(p, row, r, j);
  }
  for (int64_t s = grid_thread(); s < p.num_sampling; s += grid_threads()) {
    p.draft_rows[s] = step::draft_row(p, upload, static_cast<int32_t>(s));
  }
}

// One block.
__global__ void advance_drafts_kernel(AdvanceDraftsParams p) {
  const step::Upload upload{UploadView(p.upload.get())};
  for (int32_t s = thread(); s < p.num_sampling; s += kThreads) step::advance_draft(p, upload, s);
}

void launch_slot_changes(void* stream, const SlotChangesParams& p) {
  launch_kernel(stream, "begin_slots", &begin_slots_kernel, kBlocks, kThreads, 0, p);
  launch_kernel(stream, "set_table_entries", &set_table_entries_kernel, kBlocks, kThreads, 0, p);
}
void launch_build_inputs(void* stream, const BuildInputsParams& p) {
  launch_kernel(stream, "build_step_inputs", &build_inputs_kernel, kBlocks, kThreads, 0, p);
}
void launch_mask_unwritten(void* stream, const MaskUnwrittenParams& p) {
  launch_kernel(stream, "mask_unwritten", &mask_unwritten_kernel, 1, kThreads, 0, p);
}
void launch_prepare_samples(void* stream, const PrepareSamplesParams& p) {
  launch_kernel(stream, "prepare_samples", &prepare_samples_kernel, 1, kThreads, 0, p);
}
void launch_prepare_scores(void* stream, const PrepareScoresParams& p) {
  launch_kernel(stream, "prepare_scores", &prepare_scores_kernel, 1, kThreads, 0, p);
}
void launch_trace_selections(void* stream, const TraceSelectionsParams& p) {
  launch_kernel(stream, "trace_selections", &trace_selections_kernel, kBlocks, kThreads, 0, p);
}
void launch_advance_slots(void* stream, const AdvanceSlotsParams& p) {
  launch_kernel(stream, "advance_slots", &advance_slots_kernel, 1, kThreads, 0, p);
}
void launch_prepare_mtp(void* stream, const PrepareMtpParams& p) {
  launch_kernel(stream, "prepare_mtp", &prepare_mtp_kernel, kBlocks, kThreads, 0, p);
}
void launch_advance_drafts(void* stream, const AdvanceDraftsParams& p) {
  launch_kernel(stream, "advance_drafts", &advance_drafts_kernel, 1, kThreads, 0, p);
}

}  // namespace

const CudaStepKernels* cuda_step_kernels() {
  static constexpr CudaStepKernels kKernels{.apply_slot_changes = &launch_slot_changes,
                                            .build_step_inputs = &launch_build_inputs,
                                            .mask_unwritten = &launch_mask_unwritten,
                                            .prepare_samples = &launch_prepare_samples,
                                            .prepare_scores = &launch_prepare_scores,
                                            .trace_selections = &launch_trace_selections,
                                            .advance_slots = &launch_advance_slots,
                                            .prepare_mtp = &launch_prepare_mtp,
                                            .advance_drafts = &launch_advance_drafts};
  return &kKernels;
}

}  // namespace lantern
