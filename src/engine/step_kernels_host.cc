#include <algorithm>
#include <functional>

#include "attention/plan/step_plan.h"
#include "engine/cuda_step_kernels.h"
#include "engine/step_kernels.h"
#include "engine/step_math.h"

namespace lantern {
namespace {

void slot_changes_kernel(const SlotChangesParams& p, HostContext&) {
  const UploadView view(p.upload.get());
  const SlotArrays& slots = p.slots;
  const auto* inits = view.records<UploadSlotInit>(view.header().slot_inits);
  for (int32_t i = 0; i < view.header().slot_inits.count; ++i) {
    step::begin_slot(slots, inits[i]);
    std::fill_n(slots.block_table.get() + int64_t{inits[i].slot} * slots.block_table_stride, slots.block_table_stride,
                kNullBlock);
  }
  const auto* entries = view.records<UploadTableEntry>(view.header().table_entries);
  for (int32_t i = 0; i < view.header().table_entries.count; ++i) {
    slots.block_table[int64_t{entries[i].slot} * slots.block_table_stride + entries[i].index] = entries[i].block;
  }
}

void build_inputs_kernel(const BuildInputsParams& p, HostContext& context) {
  const UploadView view(p.upload.get());
  const step::Upload upload(view);
  const UploadHeader& header = upload.header;
  const auto* prompt_tokens = view.records<int32_t>(header.prompt_tokens);
  p.inputs.num_requests[0] = header.rows.count;
  p.inputs.num_tokens[0] = header.num_tokens;
  p.inputs.query_start_loc[header.rows.count] = header.num_tokens;
  std::fill(p.token_ids.get() + header.num_tokens, p.token_ids.get() + p.tokens, -1);
  auto build = [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const UploadRow& row = upload.rows[r];
      const int32_t blocks = step::build_row(p, row, r);
      for (int32_t j = 0; j < row.query_len; ++j) {
        p.token_ids[row.query_start + j] = step::input_token(p.slots, header, row, prompt_tokens, j);
      }
      std::copy_n(p.slots.block_table.get() + int64_t{row.slot} * p.slots.block_table_stride, blocks,
                  p.inputs.block_table.get() + r * p.inputs.block_table_stride);
    }
  };
  context.threads.parallel_for(header.rows.count, 16, std::ref(build));
}

void mask_unwritten_kernel(const MaskUnwrittenParams& p, HostContext&) {
  const step::Upload upload{UploadView(p.upload.get())};
  for (int32_t r = 0; r < upload.header.rows.count; ++r) {
    std::fill_n(p.slot_mapping.get() + upload.rows[r].query_start, upload.rows[r].num_unwritten, -1);
  }
}

void prepare_samples_kernel(const PrepareSamplesParams& p, HostContext&) {
  const step::Upload upload{UploadView(p.upload.get())};
  int32_t used = 0;
  for (int32_t r = 0; r < upload.header.rows.count; ++r) {
    const UploadRow& row = upload.rows[r];
    p.sample_start_loc[r] = used;
    p.request_slots[r] = row.slot;
    const int32_t count = step::sample_rows_of(row);
    for (int32_t j = 0; j < count; ++j) {
      if (p.row_masks) p.row_masks[used] = row.mask;
      p.token_rows[used++] = row.query_start + row.query_len - count + j;
    }
  }
  p.sample_start_loc[upload.header.rows.count] = used;
  p.num_rows[0] = used;
  std::fill(p.token_rows.get() + used, p.token_rows.get() + p.rows, -1);
  if (p.row_masks) std::fill(p.row_masks.get() + used, p.row_masks.get() + p.rows, -1);
}

void prepare_scores_kernel(const PrepareScoresParams& p, HostContext&) {
  const step::Upload upload{UploadView(p.upload.get())};
  int32_t used = 0;
  const auto put = [&](int32_t token, int32_t slot, int32_t position, int32_t count) {
    p.token_rows[used] = token;
    p.row_slots[used] = slot;
    p.positions[used] = position;
    p.counts[used++] = count;
  };
  for (int32_t r = 0; r < upload.header.rows.count; ++r) {
    const UploadRow& row = upload.rows[r];
    for (int32_t j = row.score_from; j < row.score_from + row.num_scored; ++j) {
      put(row.query_start + j, row.slot, p.slots.seq_len[row.slot] + j, row.prompt_logprobs);
    }
  }
  while (used < p.rows) put(-1, -1, 0, -1);
}

void trace_selections_kernel(const TraceSelectionsParams& p, HostContext&) {
  const step::Upload upload{UploadView(p.upload.get())};
  for (int32_t r = 0; r < upload.header.rows.count; ++r) {
    const UploadRow& row = upload.rows[r];
    for (int32_t j = 0; j < step::traced_rows_of(row); ++j) {
      for (int32_t i = 0; i <= p.top_k; ++i) step::trace_word(p, row, j, i);
    }
  }
}

void advance_slots_kernel(const AdvanceSlotsParams& p, HostContext&) {
  const step::Upload upload{UploadView(p.upload.get())};
  p.outcome.faults[0] = p.plan_counts[kNumErrors];
  for (int32_t r = 0; r < upload.header.rows.count; ++r) step::advance_row(p, upload.rows[r], r);
}

void prepare_mtp_kernel(const PrepareMtpParams& p, HostContext& context) {
  const step::Upload upload{UploadView(p.upload.get())};
  for (int32_t t = upload.header.num_tokens; t < p.tokens; ++t) step::set_padding(p.mtp, t);
  auto prepare = [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const UploadRow& row = upload.rows[r];
      for (int32_t j = 0; j < row.query_len; ++j) step::prepare_mtp_token(p, row, r, j);
    }
  };
  context.threads.parallel_for(upload.header.rows.count, 16, std::ref(prepare));
  for (int32_t s = 0; s < p.num_sampling; ++s) p.draft_rows[s] = step::draft_row(p, upload, s);
}

void advance_drafts_kernel(const AdvanceDraftsParams& p, HostContext&) {
  const step::Upload upload{UploadView(p.upload.get())};
  for (int32_t s = 0; s < p.num_sampling; ++s) step::advance_draft(p, upload, s);
}

}  // namespace

void apply_slot_changes(Stream& stream, const SlotChangesParams& params) {
  launch_on_device(stream, "apply_slot_changes", &slot_changes_kernel, cuda_step_kernels(),
                   &CudaStepKernels::apply_slot_changes, params);
}
void build_step_inputs(Stream& stream, const BuildInputsParams& params) {
  launch_on_device(stream, "build_step_inputs", &build_inputs_kernel, cuda_step_kernels(),
                   &CudaStepKernels::build_step_inputs, params);
}
void mask_unwritten(Stream& stream, const MaskUnwrittenParams& params) {
  launch_on_device(stream, "mask_unwritten", &mask_unwritten_kernel, cuda_step_kernels(),
                   &CudaStepKernels::mask_unwritten, params);
}
void prepare_samples(Stream& stream, const PrepareSamplesParams& params) {
  launch_on_device(stream, "prepare_samples", &prepare_samples_kernel, cuda_step_kernels(),
                   &CudaStepKernels::prepare_samples, params);
}
void prepare_scores(Stream& stream, const PrepareScoresParams& params) {
  launch_on_device(stream, "prepare_scores", &prepare_scores_kernel, cuda_step_kernels(),
                   &CudaStepKernels::prepare_scores, params);
}
void trace_selections(Stream& stream, const TraceSelectionsParams& params) {
  launch_on_device(stream, "trace_selections", &trace_selections_kernel, cuda_step_kernels(),
                   &CudaStepKernels::trace_selections, params);
}
void advance_slots(Stream& stream, const AdvanceSlotsParams& params) {
  launch_on_device(stream, "advance_slots", &advance_slots_kernel, cuda_step_kernels(), &CudaStepKernels::advance_slots,
                   params);
}
void prepare_mtp(Stream& stream, const PrepareMtpParams& params) {
  launch_on_device(stream, "prepare_mtp", &prepare_mtp_kernel, cuda_step_kernels(), &CudaStepKernels::prepare_mtp,
                   params);
}
void advance_drafts(Stream& stream, const AdvanceDraftsParams& params) {
  launch_on_device(stream, "advance_drafts", &advance_drafts_kernel, cuda_step_kernels(),
                   &CudaStepKernels::advance_drafts, params);
}

}  // namespace lantern
