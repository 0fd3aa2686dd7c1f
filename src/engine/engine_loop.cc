#include "engine/engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/lifecycle.h"

namespace lantern {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Some steps' worth, of long prompts two.
OutputRoom output_room(const EngineSettings& settings) {
  const StepLimits& limits = settings.limits;
  OutputRoom room;
  room.items = 4 * static_cast<size_t>(limits.max_requests);
  room.tokens = 4 * static_cast<size_t>(limits.max_sample_rows());
  room.selection_words = 4 * static_cast<size_t>(settings.traced_words());
  if (settings.max_logprobs < 0) return room;
  room.logprobs = room.tokens + 2 * static_cast<size_t>(limits.max_tokens);
  room.logprobs_width = settings.max_logprobs;
  return room;
}

}  // namespace

Error engine_closes() {
  return Error(ErrorCode::kUnsupported, "the engine is shutting down and takes no more requests");
}

void RankBell::add(EngineLoop& loop) {
  const std::lock_guard lock(mutex_);
  loops_.push_back(&loop);
}
void RankBell::ring(int64_t number) {
  const std::lock_guard lock(mutex_);
  for (EngineLoop* loop : loops_) loop->wake_for(number);
}

EngineLoop::EngineLoop(Engine::Parts parts, EngineRank rank)
    : parts_(std::move(parts)), rank_(std::move(rank)), executor_(std::move(parts_.executor)) {
  const OutputRoom room = output_room(parts_.settings);
  batch_.reserve(room);
  report_.num_blocks = report_.num_free_blocks = parts_.settings.limits.num_blocks - 1;
  core_ = std::make_unique<EngineCore>(parts_.settings, parts_.hash_key, executor_, static_cast<OutputSink*>(this));
  live_.resize(core_->state().requests.size());
  delivery_ = std::make_unique<OutputDelivery>(room, [this](int64_t ended) {
    {
      const std::lock_guard lock(mutex_);
      num_live_ -= ended;
    }
    choices_ended_.notify_all();
  });
  if (rank_.bell != nullptr) rank_.bell->add(*this);
  thread_ = std::thread([this] { run(); });
}

void EngineLoop::begin_shutdown() {
  CHECK(!delivery_->is_current_thread(), "an engine cannot be destroyed by the reader of its outputs");
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  something_to_do_.notify_one();
}

void EngineLoop::shutdown() {
  thread_.join();
  delivery_.reset();
}

EngineTime EngineLoop::now() const { return std::chrono::duration_cast<EngineTime>(Clock::now() - origin_); }

Result<std::shared_ptr<LiveRequest>> EngineLoop::submit(EngineRequest request, OnOutput on_output,
                                                        std::unique_ptr<RankRouter::Ticket> ticket) {
  if (parts_.vocab_size > 0) RETURN_IF_ERROR(check_vocabulary(request.request, parts_.vocab_size));
  std::erase_if(request.stop, [](const std::string& string) { return string.empty(); });
  if (!request.stop.empty() && parts_.tokenizer == nullptr) {
    return Error(ErrorCode::kUnsupported,
                 "stop strings need a tokenizer, which this engine was made without; use stop_token_ids");
  }
  if (request.timeout) {
    if (request.timeout->count() <= 0) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("timeout is {} ms; give at least 1 ms, or none", request.timeout->count()));
    }
    request.request.deadline = now() + *request.timeout;
  }
  if (!request.ignore_eos) {
    std::vector<int32_t>& ids = request.request.stop_token_ids;
    ids.insert(ids.end(), parts_.eos_token_ids.begin(), parts_.eos_token_ids.end());
  }
  RETURN_IF_ERROR(check_request(request.request, parts_.settings));
  if (parts_.vocab_size > 0) {  // no more than there are can be listed
    request.request.logprobs = std::min(request.request.logprobs, parts_.vocab_size);
    request.request.prompt_logprobs = std::min(request.request.prompt_logprobs, parts_.vocab_size);
  }

  auto live = std::make_shared<LiveRequest>();
  live->rules = {
      .stop = std::move(request.stop),
      .include_stop = request.include_stop,
      .skip_special_tokens = request.skip_special_tokens,
      .stop_token_ids = request.request.ignore_stop_tokens ? std::vector<int32_t>() : request.request.stop_token_ids,
      .min_tokens = request.request.min_tokens};
  live->request = std::make_shared<const Request>(std::move(request.request));
  live->on_output = std::move(on_output);
  const int32_t n = live->request->n;
  live->choices_left = n;
  live->ticket = std::move(ticket);
  live->submitted = now();
  for (int32_t choice = 0; choice < n && parts_.tokenizer != nullptr; ++choice) {
    live->texts.emplace_back(*parts_.tokenizer, live->rules);
    if (!live->rules.stop.empty()) live->stop_finders.emplace_back(*parts_.tokenizer, live->rules);
  }

  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (lost_) return *lost_;
    if (draining_ || closing_) return engine_closes();
    if (num_submitting_ + num_waiting_ + n > parts_.settings.max_queued) {
      return Error(ErrorCode::kOutOfMemory,
                   fmt::format("{} sequences wait and max_queued is {}; try again later or raise max_queued",
                               num_submitting_ + num_waiting_, parts_.settings.max_queued));
    }
    commands_.push_back({CommandKind::kSubmit, live});
    num_submitting_ += n;
    num_live_ += n;
    wake = engine_waits_;
  }
  if (wake) something_to_do_.notify_one();
  return live;
}

bool EngineLoop::has_room(int32_t choices) const {
  const std::lock_guard lock(mutex_);
  return num_submitting_ + num_waiting_ + choices <= parts_.settings.max_queued;
}

void EngineLoop::wake_for(int64_t agreement) {
  {
    const std::lock_guard lock(mutex_);
    wanted_agreement_ = std::max(wanted_agreement_, agreement);
  }
  something_to_do_.notify_one();
}

void EngineLoop::cancel(const std::shared_ptr<LiveRequest>& live) { add_command({CommandKind::kCancel, live}); }

void EngineLoop::forget_prefixes() { add_command({CommandKind::kForgetPrefixes, nullptr}); }

void EngineLoop::pause() { add_command({CommandKind::kPause, nullptr}); }

void EngineLoop::resume() { add_command({CommandKind::kResume, nullptr}); }

void EngineLoop::add_command(Command command) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    commands_.push_back(std::move(command));
    wake = engine_waits_;
  }
  if (wake) something_to_do_.notify_one();
}

void EngineLoop::begin_drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

bool EngineLoop::wait_until_drained(std::optional<std::chrono::milliseconds> timeout) {
  std::unique_lock lock(mutex_);
  const auto done = [&] { return num_live_ == 0; };
  if (timeout) return choices_ended_.wait_for(lock, *timeout, done);
  choices_ended_.wait(lock, done);
  return true;
}

EngineReport EngineLoop::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

std::optional<Error> EngineLoop::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void EngineLoop::run() {
  while (take_commands()) turn();
  core_.reset();  // ends what lives
  delivery_->hand_over(batch_);
}

bool EngineLoop::may_sleep() const {
  return in_step() ? asleep_ : (paused_ || core_->idle()) && core_->steps_in_flight() == 0;
}

bool EngineLoop::take_commands() {
  {
    std::unique_lock lock(mutex_);
    num_waiting_ = core_->state().num_queued;
    const auto awake = [&] { return closing_ || !commands_.empty() || wanted_agreement_ > agreements_; };
    if (may_sleep() && !awake()) {
      engine_waits_ = true;
      something_to_do_.wait(lock, awake);
      engine_waits_ = false;
    }
    taken_.swap(commands_);
    if (closing_ && (!in_step() || leaving_)) {
      // What was not taken yet ends as what lives does.
      lock.unlock();
      for (const Command& command : taken_) {
        if (command.kind == CommandKind::kSubmit) apply(command);
      }
      return false;
    }
    num_waiting_ += std::exchange(num_submitting_, 0);
  }
  if (std::exchange(asleep_, false)) rank_.bell->ring(agreements_ + 1);
  if (taken_.empty()) return true;
  for (const Command& command : taken_) apply(command);
  taken_.clear();
  publish_report();
  delivery_->hand_over(batch_);
  return true;
}

void EngineLoop::apply(const Command& command) {
  if (command.kind == CommandKind::kCancel) {
    if (command.live->id != 0) core_->cancel(command.live->id);
    return;
  }
  if (command.kind == CommandKind::kForgetPrefixes) return core_->forget_prefixes();
  if (command.kind == CommandKind::kPause || command.kind == CommandKind::kResume) {
    paused_ = command.kind == CommandKind::kPause;
    return;
  }
  // What was queued when the device was lost.
  Result<RequestId> id = lost_ ? Result<RequestId>(*lost_) : core_->submit(command.live->request, now());
  if (!id.ok()) {
    refuse(*command.live, id.error());
    batch_.ended.push_back(command.live);
    return;
  }
  command.live->id = *id;
  live_[static_cast<size_t>(record_of(*id))] = {command.live, !command.live->stop_finders.empty()};
}

EngineLoop::Live& EngineLoop::live_of(const Sequence& sequence) {
  return live_[static_cast<size_t>(record_of(sequence.request_id))];
}

void EngineLoop::refuse(LiveRequest& live, const Error& error) {
  batch_.errors.push_back(error.message());
  const auto index = static_cast<int32_t>(batch_.errors.size()) - 1;
  for (int32_t choice = 0; choice < live.request->n; ++choice) {
    batch_.items.push_back({.live = &live, .choice = choice, .end_reason = EndReason::kFailed, .error = index});
  }
  counts_.choices_ended[static_cast<size_t>(EndReason::kFailed)] += live.request->n;
  live.ticket.reset();
}

void EngineLoop::turn() {
  const Clock::time_point start = Clock::now();
  const double cpu = thread_cpu_seconds() - executor_.cpu_seconds();
  const int64_t steps = counts_.steps;
  const StepStart started = in_step() ? step_together() : step_alone();
  seconds_since_finish_ += seconds_since(start);
  if (counts_.steps > steps) {
    counts_.step_seconds += seconds_since_finish_;
    counts_.last_step_seconds = std::exchange(seconds_since_finish_, 0);
    counts_.executor_seconds = executor_.wall_seconds();
  }
  // Before the outputs: who has read a request's last one finds it counted.
  publish_report();
  delivery_->hand_over(batch_);
  counts_.overhead_seconds += thread_cpu_seconds() - executor_.cpu_seconds() - cpu;
  // What comes meanwhile (a cancellation) may change the step.
  if (started == StepStart::kNotAccepted) (void)wait_before_next_try(true);
}

OutputSink::Verdict EngineLoop::on_tokens(const Sequence& sequence, int32_t count) {
  // What a request wants is looked up where it is needed only: its memory is cold.
  const Live& live = live_of(sequence);
  const auto tokens = std::span(sequence.tokens).last(static_cast<size_t>(count));
  Verdict verdict{.kept = count, .stop = false};
  if (live.finds_stops) {
    OutputText& finder = live.request->stop_finders[static_cast<size_t>(sequence.choice)];
    for (int32_t i = 0; i < count && !verdict.stop; ++i) {
      finder.look_at(tokens[static_cast<size_t>(i)]);
      if (finder.stopped()) verdict = {.kept = i + 1, .stop = true};
    }
  }
  batch_.items.push_back({.live = live.request.get(),
                          .choice = sequence.choice,
                          .first_token = batch_.tokens.size(),
                          .num_tokens = static_cast<size_t>(verdict.kept)});
  batch_.tokens.insert(batch_.tokens.end(), tokens.begin(), tokens.begin() + verdict.kept);
  return verdict;
}

void EngineLoop::on_drafted(const Sequence& /*sequence*/, int32_t count) {
  batch_.items.back().num_drafted = static_cast<size_t>(count);  // the item that on_tokens() made
}

void EngineLoop::on_logprobs(const Sequence& /*sequence*/, const LogprobRows& rows) {
  OutputBatch::Item& item = batch_.items.back();  // that on_tokens() made
  item.first_logprob = batch_.logprobs.size();
  item.num_logprobs = rows.size();
  batch_.logprobs.append(rows);
}

void EngineLoop::on_prompt_logprobs(const Sequence& sequence, const LogprobRows& rows) {
  batch_.items.push_back({.live = live_of(sequence).request.get(),
                          .choice = sequence.choice,
                          .first_token = batch_.tokens.size(),
                          .first_logprob = batch_.logprobs.size(),
                          .num_prompt_logprobs = rows.size()});
  batch_.logprobs.append(rows);
}

void EngineLoop::on_selections(const Sequence& /*sequence*/, int32_t /*count*/, std::span<const int32_t> records) {
  const auto words = static_cast<size_t>(parts_.settings.traced_record_words());
  OutputBatch::Item& item = batch_.items.back();  // that on_tokens() made
  item.first_selection_word = batch_.selections.size();
  item.num_traced = records.size() / words;
  for (; !records.empty(); records = records.subspan(words)) {
    const int32_t keys = records.front();
    CHECK(keys >= 0 && static_cast<size_t>(keys) < words, "a selection of {} keys in {} words", keys, words);
    const auto record = records.first(1 + static_cast<size_t>(keys));
    batch_.selections.insert(batch_.selections.end(), record.begin(), record.end());
  }
}

void EngineLoop::on_admission(const Sequence& sequence) {
  LiveRequest& live = *live_of(sequence).request;
  if (sequence.num_preemptions == 0) live.admitted = now();
}

void EngineLoop::on_end(const Sequence& sequence) {
  std::shared_ptr<LiveRequest>& owner = live_of(sequence).request;
  CHECK(owner != nullptr, "a choice of request {} ended twice", sequence.request_id);
  LiveRequest& live = *owner;
  const auto is_same = [&](const OutputBatch::Item& item) {
    return item.live == &live && item.choice == sequence.choice && item.end_reason == EndReason::kNone;
  };
  if (batch_.items.empty() || !is_same(batch_.items.back())) {
    batch_.items.push_back({.live = &live, .choice = sequence.choice, .first_token = batch_.tokens.size()});
  }
  OutputBatch::Item& item = batch_.items.back();
  item.end_reason = sequence.end_reason;
  item.cached_tokens = sequence.num_cached;
  if (live.admitted != kNever)
    item.queue_seconds = std::chrono::duration<double>(live.admitted - live.submitted).count();
  if (sequence.end_reason == EndReason::kFailed) {
    batch_.errors.push_back(sequence.failure);
    item.error = static_cast<int32_t>(batch_.errors.size()) - 1;
  }
  ++counts_.choices_ended[static_cast<size_t>(sequence.end_reason)];
  if (--live.choices_left == 0) {
    live.ticket.reset();
    batch_.ended.push_back(std::move(owner));
  }
}

void EngineLoop::publish_report() {
  const EngineState& state = core_->state();
  counts_.num_running = static_cast<int32_t>(state.running.size()) + state.num_draining;
  counts_.num_waiting = state.num_queued;
  counts_.num_blocks = state.pool.num_usable();
  counts_.num_free_blocks = state.pool.num_free();
  counts_.num_cached_blocks = state.pool.num_cached();
  counts_.choices_submitted = state.stats.submitted;
  counts_.preemptions = state.stats.preemptions;
  counts_.prompt_tokens = state.stats.prompt_tokens;
  counts_.prompt_tokens_cached = state.stats.prompt_tokens_cached;
  counts_.prefix_blocks_evicted = state.index.stats().evicted_blocks - state.stats.blocks_flushed;
  counts_.prefix_blocks_flushed = state.stats.blocks_flushed;
  counts_.output_tokens = state.stats.tokens_out;
  counts_.tokens_run = state.stats.tokens_run;
  counts_.dummy_steps = state.stats.dummy_steps;
  counts_.steps_replayed = state.stats.steps_replayed;
  static_assert(EngineReport::kMaxDrafts <= EngineStats::kCountedDrafts);
  std::copy_n(state.stats.drafts_checked.begin(), EngineReport::kMaxDrafts, counts_.drafts_checked.begin());
  std::copy_n(state.stats.drafts_accepted.begin(), EngineReport::kMaxDrafts, counts_.drafts_accepted.begin());
  std::copy_n(state.stats.draft_lengths.begin(), EngineReport::kMaxDrafts + 1, counts_.draft_lengths.begin());
  const std::lock_guard lock(mutex_);
  report_ = counts_;
}

}  // namespace lantern
