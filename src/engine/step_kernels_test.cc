#include "engine/step_kernels.h"

#include <gtest/gtest.h>

#include "attention/plan/step_plan.h"
#include "engine/step_upload.h"

namespace lantern {
namespace {

constexpr int32_t kSlots = 4;
constexpr int32_t kQueryLen = 4;
constexpr int32_t kDrafts = kQueryLen - 1;

EngineSettings settings() {
  EngineSettings settings;
  settings.limits.max_tokens = 32;
  settings.limits.max_requests = kSlots;
  settings.limits.max_query_len = kQueryLen;
  settings.limits.block_size = 4;
  settings.limits.max_model_len = 32;
  settings.limits.max_blocks_per_request = 8;
  settings.limits.num_blocks = 40;
  return settings;
}

template <class T>
Fixed<T> fixed(std::vector<T>& values) {
  return borrow_fixed(values.data(), static_cast<int64_t>(values.size()));
}
template <class T>
Fixed<const T> fixed_const(const std::vector<T>& values) {
  return borrow_fixed(values.data(), static_cast<int64_t>(values.size()));
}

// Four slots, a step, and what verification reads and writes.
struct Step {
  Step() : batch(settings()), upload(settings()) {
    EXPECT_TRUE(slots.create(*device, settings().limits).ok());
    StepPlanConfig config;
    config.limits = settings().limits;
    config.groups = {StepPlanConfig::group_of(config.limits)};
    EXPECT_TRUE(inputs.create(*device, config).ok());
    outcome = {.tokens = fixed(tokens),
               .num_tokens = fixed(num_tokens),
               .status = fixed(status),
               .faults = fixed(faults),
               .max_query_len = kQueryLen};
    mtp = {.token_request = fixed(mtp_request),
           .token_context_len = fixed(mtp_context_len),
           .slot_mapping = fixed(mtp_slot),
           .next_token_ids = fixed(mtp_next)};
    batch.query_start_loc.push_back(0);
  }

  const SlotArrays& s() const { return slots.arrays(); }
  void set_slot(int32_t slot, int32_t seq_len, int32_t last_token, std::vector<int32_t> drafts, int32_t max_len = 30) {
    s().seq_len[slot] = seq_len;
    s().max_len[slot] = max_len;
    s().last_token[slot] = last_token;
    s().num_drafts[slot] = static_cast<int32_t>(drafts.size());
    std::ranges::copy(drafts, s().drafts.get() + slot * kDrafts);
    for (int32_t i = 0; i < 8; ++i) s().block_table[slot * 8 + i] = 1 + slot * 8 + i;
  }
  void add_decode(int32_t slot, int32_t query_len, int32_t next_drafts = 0) {
    batch.rows.push_back({.slot = slot, .samples = true, .query_len = query_len, .next_drafts = next_drafts});
    ++batch.num_decodes;
    batch.num_decode_tokens += query_len;
    add_tokens(query_len);
  }
  void add_prefill(int32_t slot, const std::vector<int32_t>& prompt, int32_t next_token, int32_t unwritten = 0) {
    const auto query_len = static_cast<int32_t>(prompt.size());
    batch.rows.push_back({.slot = slot,
                          .prefilling = true,
                          .samples = next_token < 0,
                          .query_len = query_len,
                          .num_unwritten = unwritten});
    batch.prompt_tokens.insert(batch.prompt_tokens.end(), prompt.begin(), prompt.end());
    batch.next_tokens.push_back(next_token);
    add_tokens(query_len);
  }
  void add_tokens(int32_t count) {
    batch.num_tokens += count;
    batch.query_start_loc.push_back(batch.num_tokens);
  }

  DevPtr<const int32_t> sent() {
    upload.pack(batch);
    return borrow_fixed(upload.words().data(), static_cast<int64_t>(upload.words().size()));
  }
  void build() {
    build_step_inputs(stream, {.upload = sent(),
                               .slots = s(),
                               .inputs = inputs.writable(0),
                               .token_ids = fixed(token_ids),
                               .tokens = 32,
                               .block_size = 4});
  }
  // Row r of the step came to these tokens.
  void advance(const std::vector<std::vector<int32_t>>& rows) {
    for (size_t r = 0; r < rows.size(); ++r) {
      num_tokens[r] = static_cast<int32_t>(rows[r].size());
      std::ranges::copy(rows[r], tokens.begin() + static_cast<std::ptrdiff_t>(r) * kQueryLen);
    }
    advance_slots(stream, {.upload = sent(),
                           .slots = s(),
                           .plan_counts = fixed_const(counts),
                           .outcome = outcome,
                           .wanted_drafts = fixed(wanted)});
  }

  std::unique_ptr<Device> device = make_host_device(2);
  Stream stream{*device};
  StepBatch batch;
  StepUpload upload;
  SlotState slots;
  StepInputs inputs;
  std::vector<int32_t> token_ids = std::vector<int32_t>(32, 77);
  std::vector<int32_t> counts = std::vector<int32_t>(kNumCounts);
  std::vector<int32_t> tokens = std::vector<int32_t>(kSlots * kQueryLen, 77);
  std::vector<int32_t> num_tokens = std::vector<int32_t>(kSlots, 77);
  std::vector<int32_t> status = std::vector<int32_t>(kSlots, static_cast<int32_t>(RowStatus::kOk));
  std::vector<int32_t> wanted = std::vector<int32_t>(kSlots, 77);
  std::vector<int32_t> faults = {77};
  std::vector<int32_t> mtp_request = std::vector<int32_t>(32, 77), mtp_context_len = mtp_request,
                       mtp_slot = mtp_request, mtp_next = mtp_request;
  StepOutcome outcome;
  MtpInputs mtp;
};

TEST(StepKernels, InputsComeFromSlotsAndPrompts) {
  Step step;
  step.set_slot(2, 9, 40, {41, 42, 43});
  step.set_slot(0, 3, 50, {51});
  step.set_slot(3, 4, -1, {});
  step.add_decode(2, 3);  // one draft fewer than there is
  step.add_decode(0, 4);  // two more than there are
  step.add_prefill(3, {60, 61, 62}, 63);
  step.build();
  EXPECT_EQ(std::vector<int32_t>(step.token_ids.begin(), step.token_ids.begin() + 11),
            (std::vector<int32_t>{40, 41, 42, 50, 51, -1, -1, 60, 61, 62, -1}));
  const StepInputs::Writable w = step.inputs.writable(0);
  EXPECT_EQ(w.num_requests[0], 3);
  EXPECT_EQ(w.num_tokens[0], 10);
  EXPECT_EQ(std::vector<int32_t>(w.query_start_loc.get(), w.query_start_loc.get() + 4),
            (std::vector<int32_t>{0, 3, 7, 10}));
  EXPECT_EQ(std::vector<int32_t>(w.seq_lens.get(), w.seq_lens.get() + 3), (std::vector<int32_t>{12, 7, 7}));
  EXPECT_EQ(std::vector<int32_t>(w.prefilling.get(), w.prefilling.get() + 3), (std::vector<int32_t>{0, 0, 1}));
  // Through the drafts behind the step: positions up to 7 + 3.
  EXPECT_EQ(std::vector<int32_t>(w.block_table.get() + 8, w.block_table.get() + 11), (std::vector<int32_t>{1, 2, 3}));
}

TEST(StepKernels, UnwrittenTokensLoseTheirSlots) {
  Step step;
  step.add_decode(1, 2);
  step.add_prefill(0, {5, 6}, -1, 1);
  step.add_prefill(2, {7, 8}, -1);
  std::vector<int32_t> slots{10, 11, 12, 13, 14, 15};
  mask_unwritten(step.stream, {.upload = step.sent(), .slot_mapping = fixed(slots)});
  EXPECT_EQ(slots, (std::vector<int32_t>{10, 11, -1, 13, 14, 15}));
}

TEST(StepKernels, LogitsAreThoseOfDecodesAndOfPromptsThatEnd) {
  Step step;
  step.add_decode(1, 3);
  step.add_decode(0, 1);
  step.add_prefill(2, {5, 6}, 7);
  step.add_prefill(3, {8, 9, 10}, -1);
  std::vector<int32_t> token_rows(7, 77), start_loc(6, 77), slots(5, 77), num_rows(2, 77);
  prepare_samples(step.stream, {.upload = step.sent(),
                                .token_rows = fixed(token_rows),
                                .sample_start_loc = fixed(start_loc),
                                .request_slots = fixed(slots),
                                .num_rows = fixed(num_rows),
                                .rows = 6});
  EXPECT_EQ(token_rows, (std::vector<int32_t>{0, 1, 2, 3, 8, -1, 77}));
  EXPECT_EQ(start_loc, (std::vector<int32_t>{0, 3, 4, 4, 5, 77}));
  EXPECT_EQ(slots, (std::vector<int32_t>{1, 0, 2, 3, 77}));
  EXPECT_EQ(num_rows, (std::vector<int32_t>{5, 77}));
}

// Of decodes every token's, of a prompt that ends its last one's, in the records that rows name and no others.
TEST(StepKernels, SelectionsOfTracedRowsAreKept) {
  Step step;
  step.add_decode(1, 3);
  step.add_decode(0, 2);
  step.add_prefill(2, {5, 6}, 7);
  step.add_prefill(3, {8, 9, 10}, -1);
  step.batch.rows[1].first_traced = 1;
  step.batch.rows[2].first_traced = 0;  // it has no row of logits
  step.batch.rows[3].first_traced = 0;
  constexpr int32_t kTopK = 2;
  std::vector<int32_t> positions, counts, records(4 * (1 + kTopK), 77);
  for (int32_t t = 0; t < 10; ++t) {
    positions.insert(positions.end(), {100 + t, 200 + t});
    counts.push_back(t);
  }
  trace_selections(step.stream, {.upload = step.sent(),
                                 .positions = fixed_const(positions),
                                 .counts = fixed_const(counts),
                                 .top_k = kTopK,
                                 .records = fixed(records)});
  EXPECT_EQ(records, (std::vector<int32_t>{9, 109, 209, 3, 103, 203, 4, 104, 204, 77, 77, 77}));
}

TEST(StepKernels, SlotsMoveOnByWhatWasAccepted) {
  Step step;
  step.set_slot(0, 10, 1, {21, 22, 23});
  step.set_slot(1, 11, 1, {31, 32, 33});
  step.set_slot(2, 12, 5, {41});
  step.set_slot(3, 13, -1, {});
  step.counts[kNumErrors] = 3;
  step.add_decode(0, 4, 2);
  step.add_decode(1, 4, 3);
  step.add_decode(2, 2, 3);
  step.add_prefill(3, {9, 9}, 8);
  step.status[2] = static_cast<int32_t>(RowStatus::kNotFinite);
  step.advance({{21, 22, 23, 24}, {31, 99}, {}, {}});
  const int32_t lengths[] = {14, 13, 12, 15}, last[] = {24, 99, 5, -1};
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    EXPECT_EQ(step.s().seq_len[slot], lengths[slot]) << slot;
    EXPECT_EQ(step.s().last_token[slot], last[slot]) << slot;
    EXPECT_EQ(step.s().num_drafts[slot], 0) << slot;
  }
  EXPECT_EQ(step.faults[0], 3);
  EXPECT_EQ(step.wanted, (std::vector<int32_t>{2, 3, 0, 0}));
}

TEST(StepKernels, MtpEntriesLieWithTheTokenBehind) {
  Step step;
  step.set_slot(0, 6, 1, {21, 22, 23});
  step.set_slot(1, 4, -1, {});
  step.set_slot(2, 2, -1, {});
  step.add_decode(0, 4);
  step.add_prefill(1, {31, 32}, 33);
  step.add_prefill(2, {41, 42}, -1);
  step.s().block_table[1 * 8 + 1] = 30;
  step.s().block_table[2 * 8 + 1] = kNullBlock;
  step.build();
  step.advance({{21, 50}, {}, {43}});
  const std::vector<int32_t> request{0, 0, 0, 0, 1, 1, 2, 2}, context_len{7, 8, 9, 10, 5, 6, 3, 4};
  std::vector<int32_t> draft_rows(3, 77);
  prepare_mtp(step.stream, {.upload = step.sent(),
                            .slots = step.s(),
                            .inputs = step.inputs.writable(0),
                            .token_ids = fixed_const(step.token_ids),
                            .token_request = fixed_const(request),
                            .token_context_len = fixed_const(context_len),
                            .outcome = step.outcome,
                            .mtp = step.mtp,
                            .draft_rows = fixed(draft_rows),
                            .tokens = 9,
                            .num_sampling = 3,
                            .block_size = 4});
  const auto first = [](const std::vector<int32_t>& values) {
    return std::vector<int32_t>(values.begin(), values.begin() + 10);
  };
  // Rejected drafts and the ninth token are padding; what lies behind is not touched.
  EXPECT_EQ(first(step.mtp_request), (std::vector<int32_t>{0, 0, -1, -1, 1, 1, 2, 2, -1, 77}));
  EXPECT_EQ(first(step.mtp_context_len), (std::vector<int32_t>{7, 8, 0, 0, 5, 6, 3, 4, 0, 77}));
  EXPECT_EQ(first(step.mtp_next), (std::vector<int32_t>{21, 50, -1, -1, 32, 33, 42, 43, -1, 77}));
  // Slot 0 has blocks 1, 2, 3, ...; slot 1 has block 30 for positions 4 to 7; slot 2 has none for position 4.
  EXPECT_EQ(first(step.mtp_slot),
            (std::vector<int32_t>{2 * 4 + 3, 3 * 4 + 0, -1, -1, 30 * 4 + 1, 30 * 4 + 2, 17 * 4 + 3, -1, -1, 77}));
  EXPECT_EQ(draft_rows, (std::vector<int32_t>{1, 7, -1}));
}

TEST(StepKernels, DraftsEndWhereTheyAreNotWantedOrOfNoUse) {
  Step step;
  step.set_slot(0, 10, 1, {}, 30);
  step.set_slot(1, 10, 1, {}, 14);  // verified at positions up to max_len - 2: one draft
  step.set_slot(2, 10, 1, {}, 30);
  step.set_slot(3, 10, 1, {}, 30);
  step.add_decode(0, 1, 3);
  step.add_decode(1, 1, 3);
  step.add_decode(2, 1, 2);
  step.add_decode(3, 1, 3);
  step.build();
  step.status[3] = static_cast<int32_t>(RowStatus::kNotFinite);
  step.advance({{5}, {6}, {7}, {8}});
  for (int32_t pass = 1; pass <= 3; ++pass) {
    const std::vector<int32_t> drafts{100 + pass, 200 + pass, 300 + pass, 400 + pass};
    advance_drafts(step.stream, {.upload = step.sent(),
                                 .slots = step.s(),
                                 .inputs = step.inputs.writable(0),
                                 .wanted_drafts = fixed_const(step.wanted),
                                 .drafts = fixed_const(drafts),
                                 .mtp = step.mtp,
                                 .num_sampling = 4,
                                 .pass = pass,
                                 .block_size = 4});
    // Eleven tokens have run; the pass makes the entry of the token behind them from the draft of the pass before.
    const bool first_goes_on = pass < 3, third_goes_on = pass < 2;
    EXPECT_EQ(step.mtp_request[0], first_goes_on ? 0 : -1);
    EXPECT_EQ(step.mtp_request[1], -1);
    EXPECT_EQ(step.mtp_request[2], third_goes_on ? 2 : -1);
    EXPECT_EQ(step.mtp_request[3], -1);
    if (first_goes_on) {
      EXPECT_EQ(step.mtp_context_len[0], 11 + pass);
      EXPECT_EQ(step.mtp_slot[0], (1 + (11 + pass) / 4) * 4 + (11 + pass) % 4);
      EXPECT_EQ(step.mtp_next[0], 100 + pass);
    }
  }
  const std::vector<int32_t> num_drafts(step.s().num_drafts.get(), step.s().num_drafts.get() + 4);
  EXPECT_EQ(num_drafts, (std::vector<int32_t>{3, 1, 2, 0}));
  EXPECT_EQ(step.s().drafts[1], 102);
  EXPECT_EQ(step.s().drafts[kDrafts], 201);
}

}  // namespace
}  // namespace lantern
