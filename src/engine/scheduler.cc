#include "engine/scheduler.h"

#include <algorithm>

namespace lantern {
namespace {

// Positions that a step has blocks for behind what it may run: drafts of the step after it, and those that are made
// when it ends.
int32_t reserved_length(const EngineSettings& settings, const Sequence& sequence, int32_t length) {
  return std::min(length + 2 * settings.limits.max_query_len, sequence.max_len);
}

// Blocks with this sequence alone.
int32_t exclusive_blocks(const EngineState& state, const Sequence& sequence) {
  return static_cast<int32_t>(std::ranges::count_if(
      sequence.blocks, [&](const BlockLease& lease) { return state.pool.ref_count(lease.id()) == 1; }));
}

// Blocks that the sequence may write but shares: each takes a copy first.
int32_t blocks_to_copy(const EngineState& state, const Sequence& sequence) {
  const int32_t first_written = sequence.write_lower() / state.settings.limits.block_size;
  if (first_written >= sequence.sole_from) return 0;
  int32_t count = 0;
  for (int32_t i = first_written; i < sequence.num_blocks(); ++i) {
    if (state.pool.ref_count(sequence.blocks[static_cast<size_t>(i)].id()) > 1) ++count;
  }
  return count;
}

// Full blocks that may come from the prefix index. A prompt that is to be scored runs from the first token on whose
// logits were not; a hit's last token runs again.
size_t usable_hits(const EngineSettings& settings, const Sequence& sequence) {
  if (sequence.num_scored >= sequence.scores_wanted()) return sequence.chain.size();
  const int32_t most = (sequence.num_scored + 1) / settings.limits.block_size;
  return std::min(sequence.chain.size(), static_cast<size_t>(most));
}

}  // namespace

Scheduler::Scheduler(const EngineSettings& settings)
    : wishes_(settings.max_drafts()), waiting_(settings.limits.max_requests + kMaxPassedOver) {
  candidates_.reserve(static_cast<size_t>(settings.limits.max_requests));
  prompt_rows_.reserve(static_cast<size_t>(settings.limits.max_requests));
  passed_over_.reserve(kMaxPassedOver);
  draft_times_.reserve(static_cast<size_t>(settings.max_drafts()) + 1);
}

void Scheduler::plan(const EngineState& state, const StepBudget& budget, EngineTime now, StepSchedule& schedule) {
  schedule.clear();
  schedule.step = state.next_step;
  schedule_ = &schedule;
  budget_ = budget;
  prompt_rows_.clear();
  tokens_left_ = budget.max_tokens;
  blocks_left_ = state.pool.num_available();
  draining_ = state.num_draining > 0;
  oldest_prompt_row_ = -1;

  plan_decodes(state);
  plan_prompts(state);
  give_blocks(state);
  // While what runs goes short, nothing is added to it.
  if (schedule.preempted.empty() && schedule.num_deferred == 0) admit(state, now);
  extend_oldest_prompt(state);

  schedule.num_decodes = static_cast<int32_t>(schedule.rows.size());
  schedule.rows.insert(schedule.rows.end(), prompt_rows_.begin(), prompt_rows_.end());
  finish_rows(state);
  choose_drafts(state);
}

void Scheduler::plan_decodes(const EngineState& state) {
  candidates_.clear();
  num_decoding_ = 0;
  for (const SequenceId id : state.running) {
    const Sequence& sequence = state.at(id);
    Candidate& candidate = candidates_.emplace_back();
    candidate.sequence = id;
    candidate.decode = sequence.prompt_submitted();
    if (!candidate.decode) continue;
    ++num_decoding_;
    // Steps in flight may have brought it to its end, or surely have; their results tell.
    if (sequence.length_lower() >= sequence.max_len || sequence.next_upper >= sequence.max_len) continue;
    // What came of the last token decides what may follow.
    if (sequence.constrained() && sequence.steps_in_flight > 0) continue;
    if (tokens_left_ == 0) {
      ++schedule_->num_deferred;
      continue;
    }
    const int32_t useful_drafts = std::max(sequence.max_len - 2 - sequence.next_upper, 0);
    candidate.tokens = 1 + std::min({sequence.drafts_ready, budget_.max_drafts, useful_drafts, tokens_left_ - 1});
    tokens_left_ -= candidate.tokens;
  }
}

void Scheduler::plan_prompts(const EngineState& state) {
  prompt_tokens_ = tokens_left_;
  if (num_decoding_ > 0) {
    const double share = (1 - state.settings.decode_share) * state.settings.limits.max_tokens;
    prompt_tokens_ = std::min(prompt_tokens_, std::max(static_cast<int32_t>(share), 1));
  }
  const auto is_open_prompt = [&](const Candidate& candidate) { return !candidate.decode && candidate.tokens == 0; };
  const auto left_to_run = [&](const Candidate& candidate) {
    const Sequence& sequence = state.at(candidate.sequence);
    return sequence.num_prefill - sequence.next_upper;
  };

  const auto oldest = std::ranges::find_if(candidates_, is_open_prompt);
  if (oldest == candidates_.end()) return;
  const bool alone =
      state.waiting.empty() && std::find_if(oldest + 1, candidates_.end(), is_open_prompt) == candidates_.end();
  oldest->tokens = std::min(left_to_run(*oldest), alone ? prompt_tokens_ : (prompt_tokens_ + 1) / 2);
  prompt_tokens_ -= oldest->tokens;
  while (prompt_tokens_ > 0) {
    Candidate* shortest = nullptr;
    for (Candidate& candidate : candidates_) {
      if (!is_open_prompt(candidate)) continue;
      if (shortest == nullptr || left_to_run(candidate) < left_to_run(*shortest)) shortest = &candidate;
    }
    if (shortest == nullptr) break;
    shortest->tokens = std::min(left_to_run(*shortest), prompt_tokens_);
    prompt_tokens_ -= shortest->tokens;
  }
}

int32_t Scheduler::blocks_after(const EngineState& state, const Sequence& sequence, int32_t tokens) const {
  const int32_t length = sequence.fully_reserved
                             ? sequence.max_len
                             : reserved_length(state.settings, sequence, sequence.next_upper + tokens);
  return std::max(state.settings.blocks_for(length), sequence.num_blocks());
}

void Scheduler::give_blocks(const EngineState& state) {
  for (size_t place = 0; place < candidates_.size(); ++place) {
    Candidate& candidate = candidates_[place];
    if (candidate.tokens == 0 || candidate.preempted) continue;
    const Sequence& sequence = state.at(candidate.sequence);
    const int32_t copies = blocks_to_copy(state, sequence);
    const auto needed = [&](int32_t tokens) {
      return blocks_after(state, sequence, tokens) - sequence.num_blocks() + copies;
    };
    int32_t taken = needed(candidate.tokens);
    if (taken > blocks_left_) {
      // A prompt makes do with a shorter chunk; whoever cannot move at all takes blocks from those behind.
      const int32_t least = candidate.decode ? candidate.tokens : 1;
      if (needed(least) > blocks_left_ && !make_room(state, place, needed(least))) {
        candidate.tokens = 0;
        ++schedule_->num_deferred;
        continue;
      }
      while (needed(candidate.tokens) > blocks_left_) {
        const int32_t excess = needed(candidate.tokens) - blocks_left_;
        candidate.tokens = std::max(candidate.tokens - excess * state.settings.limits.block_size, least);
      }
      taken = needed(candidate.tokens);
    }
    blocks_left_ -= taken;
    if (!candidate.decode && oldest_prompt_row_ < 0) oldest_prompt_row_ = static_cast<int32_t>(prompt_rows_.size());
    (candidate.decode ? schedule_->rows : prompt_rows_)
        .push_back({.sequence = candidate.sequence,
                    .prefilling = !candidate.decode,
                    .query_len = candidate.tokens,
                    .begin_upper = sequence.next_upper,
                    .num_unwritten = candidate.decode ? 0 : std::max(sequence.write_from - sequence.next_upper, 0),
                    .num_blocks = sequence.num_blocks() + taken - copies});
  }
}

bool Scheduler::make_room(const EngineState& state, size_t place, int32_t blocks) {
  for (size_t behind = candidates_.size() - 1; behind > place && blocks > blocks_left_; --behind) {
    // Blocks are on their way already.
    if (draining_) return false;
    Candidate& victim = candidates_[behind];
    const Sequence& sequence = state.at(victim.sequence);
    if (victim.preempted || sequence.fully_reserved) continue;
    victim.preempted = true;
    schedule_->preempted.push_back(victim.sequence);
    if (sequence.steps_in_flight > 0) {
      draining_ = true;
    } else {
      blocks_left_ += exclusive_blocks(state, sequence);
    }
  }
  return blocks <= blocks_left_;
}

void Scheduler::admit(const EngineState& state, EngineTime now) {
  const EngineSettings& settings = state.settings;
  int32_t slots = state.num_free_slots();
  int32_t room = blocks_left_ - (state.running.empty() ? 0 : settings.watermark_blocks);
  int32_t partial_prompts = 0;
  for (const StepRow& row : prompt_rows_) {
    const Sequence& sequence = state.at(row.sequence);
    if (row.seq_len_upper() >= sequence.num_prefill) continue;
    ++partial_prompts;
    room -=
        std::max(settings.blocks_for(reserved_length(settings, sequence, sequence.num_prefill)) - row.num_blocks, 0);
  }

  passed_over_.clear();
  waiting_.restart(state.waiting);
  for (int32_t passed = 0; passed < kMaxPassedOver && slots > 0 && prompt_tokens_ > 0;) {
    const SequenceId id = waiting_.next();
    if (id < 0) break;
    const Sequence& sequence = state.at(id);
    if (sequence.request->deadline <= now) {
      ++passed;
      continue;
    }

    const size_t hit_begin = schedule_->hit_blocks.size();
    const auto chain = std::span(sequence.chain).first(usable_hits(settings, sequence));
    schedule_->hit_blocks.resize(hit_begin + chain.size());
    const int32_t hits =
        state.index.match(sequence.root, chain, sequence.tokens, std::span(schedule_->hit_blocks).subspan(hit_begin));
    schedule_->hit_blocks.resize(hit_begin + static_cast<size_t>(hits));
    const auto revived = static_cast<int32_t>(  // that no lease holds at present: they leave the supply
        std::count_if(schedule_->hit_blocks.begin() + static_cast<ptrdiff_t>(hit_begin), schedule_->hit_blocks.end(),
                      [&](BlockId block) { return state.pool.ref_count(block) == 0; }));

    const int32_t cached = hits * settings.limits.block_size;
    const int32_t begin = std::max(cached - 1, 0);
    const int32_t to_run = sequence.num_tokens() - begin;
    const int32_t tokens = std::min(to_run, prompt_tokens_);
    const bool fully_reserved = sequence.num_preemptions >= settings.max_preemptions;
    const auto blocks_through = [&](int32_t length) {
      return settings.blocks_for(fully_reserved ? sequence.max_len : reserved_length(settings, sequence, length));
    };
    const int32_t whole_prompt = blocks_through(sequence.num_tokens()) - hits + revived;
    const bool partial = tokens < to_run;
    if (1 + sequence.forks_pending > slots || whole_prompt > room ||
        (partial && partial_prompts >= settings.max_partial_prefills)) {
      schedule_->hit_blocks.resize(hit_begin);
      if (sequence.num_overtakes >= settings.max_overtakes) break;
      passed_over_.push_back(id);
      ++passed;
      continue;
    }

    slots -= 1 + sequence.forks_pending;
    room -= whole_prompt;
    prompt_tokens_ -= tokens;
    partial_prompts += partial ? 1 : 0;
    const int32_t num_blocks = blocks_through(begin + tokens);
    blocks_left_ -= num_blocks - hits + revived;
    schedule_->overtaken.insert(schedule_->overtaken.end(), passed_over_.begin(), passed_over_.end());
    passed_over_.clear();
    schedule_->admitted.push_back({.sequence = id,
                                   .fully_reserved = fully_reserved,
                                   .hit_begin = static_cast<int32_t>(hit_begin),
                                   .hit_blocks = hits});
    prompt_rows_.push_back({.sequence = id,
                            .prefilling = true,
                            .query_len = tokens,
                            .begin_upper = begin,
                            .num_unwritten = cached - begin,
                            .num_blocks = num_blocks});
  }
}

void Scheduler::extend_oldest_prompt(const EngineState& state) {
  if (oldest_prompt_row_ < 0) return;
  StepRow& row = prompt_rows_[static_cast<size_t>(oldest_prompt_row_)];
  const Sequence& sequence = state.at(row.sequence);
  int32_t tokens = row.query_len + std::min(prompt_tokens_, sequence.num_prefill - row.seq_len_upper());
  while (tokens > row.query_len && blocks_after(state, sequence, tokens) - row.num_blocks > blocks_left_) {
    tokens = std::max(tokens - state.settings.limits.block_size, row.query_len);
  }
  if (tokens == row.query_len) return;
  prompt_tokens_ -= tokens - row.query_len;
  const int32_t num_blocks = blocks_after(state, sequence, tokens);
  blocks_left_ -= num_blocks - row.num_blocks;
  row.query_len = tokens;
  row.num_blocks = num_blocks;
}

void Scheduler::finish_rows(const EngineState& state) {
  for (StepRow& row : schedule_->rows) {
    const Sequence& sequence = state.at(row.sequence);
    schedule_->num_tokens += row.query_len;
    // A sequence that this step admits has all of its tokens before it.
    const int32_t num_prefill =
        sequence.phase == SequencePhase::kRunning ? sequence.num_prefill : sequence.num_tokens();
    row.samples = !row.prefilling || row.seq_len_upper() >= num_prefill;
  }
}

void Scheduler::choose_drafts(const EngineState& state) {
  const EngineSettings& settings = state.settings;
  const auto useful = [&](const StepRow& row) {
    const Sequence& sequence = state.at(row.sequence);
    if (sequence.constrained()) return 0;  // nobody knows what may follow the drafts
    return std::min(budget_.max_drafts, std::max(sequence.max_len - 2 - sequence.length_lower(), 0));
  };
  if (!settings.adaptive_drafts) {
    for (StepRow& row : schedule_->rows) {
      if (!row.samples) continue;
      row.next_drafts = useful(row);
      schedule_->draft_passes = std::max(schedule_->draft_passes, row.next_drafts);
    }
    return;
  }

  // The load to come: who waits will decode beside who runs.
  const int32_t load =
      std::min(static_cast<int32_t>(state.running.size()) + state.num_queued, settings.limits.max_requests);
  const DraftControl& control = state.drafts;
  const StepTimes& times = control.times();
  draft_times_.resize(static_cast<size_t>(budget_.max_drafts) + 1);
  draft_times(times, load, draft_times_);
  schedule_->drafter_runs = false;
  schedule_->drafts_may_pay = best_draft_length(1.0, draft_times_) > 0;
  const int32_t most = std::min(budget_.max_drafts, control.most_drafts(load));
  const DraftPhase phase = control.phase();
  const bool tries = phase == DraftPhase::kWarmUp || phase == DraftPhase::kTrial;
  if (!control.may_draft() || (!schedule_->drafts_may_pay && !tries)) return;

  wishes_.restart();
  bool prompts = false;
  for (StepRow& row : schedule_->rows) {
    prompts = prompts || row.prefilling;
    if (!row.samples || phase == DraftPhase::kWarmUp) continue;
    if (phase == DraftPhase::kTrial) {
      row.next_drafts = std::min(useful(row), 1);
      schedule_->draft_passes = std::max(schedule_->draft_passes, row.next_drafts);
      continue;
    }
    const double rate = state.at(row.sequence).acceptance.rate(control.acceptance());
    const auto lengths = static_cast<size_t>(std::min(useful(row), most)) + 1;
    row.next_drafts = best_draft_length(rate, std::span(draft_times_).first(lengths));
    wishes_.add(rate, row.next_drafts);
  }
  if (!tries) {
    schedule_->draft_passes = wishes_.best_passes(times);
    for (StepRow& row : schedule_->rows) row.next_drafts = std::min(row.next_drafts, schedule_->draft_passes);
  }
  // A prompt may be one that drafts are right for, where some are made at all.
  const bool drafts_lately = schedule_->num_decodes == 0 || control.drafted_lately();
  const bool fills = prompts && drafts_lately && best_draft_length(control.acceptance(), draft_times_) > 0;
  schedule_->drafter_runs = schedule_->draft_passes > 0 || tries || fills;
}

}  // namespace lantern
