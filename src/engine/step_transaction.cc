#include "engine/step_transaction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "engine/lifecycle.h"

namespace lantern {

namespace {

bool adapts_drafts(const EngineSettings& settings) { return settings.adaptive_drafts && settings.max_drafts() > 0; }

const char* failure_of(RowStatus status) {
  switch (status) {
    case RowStatus::kNotFinite: return "the model's logits for this request are not finite numbers";
    case RowStatus::kNoToken:
      return "no token may follow: the request's mask, logit_bias, bad_words and min_tokens forbid all";
    case RowStatus::kOk: break;
  }
  return "";
}

}  // namespace

StepTransaction::StepTransaction(const EngineSettings& settings)
    : schedule_(settings), batch_(settings), results_(settings) {
  replaced_.reserve(static_cast<size_t>(settings.limits.max_requests) * 2);
  blocks_before_.reserve(static_cast<size_t>(settings.limits.max_requests));
}

StepSchedule& StepTransaction::begin_plan() {
  CHECK(stage_ == StepStage::kIdle, "the step is under way");
  stage_ = StepStage::kPlanned;
  return schedule_;
}

void StepTransaction::apply_decisions(EngineState& state) {
  for (const SequenceId id : schedule_.preempted) preempt_sequence(state, id);
  for (const SequenceId id : schedule_.overtaken) {
    ++state.at(id).num_overtakes;
    ++state.stats.overtakes;
  }
  // Hits are leased before anything is allocated: an allocation may take a cached block away.
  for (const Admission& admission : schedule_.admitted) {
    admit_sequence(state, admission.sequence,
                   std::span(schedule_.hit_blocks)
                       .subspan(static_cast<size_t>(admission.hit_begin), static_cast<size_t>(admission.hit_blocks)),
                   admission.fully_reserved);
  }
}

void StepTransaction::apply_without_rows(EngineState& state) {
  CHECK(stage_ == StepStage::kPlanned && schedule_.rows.empty(), "the step has rows");
  apply_decisions(state);
  stage_ = StepStage::kIdle;
}

void StepTransaction::drop_plan() {
  CHECK(stage_ == StepStage::kPlanned, "the step is not planned");
  schedule_.clear();
  stage_ = StepStage::kIdle;
}

void StepTransaction::reserve_dummy(EngineState& state, const StepShape& shape) {
  CHECK(stage_ == StepStage::kIdle, "the step is under way");
  schedule_.clear();
  blocks_before_.clear();
  batch_.make_dummy(state.settings);
  batch_.step = state.next_step;
  CHECK(enclosing(shape, batch_.shape) == shape, "the dummy does not fit the step's shape");
  batch_.shape = shape;
  stage_ = StepStage::kReserved;
}

void StepTransaction::reserve(EngineState& state, const StepShape& shape) {
  CHECK(stage_ == StepStage::kPlanned, "the step is not planned");
  CHECK(enclosing(shape, shape_of(schedule_, state.settings)) == shape, "the rows do not fit the step's shape");
  apply_decisions(state);
  batch_.clear();
  blocks_before_.clear();
  batch_.step = schedule_.step;
  batch_.num_decodes = schedule_.num_decodes;
  batch_.num_tokens = schedule_.num_tokens;
  batch_.shape = shape;
  batch_.query_start_loc.push_back(0);
  for (StepRow& row : schedule_.rows) reserve_row(state, row);
  batch_.rows.assign(schedule_.rows.begin(), schedule_.rows.end());
  stage_ = StepStage::kReserved;
}

void StepTransaction::reserve_row(EngineState& state, StepRow& row) {
  Sequence& sequence = state.at(row.sequence);
  row.slot = sequence.slot;
  blocks_before_.push_back(sequence.num_blocks());
  const int32_t first_written = sequence.write_lower() / state.settings.limits.block_size;
  const bool may_share = first_written < sequence.sole_from;
  for (int32_t i = first_written; may_share && i < blocks_before_.back(); ++i) {
    BlockLease& lease = sequence.blocks[static_cast<size_t>(i)];
    // Leases of this step on the sources of its copies do not count: copies run before anything is written.
    const auto copied = std::ranges::count(replaced_, lease.id(), [](const ReplacedBlock& r) { return r.lease.id(); });
    if (state.pool.ref_count(lease.id()) - copied == 1) continue;
    BlockLease copy = state.pool.allocate();
    batch_.copies.push_back({.source = lease.id(), .target = copy.id()});
    std::swap(lease, copy);
    replaced_.push_back({row.sequence, i, std::move(copy)});
    if (i < sequence.blocks_sent) {
      batch_.table_entries.push_back({.slot = row.slot, .index = i, .block = lease.id()});
    }
  }
  if (may_share) sequence.sole_from = first_written;
  while (sequence.num_blocks() < row.num_blocks) sequence.blocks.push_back(state.pool.allocate());

  if (!sequence.slot_ready) {
    batch_.slot_inits.push_back(
        {.slot = row.slot, .sequence = &sequence, .seq_len = sequence.next_upper, .max_len = sequence.max_len});
  }
  for (int32_t i = sequence.blocks_sent; i < sequence.num_blocks(); ++i) {
    batch_.table_entries.push_back(
        {.slot = row.slot, .index = i, .block = sequence.blocks[static_cast<size_t>(i)].id()});
  }
  batch_.query_start_loc.push_back(batch_.query_start_loc.back() + row.query_len);
  batch_.logprobs |= row.samples && sequence.rules.logprobs;
  if (row.samples && sequence.constrained()) constrain_row(sequence, row);
  if (row.samples && sequence.rules.traced) trace_row(state, row);
  if (row.prefilling) {
    const auto tokens = std::span<const int32_t>(sequence.tokens)
                            .subspan(static_cast<size_t>(row.begin_upper), static_cast<size_t>(row.query_len));
    batch_.prompt_tokens.insert(batch_.prompt_tokens.end(), tokens.begin(), tokens.end());
    batch_.next_tokens.push_back(row.samples ? -1 : sequence.tokens[static_cast<size_t>(row.seq_len_upper())]);
    score_row(sequence, row);
    batch_.num_scored += row.num_scored;
  } else {
    batch_.num_decode_tokens += row.query_len;
  }
}

// Where the hook fails the row runs all the same, under a mask that allows nothing, and its end is that of any row that
// failed.
void StepTransaction::constrain_row(Sequence& sequence, StepRow& row) {
  row.mask = batch_.num_masks;
  const Status asked =
      ask_constraint(*sequence.request->constraint, sequence.choice, sequence.outputs(), batch_.add_mask());
  if (asked.ok()) {
    sequence.failure.clear();
  } else {
    sequence.failure = asked.error().message();
  }
}

// What the step has no room for is not kept, and the reader is told so: who asks for traces holds up nobody.
void StepTransaction::trace_row(const EngineState& state, StepRow& row) {
  if (batch_.num_traced + row.num_samples() > state.settings.max_traced_rows) return;
  row.first_traced = batch_.num_traced;
  batch_.num_traced += row.num_samples();
}

// Prompts run again after a preemption, and are scored once.
void StepTransaction::score_row(const Sequence& sequence, StepRow& row) {
  const int32_t from = std::max(row.begin_upper, sequence.num_scored);
  const int32_t to = std::min(row.seq_len_upper(), sequence.scores_wanted());
  row.score_from = from - row.begin_upper;
  row.num_scored = std::max(to - from, 0);
  row.prompt_logprobs = sequence.request->prompt_logprobs;
}

Status StepTransaction::submit(EngineState& state, Executor& executor) {
  CHECK(stage_ == StepStage::kReserved, "the step is not reserved");
  RETURN_IF_ERROR(executor.submit(batch_));
  for (const StepRow& row : schedule_.rows) {
    Sequence& sequence = state.at(row.sequence);
    sequence.slot_ready = true;
    sequence.blocks_sent = sequence.num_blocks();
    sequence.next_upper += row.query_len;
    ++sequence.steps_in_flight;
    if (row.samples) {
      ++sequence.samples_in_flight;
      sequence.drafts_ready = row.next_drafts;
    }
  }
  ++state.next_step;
  if (adapts_drafts(state.settings)) {
    const auto sampling = std::ranges::count_if(schedule_.rows, [](const StepRow& row) { return row.samples; });
    state.drafts.on_submit(static_cast<int32_t>(sampling), schedule_.draft_passes, schedule_.drafts_may_pay);
  }
  state.stats.tokens_run += schedule_.num_tokens;
  state.stats.dummy_steps += schedule_.rows.empty() ? 1 : 0;
  stage_ = StepStage::kSubmitted;
  return {};
}

void StepTransaction::roll_back(EngineState& state) {
  CHECK(stage_ == StepStage::kReserved, "the step is not reserved");
  for (size_t r = schedule_.rows.size(); r-- > 0;) {
    Sequence& sequence = state.at(schedule_.rows[r].sequence);
    sequence.sole_from = Sequence::kNoBlock;
    std::vector<BlockLease>& blocks = sequence.blocks;
    while (blocks.size() > static_cast<size_t>(blocks_before_[r])) blocks.pop_back();
  }
  for (ReplacedBlock& replaced : replaced_) {
    state.at(replaced.sequence).blocks[static_cast<size_t>(replaced.index)] = std::move(replaced.lease);
  }
  replaced_.clear();
  for (size_t i = schedule_.admitted.size(); i-- > 0;) undo_admission(state, schedule_.admitted[i].sequence);
  stage_ = StepStage::kIdle;
}

Status StepTransaction::complete(Executor& executor) {
  CHECK(stage_ == StepStage::kSubmitted, "the step is not submitted");
  RETURN_IF_ERROR(executor.wait(results_));
  stage_ = StepStage::kCompleted;
  return {};
}

void StepTransaction::commit(EngineState& state, double seconds) {
  CHECK(stage_ == StepStage::kCompleted, "the step is not complete");
  state.stats.steps_replayed += results_.replayed ? 1 : 0;
  replaced_.clear();
  scores_before_ = 0;
  num_accepted_ = 0;
  const int64_t tokens_before = state.stats.tokens_out;
  // Where new tokens go the model has driven out of the caches: fetched all at once, or each row waits for its own.
  for (const StepRow& row : schedule_.rows) {
    const std::vector<int32_t>& tokens = state.at(row.sequence).tokens;
    __builtin_prefetch(tokens.data() + tokens.size(), 1);
  }
  for (int32_t r = 0; r < static_cast<int32_t>(schedule_.rows.size()); ++r) commit_row(state, r);
  if (seconds > 0 && adapts_drafts(state.settings))
    tell_of_drafts(state, seconds, state.stats.tokens_out - tokens_before);
  stage_ = StepStage::kIdle;
}

// Of steps of decodes alone: what prompts take beside them is no matter of drafts.
void StepTransaction::tell_of_drafts(EngineState& state, double seconds, int64_t tokens_out) const {
  state.drafts.expect_times();
  const BucketKey& bucket = batch_.shape.bucket;
  const auto rows = static_cast<int32_t>(schedule_.rows.size());
  if (bucket.kind != StepKind::kDecode || rows == 0) return;
  state.drafts.on_commit({.num_decodes = bucket.requests,
                          .num_tokens = bucket.tokens,
                          .draft_passes = batch_.shape.draft_passes,
                          .drafter_runs = batch_.shape.drafter_runs,
                          .wanted = schedule_.num_tokens > rows || schedule_.drafter_runs,
                          .rows = num_accepted_,
                          .tokens_out = static_cast<int32_t>(tokens_out),
                          .time = seconds});
}

void StepTransaction::commit_row(EngineState& state, int32_t r) {
  const StepRow& row = schedule_.rows[static_cast<size_t>(r)];
  Sequence& sequence = state.at(row.sequence);
  if (row.samples) --sequence.samples_in_flight;
  const bool ended = sequence.phase == SequencePhase::kRetiring;
  const int32_t first_score = scores_before_;
  scores_before_ += row.num_scored;
  const RowStatus status = results_.status[static_cast<size_t>(r)];
  if (!ended && row.num_scored > 0) check_scores(sequence, row, first_score);
  if (!ended && (status != RowStatus::kOk || !sequence.failure.empty())) {
    if (sequence.failure.empty()) sequence.failure = failure_of(status);
    end_sequence(state, row.sequence, EndReason::kFailed);
  } else if (!ended && row.prefilling) {
    hand_out_scores(state, row, first_score);
    sequence.num_computed = row.seq_len_upper();
    publish_blocks(state, row.sequence);
    if (sequence.forks_pending > 0 && sequence.phase == SequencePhase::kRunning &&
        sequence.num_computed >= sequence.prompt_len) {
      fork_choices(state, row.sequence);
    }
  }
  if (row.samples && sequence.phase != SequencePhase::kRetiring) accept_tokens(state, r);
  leave_step(state, row.sequence);
}

// A prompt's logits that are no numbers are seen by their log-probabilities alone: nothing is drawn from them.
void StepTransaction::check_scores(Sequence& sequence, const StepRow& row, int32_t first_score) const {
  const LogprobRows scores =
      results_.prompt_logprobs.rows(static_cast<size_t>(first_score), static_cast<size_t>(row.num_scored));
  const auto bad = std::ranges::find_if_not(scores.logprobs, [](float value) { return std::isfinite(value); });
  if (bad == scores.logprobs.end()) return;
  sequence.failure = fmt::format("the model gives no number as the log-probability of prompt token {}",
                                 row.begin_upper + row.score_from + 1 + (bad - scores.logprobs.begin()));
}

void StepTransaction::hand_out_scores(EngineState& state, const StepRow& row, int32_t first_score) {
  if (row.num_scored == 0) return;
  Sequence& sequence = state.at(row.sequence);
  sequence.num_scored = row.begin_upper + row.score_from + row.num_scored;
  if (state.sink == nullptr) return;
  state.sink->on_prompt_logprobs(
      sequence, results_.prompt_logprobs.rows(static_cast<size_t>(first_score), static_cast<size_t>(row.num_scored)));
}

void StepTransaction::accept_tokens(EngineState& state, int32_t r) {
  const StepRow& row = batch_.rows[static_cast<size_t>(r)];
  const std::span<const int32_t> tokens = results_.row_tokens(r);
  Sequence& sequence = state.at(row.sequence);
  const auto count = static_cast<int32_t>(tokens.size());
  CHECK(count >= 1 && count <= (row.prefilling ? 1 : row.query_len), "a row of {} tokens came to {}", row.query_len,
        count);
  if (!row.prefilling) {
    sequence.next_upper -= row.query_len - count;
    sequence.acceptance.record(row.num_drafts(), count - 1);
    state.drafts.record_acceptance(row.num_drafts(), count - 1);
    ++state.stats.draft_lengths[static_cast<size_t>(std::min(row.num_drafts(), EngineStats::kCountedDrafts))];
  }
  ++num_accepted_;

  // What is new ends at the limit, or at a stop token, which is the last one kept.
  EndReason reason = EndReason::kNone;
  int32_t added = 0;
  for (const int32_t token : tokens) {
    sequence.tokens.push_back(token);
    ++added;
    if (sequence.num_outputs() >= sequence.rules.min_tokens && sequence.stops_at(token)) {
      reason = EndReason::kStop;
    } else if (sequence.num_tokens() >= sequence.max_len) {
      reason = EndReason::kLength;
    }
    if (reason != EndReason::kNone) break;
  }
  if (state.sink != nullptr) {
    const OutputSink::Verdict verdict = state.sink->on_tokens(sequence, added);
    CHECK(verdict.kept >= 0 && verdict.kept <= added, "{} of {} new tokens cannot be kept", verdict.kept, added);
    sequence.tokens.resize(sequence.tokens.size() - static_cast<size_t>(added - verdict.kept));
    if (verdict.stop || verdict.kept < added) reason = EndReason::kStop;
    added = verdict.kept;
    if (const int32_t drafted = std::min(added, count - 1); drafted > 0) state.sink->on_drafted(sequence, drafted);
    if (sequence.rules.logprobs) state.sink->on_logprobs(sequence, results_.row_logprobs(r, added));
    if (sequence.rules.traced) {
      state.sink->on_selections(
          sequence, added,
          row.first_traced < 0 ? std::span<const int32_t>() : results_.traced_records(row.first_traced, added));
    }
  }
  state.stats.tokens_out += added;
  // The sample at place k tells of draft k; what comes behind the end of a text says nothing.
  const int32_t told = row.prefilling ? 0 : std::min({row.num_drafts(), added, EngineStats::kCountedDrafts});
  for (int32_t k = 0; k < told; ++k) {
    ++state.stats.drafts_checked[static_cast<size_t>(k)];
    if (k + 1 < count) ++state.stats.drafts_accepted[static_cast<size_t>(k)];
  }
  // All but the last token have been run.
  if (!row.prefilling) sequence.num_computed = std::max(sequence.num_computed, sequence.num_tokens() - 1);
  publish_blocks(state, row.sequence);
  if (reason != EndReason::kNone) end_sequence(state, row.sequence, reason);
}

void StepTransaction::fail(EngineState& state) {
  CHECK(stage_ == StepStage::kSubmitted, "the step is not in flight");
  replaced_.clear();
  for (const StepRow& row : schedule_.rows) {
    Sequence& sequence = state.at(row.sequence);
    if (row.samples) --sequence.samples_in_flight;
    if (sequence.phase != SequencePhase::kRetiring) end_sequence(state, row.sequence, EndReason::kFailed);
    leave_step(state, row.sequence);
  }
  stage_ = StepStage::kIdle;
}

}  // namespace lantern
