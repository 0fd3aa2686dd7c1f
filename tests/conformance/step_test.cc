// The kernels around the model, in the order of a step, on a step of decodes and prefills with everything in it.
#include "attention/plan/step_plan.h"
#include "conformance/conformance.h"
#include "engine/step_kernels.h"
#include "engine/step_upload.h"

namespace lantern::conformance {
namespace {

constexpr int32_t kRequests = 300, kQueryLen = 4, kDrafts = 3, kTokens = 1500, kStride = 9, kBlockSize = 64;
constexpr int32_t kSlots = kRequests + 1;
constexpr int32_t kSampleRows = kRequests * kQueryLen;
constexpr int32_t kTopK = 301, kTracedRows = 200;

EngineSettings settings() {
  EngineSettings settings;
  settings.limits.max_tokens = kTokens;
  settings.limits.max_requests = kRequests;
  settings.limits.max_query_len = kQueryLen;
  settings.limits.block_size = kBlockSize;
  settings.limits.max_model_len = kStride * kBlockSize;
  settings.limits.max_blocks_per_request = kStride;
  settings.limits.num_blocks = 4000;
  return settings;
}

// 200 decodes of 1 to 4 tokens, 90 prefills of 1 to 7, some of which sample, score, are traced or do not write their
// first token.
StepBatch batch(Random& random) {
  StepBatch batch(settings());
  batch.query_start_loc.push_back(0);
  for (int32_t r = 0; r < 290; ++r) {
    StepRow row;
    row.slot = 298 - r;
    row.prefilling = r >= 200;
    row.query_len = 1 + static_cast<int32_t>(random() % (row.prefilling ? 7 : kQueryLen));
    row.samples = !row.prefilling || r % 3 == 0;
    row.next_drafts = static_cast<int32_t>(random() % (kDrafts + 1));
    if (row.prefilling) {
      row.num_unwritten = r % 4 == 0 ? 1 : 0;
      row.num_scored = r % 5 == 0 ? row.query_len - 1 : 0;
      row.score_from = r % 10 == 0 ? 1 : 0;
      row.prompt_logprobs = r % 5 == 0 ? 3 : -1;
      for (const int32_t token : integers(random, row.query_len, 0, 5000)) batch.prompt_tokens.push_back(token);
      batch.next_tokens.push_back(row.samples ? -1 : 4321);
    } else {
      ++batch.num_decodes;
      batch.num_decode_tokens += row.query_len;
    }
    if (row.samples && r % 4 != 1 && batch.num_traced + row.num_samples() <= kTracedRows) {
      row.first_traced = batch.num_traced;
      batch.num_traced += row.num_samples();
    }
    batch.num_tokens += row.query_len;
    batch.query_start_loc.push_back(batch.num_tokens);
    batch.rows.push_back(row);
    if (r % 17 == 0) batch.slot_inits.push_back({.slot = row.slot, .seq_len = r % 100, .max_len = 150});
    if (r % 3 == 0) batch.table_entries.push_back({.slot = row.slot, .index = r % kStride, .block = 1000 + r});
  }
  return batch;
}

std::vector<Output> step(Bench& bench) {
  Random random(41);
  const StepBatch step_batch = batch(random);
  StepUpload packed(settings());
  packed.pack(step_batch);
  const auto upload = bench.input(std::vector<int32_t>(packed.words().begin(), packed.words().end()));
  const auto lens = bench.put(integers(random, kSlots, 1, 500)), most = bench.put(integers(random, kSlots, 200, 520));
  const auto last = bench.put(integers(random, kSlots, 0, 5000));
  const auto count = bench.put(integers(random, kSlots, 0, kDrafts));
  const auto drafts = bench.put(integers(random, kSlots * kDrafts, 0, 5000));
  const auto tables = bench.put(integers(random, kSlots * kStride, 0, 900));
  const SlotArrays slots{.seq_len = lens,
                         .max_len = most,
                         .last_token = last,
                         .num_drafts = count,
                         .drafts = drafts,
                         .block_table = tables,
                         .max_drafts = kDrafts,
                         .block_table_stride = kStride};
  const auto num_requests = bench.room<int32_t>(1), num_tokens = bench.room<int32_t>(1);
  const auto starts = bench.room<int32_t>(kRequests + 1), seq_lens = bench.room<int32_t>(kRequests);
  const auto prefilling = bench.room<int32_t>(kRequests), table = bench.room<int32_t>(kRequests * kStride);
  StepInputs::Writable inputs;
  inputs.num_requests = num_requests;
  inputs.num_tokens = num_tokens;
  inputs.query_start_loc = starts;
  inputs.seq_lens = seq_lens;
  inputs.prefilling = prefilling;
  inputs.block_table = table;
  inputs.block_table_stride = kStride;
  const auto ids = bench.room<int32_t>(kTokens);
  apply_slot_changes(bench.stream, {.upload = upload, .slots = slots});
  build_step_inputs(bench.stream, {.upload = upload,
                                   .slots = slots,
                                   .inputs = inputs,
                                   .token_ids = ids,
                                   .tokens = kTokens,
                                   .block_size = kBlockSize});
  const auto slot_mapping = bench.put(integers(random, kTokens, 0, 100000));
  mask_unwritten(bench.stream, {.upload = upload, .slot_mapping = slot_mapping});
  const auto token_rows = bench.room<int32_t>(kSampleRows), sample_starts = bench.room<int32_t>(kRequests + 1);
  const auto request_slots = bench.room<int32_t>(kRequests), num_rows = bench.room<int32_t>(1);
  prepare_samples(bench.stream, {.upload = upload,
                                 .token_rows = token_rows,
                                 .sample_start_loc = sample_starts,
                                 .request_slots = request_slots,
                                 .num_rows = num_rows,
                                 .rows = kSampleRows});
  const auto scored_rows = bench.room<int32_t>(kTokens), scored_slots = bench.room<int32_t>(kTokens);
  const auto scored_positions = bench.room<int32_t>(kTokens), scored_counts = bench.room<int32_t>(kTokens);
  prepare_scores(bench.stream, {.upload = upload,
                                .slots = slots,
                                .token_rows = scored_rows,
                                .row_slots = scored_slots,
                                .positions = scored_positions,
                                .counts = scored_counts,
                                .rows = kTokens});
  const auto traced = bench.room<int32_t>(kTracedRows * (1 + kTopK));
  trace_selections(bench.stream, {.upload = upload,
                                  .positions = bench.input(integers(random, kTokens * kTopK, 0, 5000)),
                                  .counts = bench.input(integers(random, kTokens, 0, kTopK)),
                                  .top_k = kTopK,
                                  .records = traced});
  // What verification would have left: no more tokens than a row ran.
  std::vector<int32_t> accepted(kRequests, 0);
  for (size_t r = 0; r < step_batch.rows.size(); ++r) {
    const StepRow& row = step_batch.rows[r];
    if (row.samples)
      accepted[r] = row.prefilling ? 1 : 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(row.query_len));
  }
  std::vector<int32_t> status(kRequests, 0);
  for (size_t r = 0; r < status.size(); r += 13) status[r] = static_cast<int32_t>(RowStatus::kNotFinite);
  const auto faults = bench.room<int32_t>(1), wanted = bench.room<int32_t>(kRequests);
  StepOutcome outcome;
  outcome.tokens = bench.put(integers(random, kRequests * kQueryLen, 0, 5000));
  outcome.num_tokens = bench.put(accepted);
  outcome.status = bench.put(status);
  outcome.faults = faults;
  outcome.max_query_len = kQueryLen;
  advance_slots(bench.stream, {.upload = upload,
                               .slots = slots,
                               .plan_counts = bench.input(integers(random, kNumCounts, 0, 9)),
                               .outcome = outcome,
                               .wanted_drafts = wanted});
  const auto mtp_request = bench.room<int32_t>(kTokens), mtp_context = bench.room<int32_t>(kTokens);
  const auto mtp_slot = bench.room<int32_t>(kTokens), mtp_next = bench.room<int32_t>(kTokens);
  const MtpInputs mtp{.token_request = mtp_request,
                      .token_context_len = mtp_context,
                      .slot_mapping = mtp_slot,
                      .next_token_ids = mtp_next};
  std::vector<int32_t> token_request(kTokens, -1);
  for (size_t r = 0; r < step_batch.rows.size(); ++r) {
    for (int32_t t = step_batch.query_start_loc[r]; t < step_batch.query_start_loc[r + 1]; ++t) {
      token_request[static_cast<size_t>(t)] = static_cast<int32_t>(r);
    }
  }
  const auto draft_rows = bench.room<int32_t>(kRequests);
  prepare_mtp(bench.stream, {.upload = upload,
                             .slots = slots,
                             .inputs = inputs,
                             .token_ids = Fixed<const int32_t>(ids),
                             .token_request = bench.input(token_request),
                             .token_context_len = bench.input(integers(random, kTokens, 1, 520)),
                             .outcome = outcome,
                             .mtp = mtp,
                             .draft_rows = draft_rows,
                             .tokens = kTokens,
                             .num_sampling = kRequests,
                             .block_size = kBlockSize});
  const std::vector<Output> first_pass{{"mtp request", bench.get(mtp_request)},
                                       {"mtp context", bench.get(mtp_context)},
                                       {"mtp slot", bench.get(mtp_slot)},
                                       {"mtp next", bench.get(mtp_next)},
                                       {"draft rows", bench.get(draft_rows)}};
  for (int32_t pass = 1; pass <= kDrafts; ++pass) {
    advance_drafts(bench.stream, {.upload = upload,
                                  .slots = slots,
                                  .inputs = inputs,
                                  .wanted_drafts = Fixed<const int32_t>(wanted),
                                  .drafts = bench.input(integers(random, kRequests, 0, 5000)),
                                  .mtp = mtp,
                                  .num_sampling = kRequests,
                                  .pass = pass,
                                  .block_size = kBlockSize});
  }
  std::vector<Output> outputs{{"num_requests", bench.get(num_requests)},
                              {"num_tokens", bench.get(num_tokens)},
                              {"query_start_loc", bench.get(starts)},
                              {"seq_lens", bench.get(seq_lens)},
                              {"prefilling", bench.get(prefilling)},
                              {"block_table", bench.get(table)},
                              {"token_ids", bench.get(ids)},
                              {"slot_mapping", bench.get(slot_mapping)},
                              {"token_rows", bench.get(token_rows)},
                              {"sample_start_loc", bench.get(sample_starts)},
                              {"request_slots", bench.get(request_slots)},
                              {"num_rows", bench.get(num_rows)},
                              {"scored rows", bench.get(scored_rows)},
                              {"scored slots", bench.get(scored_slots)},
                              {"scored positions", bench.get(scored_positions)},
                              {"scored counts", bench.get(scored_counts)},
                              {"traced selections", bench.get(traced)},
                              {"faults", bench.get(faults)},
                              {"wanted drafts", bench.get(wanted)},
                              {"slots: seq_len", bench.get(lens)},
                              {"slots: max_len", bench.get(most)},
                              {"slots: last_token", bench.get(last)},
                              {"slots: num_drafts", bench.get(count)},
                              {"slots: drafts", bench.get(drafts)},
                              {"slots: block_table", bench.get(tables)},
                              {"last mtp request", bench.get(mtp_request)},
                              {"last mtp slot", bench.get(mtp_slot)}};
  outputs.insert(outputs.end(), first_pass.begin(), first_pass.end());
  return outputs;
}

TEST(StepConformance, EqualsTheHost) { check({.name = "step", .run = &step}); }

}  // namespace
}  // namespace lantern::conformance
