// What step_kernels.h does for one row of a step, as host and CUDA kernels share it: they add only who does which row.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "engine/step_kernels.h"
#include "engine/step_upload.h"

namespace lantern::step {

LANTERN_HOST_DEVICE inline int32_t lesser(int32_t a, int32_t b) { return a < b ? a : b; }

// The records of an upload.
struct Upload {
  const UploadHeader& header;
  const UploadRow* rows;
  const int32_t* sampling_rows;

  LANTERN_HOST_DEVICE explicit Upload(const UploadView& view)
      : header(view.header()),
        rows(view.records<UploadRow>(header.rows)),
        sampling_rows(view.records<int32_t>(header.sampling_rows)) {}
};

// Rows of logits that a row has.
LANTERN_HOST_DEVICE inline int32_t sample_rows_of(const UploadRow& row) {
  if (row.samples == 0) return 0;
  return row.prefilling != 0 ? 1 : row.query_len;
}

// Records that a row of the step keeps.
LANTERN_HOST_DEVICE inline int32_t traced_rows_of(const UploadRow& row) {
  return row.first_traced < 0 ? 0 : sample_rows_of(row);
}

// Word i of the record that row `row` keeps of the selection of its row of logits j.
LANTERN_HOST_DEVICE inline void trace_word(const TraceSelectionsParams& p, const UploadRow& row, int32_t j, int32_t i) {
  const int64_t token = row.query_start + row.query_len - sample_rows_of(row) + j;
  p.records[int64_t{row.first_traced + j} * (1 + p.top_k) + i] =
      i == 0 ? p.counts[token] : p.positions[token * p.top_k + i - 1];
}

// But for the block table.
LANTERN_HOST_DEVICE inline void begin_slot(const SlotArrays& slots, const UploadSlotInit& init) {
  slots.seq_len[init.slot] = init.seq_len;
  slots.max_len[init.slot] = init.max_len;
  slots.last_token[init.slot] = -1;
  slots.num_drafts[init.slot] = 0;
}

// Token j of a row. `prompt_tokens` are those of the step's prefills.
LANTERN_HOST_DEVICE inline int32_t input_token(const SlotArrays& slots, const UploadHeader& header,
                                               const UploadRow& row, const int32_t* prompt_tokens, int32_t j) {
  if (row.prefilling != 0) return prompt_tokens[row.query_start - header.num_decode_tokens + j];
  if (j == 0) return slots.last_token[row.slot];
  return j <= slots.num_drafts[row.slot] ? slots.drafts[int64_t{row.slot} * slots.max_drafts + j - 1] : -1;
}

// The plan's inputs of row r but for its block table, and how many of its blocks the step may reach.
LANTERN_HOST_DEVICE inline int32_t build_row(const BuildInputsParams& p, const UploadRow& row, int64_t r) {
  const int32_t seq_len = p.slots.seq_len[row.slot] + row.query_len;
  p.inputs.query_start_loc[r] = row.query_start;
  p.inputs.seq_lens[r] = seq_len;
  p.inputs.prefilling[r] = row.prefilling;
  return lesser((seq_len + p.slots.max_drafts) / p.block_size + 1, p.slots.block_table_stride);
}

LANTERN_HOST_DEVICE inline void advance_row(const AdvanceSlotsParams& p, const UploadRow& row, int64_t r) {
  const SlotArrays& slots = p.slots;
  const int32_t num_tokens = p.outcome.num_tokens[r];
  const int32_t seq_len = slots.seq_len[row.slot] + (row.prefilling != 0 ? row.query_len : num_tokens);
  slots.seq_len[row.slot] = seq_len;
  slots.num_drafts[row.slot] = 0;
  if (num_tokens > 0) slots.last_token[row.slot] = p.outcome.tokens[r * p.outcome.max_query_len + num_tokens - 1];
  // The token at the last position but one gives the last: none of the drafts need lie behind it.
  const int32_t useful = lesser(slots.max_len[row.slot] - 2 - seq_len, slots.max_drafts);
  const bool fine = row.samples != 0 && p.outcome.status[r] == static_cast<int32_t>(RowStatus::kOk);
  const int32_t wanted = fine ? lesser(row.next_drafts, useful) : 0;
  p.wanted_drafts[r] = wanted > 0 ? wanted : 0;
}

// The slot of a request's place, or -1: the null block, or nothing of the kind.
LANTERN_HOST_DEVICE inline int32_t slot_of_place(const StepInputs::Writable& inputs, int32_t request, int32_t place,
                                                 int32_t block_size) {
  const int32_t index = place / block_size;
  if (index >= inputs.block_table_stride) return -1;
  const int32_t block = inputs.block_table[int64_t{request} * inputs.block_table_stride + index];
  return block == kNullBlock ? -1 : block * block_size + place % block_size;
}

LANTERN_HOST_DEVICE inline void set_token(const MtpInputs& mtp, int64_t t, int32_t request, int32_t context_len,
                                          int32_t slot, int32_t next) {
  mtp.token_request[t] = request;
  mtp.token_context_len[t] = context_len;
  mtp.slot_mapping[t] = slot;
  mtp.next_token_ids[t] = next;
}
LANTERN_HOST_DEVICE inline void set_padding(const MtpInputs& mtp, int64_t t) { set_token(mtp, t, -1, 0, -1, -1); }

// Token j of row r as the MTP layer's first pass sees it.
LANTERN_HOST_DEVICE inline void prepare_mtp_token(const PrepareMtpParams& p, const UploadRow& row, int64_t r,
                                                  int32_t j) {
  const int32_t* tokens = p.outcome.tokens.get() + r * p.outcome.max_query_len;
  const int32_t accepted = row.prefilling != 0 ? row.query_len : p.outcome.num_tokens[r];
  const int32_t t = row.query_start + j;
  const int32_t request = p.token_request[t];
  if (j >= accepted || request < 0) return set_padding(p.mtp, t);
  int32_t next = row.next_token;
  if (row.prefilling == 0) {
    next = tokens[j];
  } else if (j + 1 < row.query_len) {
    next = p.token_ids[t + 1];
  } else if (next < 0) {
    next = tokens[0];
  }
  const int32_t place = p.token_context_len[t];
  const bool exists = place < p.slots.max_len[row.slot];
  set_token(p.mtp, t, request, place, exists ? slot_of_place(p.inputs, request, place, p.block_size) : -1, next);
}

// The last accepted token of sampling row s; -1: padding.
LANTERN_HOST_DEVICE inline int32_t draft_row(const PrepareMtpParams& p, const Upload& upload, int32_t s) {
  if (s >= upload.header.sampling_rows.count) return -1;
  const int32_t request = upload.sampling_rows[s];
  const UploadRow& row = upload.rows[request];
  return row.query_start + (row.prefilling != 0 ? row.query_len : p.outcome.num_tokens[request]) - 1;
}

LANTERN_HOST_DEVICE inline void advance_draft(const AdvanceDraftsParams& p, const Upload& upload, int32_t s) {
  if (s >= upload.header.sampling_rows.count) return set_padding(p.mtp, s);
  const SlotArrays& slots = p.slots;
  const int32_t request = upload.sampling_rows[s];
  const UploadRow& row = upload.rows[request];
  const int32_t wanted = p.wanted_drafts[request];
  if (p.pass <= wanted) {
    slots.drafts[int64_t{row.slot} * slots.max_drafts + p.pass - 1] = p.drafts[s];
    slots.num_drafts[row.slot] = p.pass;
  }
  if (p.pass >= wanted) return set_padding(p.mtp, s);
  const int32_t place = slots.seq_len[row.slot] + p.pass;
  set_token(p.mtp, s, request, place, slot_of_place(p.inputs, request, place, p.block_size), p.drafts[s]);
}

}  // namespace lantern::step
