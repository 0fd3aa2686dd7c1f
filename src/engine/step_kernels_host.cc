#include <algorithm>
#include <functional>

#include "attention/plan/step_plan.h"
#include "engine/step_kernels.h"
#include "engine/step_upload.h"

namespace lantern {
namespace {

// The slot of a request's place, or -1: the null block, or nothing of the kind.
int32_t slot_of_place(const StepInputs::Writable& inputs, int32_t request, int32_t place, int32_t block_size) {
  const int32_t index = place / block_size;
  if (index >= inputs.block_table_stride) return -1;
  const int32_t block = inputs.block_table[int64_t{request} * inputs.block_table_stride + index];
  return block == kNullBlock ? -1 : block * block_size + place % block_size;
}

void set_token(const MtpInputs& mtp, int64_t t, int32_t request, int32_t context_len, int32_t slot, int32_t next) {
  mtp.token_request[t] = request;
  mtp.token_context_len[t] = context_len;
  mtp.slot_mapping[t] = slot;
  mtp.next_token_ids[t] = next;
}
void set_padding(const MtpInputs& mtp, int64_t t) { set_token(mtp, t, -1, 0, -1, -1); }

void slot_changes_kernel(const SlotChangesParams& p, HostContext&) {
  const UploadView upload(p.upload.get());
  const UploadHeader& header = upload.header();
  const SlotArrays& slots = p.slots;
  const auto* inits = upload.records<UploadSlotInit>(header.slot_inits);
  for (int32_t i = 0; i < header.slot_inits.count; ++i) {
    const UploadSlotInit& init = inits[i];
    slots.seq_len[init.slot] = init.seq_len;
    slots.max_len[init.slot] = init.max_len;
    slots.last_token[init.slot] = -1;
    slots.num_drafts[init.slot] = 0;
    std::fill_n(slots.block_table.get() + int64_t{init.slot} * slots.block_table_stride, slots.block_table_stride,
                kNullBlock);
  }
  const auto* entries = upload.records<UploadTableEntry>(header.table_entries);
  for (int32_t i = 0; i < header.table_entries.count; ++i) {
    slots.block_table[int64_t{entries[i].slot} * slots.block_table_stride + entries[i].index] = entries[i].block;
  }
}

void build_inputs_kernel(const BuildInputsParams& p, HostContext& context) {
  const UploadView upload(p.upload.get());
  const UploadHeader& header = upload.header();
  const SlotArrays& slots = p.slots;
  const int32_t rows = header.rows.count;
  const auto* row_records = upload.records<UploadRow>(header.rows);
  const auto* prompt_tokens = upload.records<int32_t>(header.prompt_tokens);
  p.inputs.num_requests[0] = rows;
  p.inputs.num_tokens[0] = header.num_tokens;
  p.inputs.query_start_loc[rows] = header.num_tokens;
  std::fill(p.token_ids.get() + header.num_tokens, p.token_ids.get() + p.tokens, -1);
  auto build = [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const UploadRow& row = row_records[r];
      const int32_t seq_len = slots.seq_len[row.slot] + row.query_len;
      p.inputs.query_start_loc[r] = row.query_start;
      p.inputs.seq_lens[r] = seq_len;
      p.inputs.prefilling[r] = row.prefilling;
      int32_t* ids = p.token_ids.get() + row.query_start;
      if (row.prefilling != 0) {
        std::copy_n(prompt_tokens + (row.query_start - header.num_decode_tokens), row.query_len, ids);
      } else {
        const int32_t* drafts = slots.drafts.get() + int64_t{row.slot} * slots.max_drafts;
        const int32_t known = std::min(row.query_len - 1, slots.num_drafts[row.slot]);
        ids[0] = slots.last_token[row.slot];
        std::copy_n(drafts, known, ids + 1);
        std::fill(ids + 1 + known, ids + row.query_len, -1);
      }
      const int32_t blocks = std::min((seq_len + slots.max_drafts) / p.block_size + 1, slots.block_table_stride);
      std::copy_n(slots.block_table.get() + int64_t{row.slot} * slots.block_table_stride, blocks,
                  p.inputs.block_table.get() + r * p.inputs.block_table_stride);
    }
  };
  context.threads.parallel_for(rows, 16, std::ref(build));
}

void mask_unwritten_kernel(const MaskUnwrittenParams& p, HostContext&) {
  const UploadView upload(p.upload.get());
  const UploadHeader& header = upload.header();
  const auto* rows = upload.records<UploadRow>(header.rows);
  for (int32_t r = 0; r < header.rows.count; ++r) {
    std::fill_n(p.slot_mapping.get() + rows[r].query_start, rows[r].num_unwritten, -1);
  }
}

void prepare_samples_kernel(const PrepareSamplesParams& p, HostContext&) {
  const UploadView upload(p.upload.get());
  const UploadHeader& header = upload.header();
  const auto* rows = upload.records<UploadRow>(header.rows);
  int32_t used = 0;
  for (int32_t r = 0; r < header.rows.count; ++r) {
    const UploadRow& row = rows[r];
    p.sample_start_loc[r] = used;
    p.request_slots[r] = row.slot;
    if (row.samples == 0) continue;
    const int32_t count = row.prefilling != 0 ? 1 : row.query_len;
    const int32_t first_token = row.query_start + row.query_len - count;
    for (int32_t j = 0; j < count; ++j) {
      if (p.row_masks) p.row_masks[used] = row.mask;
      p.token_rows[used++] = first_token + j;
    }
  }
  p.sample_start_loc[header.rows.count] = used;
  p.num_rows[0] = used;
  std::fill(p.token_rows.get() + used, p.token_rows.get() + p.rows, -1);
  if (p.row_masks) std::fill(p.row_masks.get() + used, p.row_masks.get() + p.rows, -1);
}

void prepare_scores_kernel(const PrepareScoresParams& p, HostContext&) {
  const UploadView upload(p.upload.get());
  const UploadHeader& header = upload.header();
  const auto* rows = upload.records<UploadRow>(header.rows);
  int32_t used = 0;
  const auto put = [&](int32_t token, int32_t slot, int32_t position, int32_t count) {
    p.token_rows[used] = token;
    p.row_slots[used] = slot;
    p.positions[used] = position;
    p.counts[used++] = count;
  };
  for (int32_t r = 0; r < header.rows.count; ++r) {
    const UploadRow& row = rows[r];
    for (int32_t j = row.score_from; j < row.score_from + row.num_scored; ++j) {
      put(row.query_start + j, row.slot, p.slots.seq_len[row.slot] + j, row.prompt_logprobs);
    }
  }
  while (used < p.rows) put(-1, -1, 0, -1);
}

void advance_slots_kernel(const AdvanceSlotsParams& p, HostContext&) {
  const UploadView upload(p.upload.get());
  const UploadHeader& header = upload.header();
  const SlotArrays& slots = p.slots;
  const auto* rows = upload.records<UploadRow>(header.rows);
  p.outcome.faults[0] = p.plan_counts[kNumErrors];
  for (int32_t r = 0; r < header.rows.count; ++r) {
    const UploadRow& row = rows[r];
    const int32_t num_tokens = p.outcome.num_tokens[r];
    const int32_t seq_len = slots.seq_len[row.slot] + (row.prefilling != 0 ? row.query_len : num_tokens);
    slots.seq_len[row.slot] = seq_len;
    slots.num_drafts[row.slot] = 0;
    if (num_tokens > 0) {
      slots.last_token[row.slot] = p.outcome.tokens[int64_t{r} * p.outcome.max_query_len + num_tokens - 1];
    }
    // The token at the last position but one gives the last: none of the drafts need lie behind it.
    const int32_t useful = slots.max_len[row.slot] - 2 - seq_len;
    const bool fine = row.samples != 0 && p.outcome.status[r] == static_cast<int32_t>(RowStatus::kOk);
    p.wanted_drafts[r] = fine ? std::max(std::min({row.next_drafts, useful, slots.max_drafts}), 0) : 0;
  }
}

void prepare_mtp_kernel(const PrepareMtpParams& p, HostContext& context) {
  const UploadView upload(p.upload.get());
  const UploadHeader& header = upload.header();
  const auto* rows = upload.records<UploadRow>(header.rows);
  const auto* sampling = upload.records<int32_t>(header.sampling_rows);
  for (int32_t t = header.num_tokens; t < p.tokens; ++t) set_padding(p.mtp, t);
  auto prepare = [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const UploadRow& row = rows[r];
      const int32_t* tokens = p.outcome.tokens.get() + r * p.outcome.max_query_len;
      const int32_t max_len = p.slots.max_len[row.slot];
      const int32_t accepted = row.prefilling != 0 ? row.query_len : p.outcome.num_tokens[r];
      for (int32_t j = 0; j < row.query_len; ++j) {
        const int32_t t = row.query_start + j;
        const int32_t request = p.token_request[t];
        if (j >= accepted || request < 0) {
          set_padding(p.mtp, t);
          continue;
        }
        int32_t next = row.next_token;
        if (row.prefilling == 0) {
          next = tokens[j];
        } else if (j + 1 < row.query_len) {
          next = p.token_ids[t + 1];
        } else if (next < 0) {
          next = tokens[0];
        }
        const int32_t place = p.token_context_len[t];
        const int32_t slot = place < max_len ? slot_of_place(p.inputs, request, place, p.block_size) : -1;
        set_token(p.mtp, t, request, place, slot, next);
      }
    }
  };
  context.threads.parallel_for(header.rows.count, 16, std::ref(prepare));
  for (int32_t s = 0; s < p.num_sampling; ++s) {
    p.draft_rows[s] = -1;
    if (s >= header.sampling_rows.count) continue;
    const UploadRow& row = rows[sampling[s]];
    p.draft_rows[s] = row.query_start + (row.prefilling != 0 ? row.query_len : p.outcome.num_tokens[sampling[s]]) - 1;
  }
}

void advance_drafts_kernel(const AdvanceDraftsParams& p, HostContext&) {
  const UploadView upload(p.upload.get());
  const UploadHeader& header = upload.header();
  const SlotArrays& slots = p.slots;
  const auto* rows = upload.records<UploadRow>(header.rows);
  const auto* sampling = upload.records<int32_t>(header.sampling_rows);
  for (int32_t s = 0; s < p.num_sampling; ++s) {
    if (s >= header.sampling_rows.count) {
      set_padding(p.mtp, s);
      continue;
    }
    const int32_t request = sampling[s];
    const UploadRow& row = rows[request];
    const int32_t wanted = p.wanted_drafts[request];
    if (p.pass <= wanted) {
      slots.drafts[int64_t{row.slot} * slots.max_drafts + p.pass - 1] = p.drafts[s];
      slots.num_drafts[row.slot] = p.pass;
    }
    if (p.pass >= wanted) {
      set_padding(p.mtp, s);
      continue;
    }
    const int32_t place = slots.seq_len[row.slot] + p.pass;
    set_token(p.mtp, s, request, place, slot_of_place(p.inputs, request, place, p.block_size), p.drafts[s]);
  }
}

}  // namespace

void apply_slot_changes(Stream& stream, const SlotChangesParams& params) {
  stream.launch("apply_slot_changes", &slot_changes_kernel, params);
}
void build_step_inputs(Stream& stream, const BuildInputsParams& params) {
  stream.launch("build_step_inputs", &build_inputs_kernel, params);
}
void mask_unwritten(Stream& stream, const MaskUnwrittenParams& params) {
  stream.launch("mask_unwritten", &mask_unwritten_kernel, params);
}
void prepare_samples(Stream& stream, const PrepareSamplesParams& params) {
  stream.launch("prepare_samples", &prepare_samples_kernel, params);
}
void prepare_scores(Stream& stream, const PrepareScoresParams& params) {
  stream.launch("prepare_scores", &prepare_scores_kernel, params);
}
void advance_slots(Stream& stream, const AdvanceSlotsParams& params) {
  stream.launch("advance_slots", &advance_slots_kernel, params);
}
void prepare_mtp(Stream& stream, const PrepareMtpParams& params) {
  stream.launch("prepare_mtp", &prepare_mtp_kernel, params);
}
void advance_drafts(Stream& stream, const AdvanceDraftsParams& params) {
  stream.launch("advance_drafts", &advance_drafts_kernel, params);
}

}  // namespace lantern
