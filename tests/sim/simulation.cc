#include "simulation.h"

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "engine/invariants.h"

namespace lantern {
namespace {

constexpr int32_t kStopToken = 0;
// Steps that a request may stay at most. With the sizes of random_settings() the longest of a million steps is about
// 400.
constexpr int64_t kMostSteps = 1500;

// Where the output's reader finds its end, as with a stop string: a property of the text.
bool reader_stops(TextHash text) { return text % 61 == 5; }

}  // namespace

std::string to_string(const SimEvent& event) {
  static constexpr const char* kNames[] = {"submit", "cancel", "begin", "finish", "wait", "refuse"};
  return fmt::format("{}({},{},{},{})", kNames[static_cast<size_t>(event.kind)], event.a, event.b, event.c, event.d);
}

SimEvent random_event(std::mt19937_64& random, double arrivals) {
  SimEvent event;
  const uint64_t bits = random();
  event.a = static_cast<uint8_t>(bits);
  event.b = static_cast<uint8_t>(bits >> 8);
  event.c = static_cast<uint8_t>(bits >> 16);
  event.d = static_cast<uint8_t>(bits >> 24);
  const double what = std::uniform_real_distribution<>(0, 1)(random);
  if (what < arrivals) {
    event.kind = EventKind::kSubmit;
  } else if (what < arrivals * 1.25) {
    event.kind = EventKind::kCancel;
  } else if (what > 0.99) {
    event.kind = EventKind::kRefuse;
  } else if (what > 0.96) {
    event.kind = EventKind::kWait;
  } else {
    event.kind = bits >> 63 ? EventKind::kBegin : EventKind::kFinish;
  }
  return event;
}

SimSettings random_settings(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int32_t lowest, int32_t highest) {
    return std::uniform_int_distribution<int32_t>(lowest, highest)(random);
  };
  SimSettings sim;
  EngineSettings& engine = sim.engine;
  StepLimits& limits = engine.limits;
  limits.block_size = 1 << pick(0, 3);
  limits.max_requests = pick(1, 6);
  limits.max_query_len = pick(1, 4);
  limits.max_tokens = limits.max_requests * limits.max_query_len + pick(0, 24);
  limits.max_model_len = pick(8, 64);
  limits.max_blocks_per_request = engine.blocks_for(limits.max_model_len);
  limits.num_blocks = 1 + pick(2, 2 * limits.max_blocks_per_request + 4);
  engine.max_queued = pick(4, 24);
  engine.prefix_caching = pick(0, 4) > 0;
  engine.max_steps_in_flight = pick(1, 2);
  engine.decode_share = pick(0, 3) * 0.3;
  engine.max_partial_prefills = pick(1, 3);
  engine.watermark_blocks = pick(0, 2);
  engine.max_preemptions = pick(0, 3);
  engine.max_overtakes = pick(0, 8);
  engine.priority_step = EngineTime(pick(0, 200));
  engine.deadline_slack = EngineTime(pick(0, 50));
  engine.adaptive_drafts = pick(0, 1) == 1;
  engine.step_cost.step = TokenCost::linear(1.0, pick(0, 1) == 1 ? 0.005 : 0.2);
  sim.executor.acceptance = pick(0, 4) * 0.25;
  sim.executor.not_finite = pick(0, 3) == 0 ? 0.01 : 0;
  sim.executor.late = pick(0, 3) > 0;
  sim.executor.seed = seed;
  sim.arrivals = pick(1, 5) * 0.05;
  engine.max_logprobs = pick(-1, 3);
  engine.vocab_size = sim.executor.vocab;
  limits.index_topk = pick(1, 2);
  const int32_t traced = pick(-4, 12);
  engine.max_traced_rows = traced < 1 ? 0 : std::max(traced, limits.max_query_len);
  return sim;
}

void SimTotals::add(const SimTotals& other) {
  steps += other.steps;
  decode_rows += other.decode_rows;
  prefill_rows += other.prefill_rows;
  for (size_t i = 0; i < std::size(ends_by_reason); ++i) ends_by_reason[i] += other.ends_by_reason[i];
  preemptions += other.preemptions;
  cached_tokens += other.cached_tokens;
  drafts_accepted += other.drafts_accepted;
  blocks_copied += other.blocks_copied;
  forks += other.forks;
  overtakes += other.overtakes;
  refused_steps += other.refused_steps;
  rows_with_results_dropped += other.rows_with_results_dropped;
  fully_reserved += other.fully_reserved;
  constrained += other.constrained;
  dummy_steps += other.dummy_steps;
  prompt_tokens_scored += other.prompt_tokens_scored;
  tokens_traced += other.tokens_traced;
  tokens_not_traced += other.tokens_not_traced;
  constraint_failures += other.constraint_failures;
  longest_wait = std::max(longest_wait, other.longest_wait);
}

Simulation::Simulation(const SimSettings& settings)
    : settings_(settings),
      executor_(settings.engine, settings.executor),
      second_scheduler_(settings.engine),
      second_schedule_(settings.engine),
      engine_(settings.engine, HashKey::from_seed(settings.executor.seed), executor_, this) {}

Simulation::~Simulation() = default;

Request Simulation::make_request(const SimEvent& event) const {
  const EngineSettings& engine = settings_.engine;
  Request request;
  // Three families of prompts share their beginnings; the rest comes from the event.
  const int32_t length = 1 + event.b % std::max(engine.limits.max_model_len - 1, 1);
  for (int32_t i = 0; i < length; ++i) {
    const bool common = i < (event.a >> 4) * 3;
    request.prompt.push_back(1 + (common ? (i * 7 + event.a % 3) : (i * 5 + event.c + event.d)) % 19);
  }
  request.max_tokens = 1 + event.c % 24;
  request.n = event.d % 8 == 0 ? 1 + (event.d >> 3) % 4 : 1;
  request.n = std::min(request.n, engine.limits.max_requests);
  request.sampling.seed = event.a % 4;
  request.stop_token_ids = {kStopToken};
  request.ignore_stop_tokens = event.c % 5 == 0;
  request.min_tokens = std::min(event.d % 3, request.max_tokens);
  request.priority = event.d % 5 == 1 ? event.c % 4 : 0;
  if (event.d % 11 == 3) request.deadline = now_ + EngineTime(event.b);
  if (event.a % 7 == 1) request.cache_salt = "other";
  if (event.b % 6 == 2) request.constraint = std::make_shared<FakeConstraint>(settings_.executor.vocab);
  // More than the engine gives is refused.
  if (event.c % 4 == 1) request.logprobs = event.d % 5;
  request.trace_selections = event.b % 3 == 1 && (engine.max_traced_rows > 0 || event.c % 8 == 0);
  if (event.d % 4 == 2) request.prompt_logprobs = std::min(event.c % 3, std::max(engine.max_logprobs, 0));
  return request;
}

void Simulation::submit(Request request) {
  auto shared = std::make_shared<const Request>(std::move(request));
  Result<RequestId> id = engine_.submit(shared, now_);
  if (!id.ok()) {  // what can never be served, or a full queue: refused, with a reason
    if (id.error().message().empty()) complain("a request was refused without a word");
    return;
  }
  const auto n = static_cast<size_t>(shared->n);
  totals_.constrained += shared->constraint != nullptr ? 1 : 0;
  watched_[*id] = {shared,
                   totals_.steps,
                   std::vector<int32_t>(n),
                   std::vector<bool>(n),
                   std::vector<bool>(n),
                   std::vector<int32_t>(n)};
  watched_[*id].traced.resize(n);
  watched_[*id].constraint = std::dynamic_pointer_cast<FakeConstraint>(shared->constraint);
  submitted_.push_back(*id);
  if (submitted_.size() > 16) submitted_.erase(submitted_.begin());
}

void Simulation::cancel(size_t which) {
  if (submitted_.empty()) return;
  const RequestId id = submitted_[which % submitted_.size()];
  const bool lived = watched_.contains(id);
  const bool cancelled = engine_.cancel(id);
  if (lived && !cancelled) complain("request {} lives and cannot be cancelled", id);
  if (watched_.contains(id)) complain("F4: request {} was cancelled and has not ended", id);
}

int32_t Simulation::expected_token(const Sequence& sequence, TextHash text, int32_t position) const {
  const int32_t vocab = settings_.executor.vocab;
  if (!sequence.constrained()) return next_token(text, sequence.seed(), vocab);
  return next_allowed_token(text, sequence.seed(), vocab,
                            sequence.outputs().first(static_cast<size_t>(position - sequence.prompt_len)));
}

OutputSink::Verdict Simulation::on_tokens(const Sequence& sequence, int32_t count) {
  const auto it = watched_.find(sequence.request_id);
  if (it == watched_.end()) {
    complain("F4: tokens for request {}, which has ended", sequence.request_id);
    return {count, false};
  }
  Watched& watched = it->second;
  const auto choice = static_cast<size_t>(sequence.choice);
  if (watched.ended[choice]) complain("F4: tokens for a choice that has ended");
  if (sequence.num_outputs() != watched.seen[choice] + count) {
    complain("F5: {} tokens came, {} are new, and there are {}", watched.seen[choice], count, sequence.num_outputs());
  }
  TextHash text = empty_text(watched.request->cache_salt);
  const int32_t old_tokens = sequence.num_tokens() - count;
  for (int32_t i = 0; i < sequence.num_tokens(); ++i) {
    const int32_t token = sequence.tokens[static_cast<size_t>(i)];
    if (i < sequence.prompt_len && token != watched.request->prompt[static_cast<size_t>(i)]) {
      complain("F5: the prompt has changed");
    }
    // What a hook allowed is looked at once: its answer takes the whole output.
    const bool looked_at = i < sequence.prompt_len || (sequence.constrained() && i < old_tokens);
    if (!looked_at && token != expected_token(sequence, text, i)) {
      complain("F5: output token {} of choice {} is not the one that the text leads to", i - sequence.prompt_len,
               choice);
    }
    text = append(text, token);
    if (i >= old_tokens && reader_stops(text)) {
      watched.told_to_stop[choice] = true;
      watched.seen[choice] += i + 1 - old_tokens;
      return {i + 1 - old_tokens, true};
    }
  }
  watched.seen[choice] += count;
  return {count, false};
}

void Simulation::on_logprobs(const Sequence& sequence, const LogprobRows& rows) {
  const auto it = watched_.find(sequence.request_id);
  if (it == watched_.end())
    return complain("F4: log-probabilities for request {}, which has ended", sequence.request_id);
  const auto count = static_cast<int32_t>(rows.size());
  int32_t& seen = it->second.logprobs[static_cast<size_t>(sequence.choice)];
  seen += count;
  if (seen != it->second.seen[static_cast<size_t>(sequence.choice)])
    complain("F6: {} tokens have {}", it->second.seen[static_cast<size_t>(sequence.choice)], seen);
  if (rows.width != settings_.engine.max_logprobs) complain("F6: rows of {} tokens", rows.width);
  TextHash text = empty_text(it->second.request->cache_salt);
  for (int32_t i = 0; i < sequence.num_tokens(); ++i) {
    const int32_t token = sequence.tokens[static_cast<size_t>(i)];
    const int32_t row = i - (sequence.num_tokens() - count);
    if (row >= 0 && rows.logprobs[static_cast<size_t>(row)] != fake_logprob(text, token)) {
      complain("F6: token {} of choice {} comes with the log-probability of another", i, sequence.choice);
    }
    text = append(text, token);
  }
}

void Simulation::on_prompt_logprobs(const Sequence& sequence, const LogprobRows& rows) {
  const auto it = watched_.find(sequence.request_id);
  if (it == watched_.end())
    return complain("F4: log-probabilities for request {}, which has ended", sequence.request_id);
  Watched& watched = it->second;
  const std::vector<int32_t>& prompt = watched.request->prompt;
  TextHash text = empty_text(watched.request->cache_salt);
  for (int32_t p = 0; p < watched.scored; ++p) text = append(text, prompt[static_cast<size_t>(p)]);
  for (const float logprob : rows.logprobs) {
    const auto at = static_cast<size_t>(watched.scored++);
    if (at + 1 >= prompt.size()) return complain("F6: more tokens are scored than the prompt has");
    text = append(text, prompt[at]);
    if (logprob != fake_logprob(text, prompt[at + 1])) {
      complain("F6: token {} of a prompt comes with the log-probability of another", at + 1);
    }
  }
  if (watched.seen[0] > 0) complain("F6: the prompt is scored after the first token came");
  if (sequence.num_scored != watched.scored) complain("F6: {} tokens came of {}", watched.scored, sequence.num_scored);
}

void Simulation::on_selections(const Sequence& sequence, int32_t count, std::span<const int32_t> records) {
  const auto it = watched_.find(sequence.request_id);
  if (it == watched_.end()) return complain("F4: selections for request {}, which has ended", sequence.request_id);
  int32_t& seen = it->second.traced[static_cast<size_t>(sequence.choice)];
  seen += count;
  if (seen != it->second.seen[static_cast<size_t>(sequence.choice)])
    complain("F7: {} tokens came with {} selections", it->second.seen[static_cast<size_t>(sequence.choice)], seen);
  const auto words = static_cast<size_t>(settings_.engine.traced_record_words());
  (records.empty() ? totals_.tokens_not_traced : totals_.tokens_traced) += count;
  if (!records.empty() && records.size() != static_cast<size_t>(count) * words)
    complain("F7: {} words for {} tokens", records.size(), count);
  int32_t position = sequence.num_tokens() - count - 1;  // of the token before the first
  for (; !records.empty(); records = records.subspan(words), ++position) {
    if (records[0] != 1 || records[1] != position)
      complain("F7: the token behind position {} comes with the selection of position {}", position, records[1]);
  }
}

void Simulation::on_end(const Sequence& sequence) {
  const auto it = watched_.find(sequence.request_id);
  if (it == watched_.end() || it->second.ended[static_cast<size_t>(sequence.choice)]) {
    complain("F4: a choice of request {} ends twice", sequence.request_id);
    return;
  }
  Watched& watched = it->second;
  const auto choice = static_cast<size_t>(sequence.choice);
  watched.ended[choice] = true;
  ++totals_.ends_by_reason[static_cast<size_t>(sequence.end_reason)];
  const Request& request = *watched.request;
  const int32_t with_logprobs = request.logprobs >= 0 ? watched.seen[choice] : 0;
  if (watched.logprobs[choice] != with_logprobs) {
    complain("F6: {} of {} tokens came with log-probabilities", watched.logprobs[choice], with_logprobs);
  }
  const int32_t with_selections = request.trace_selections ? watched.seen[choice] : 0;
  if (watched.traced[choice] != with_selections)
    complain("F7: {} of {} tokens came with selections", watched.traced[choice], with_selections);
  const int32_t scored = request.prompt_logprobs >= 0 && watched.seen[0] > 0 ? sequence.prompt_len - 1 : 0;
  if (watched.scored < scored) complain("F6: {} tokens of a prompt were scored, not {}", watched.scored, scored);
  const bool stop_token = sequence.num_outputs() > 0 && sequence.tokens.back() == kStopToken &&
                          !request.ignore_stop_tokens && sequence.num_outputs() >= request.min_tokens;
  switch (sequence.end_reason) {
    case EndReason::kStop:
      if (!stop_token && !watched.told_to_stop[choice]) complain("F4: a choice stops for no reason");
      break;
    case EndReason::kLength:
      if (sequence.num_tokens() != sequence.max_len)
        complain("F4: {} tokens of {}", sequence.num_tokens(), sequence.max_len);
      break;
    case EndReason::kDeadline:
      if (request.deadline > now_) complain("F4: ended before its deadline");
      break;
    case EndReason::kFailed: {
      const bool hook =
          sequence.constrained() && FakeConstraint::answer_to(sequence.outputs()) != FakeConstraint::Answer::kSome;
      if (!hook && settings_.executor.not_finite == 0) complain("F4: failed for no reason");
      if (sequence.failure.empty()) complain("F4: failed without a word");
      totals_.constraint_failures += hook ? 1 : 0;
      break;
    }
    case EndReason::kNone: complain("F4: ended for no reason"); break;
    default: break;
  }
  if (std::ranges::all_of(watched.ended, [](bool ended) { return ended; })) {
    totals_.longest_wait = std::max(totals_.longest_wait, totals_.steps - watched.since_step);
    watched_.erase(it);
  }
}

void Simulation::plan_twice() {
  const EngineState& state = engine_.state();
  const StepBudget budget = Scheduler::full_budget(settings_.engine);
  const bool expires = !state.deadlines.empty() && state.deadlines.first_key() <= now_;
  planned_twice_ = !expires && engine_.can_submit_step();
  if (!planned_twice_) return;
  second_scheduler_.plan(state, budget, now_, second_schedule_);
  if (auto violation = find_violation(state, second_schedule_, budget)) complain("{}", *violation);
}

void Simulation::begin() {
  plan_twice();
  const StepStart start = engine_.begin_step(now_);
  if (start == StepStart::kNotAccepted) ++totals_.refused_steps;
  if (start == StepStart::kIdle && !engine_.idle()) complain("F1: idle with sequences alive");
  if (start == StepStart::kStarted) note_step();
}

StepWish Simulation::plan() {
  if (!engine_.can_submit_step()) finish();
  plan_twice();
  const StepPlan plan = engine_.plan_step(now_, Scheduler::full_budget(settings_.engine));
  if (plan == StepPlan::kIdle && !engine_.idle()) complain("F1: idle with sequences alive");
  StepWish wish;
  if (plan == StepPlan::kReady) wish.shape = engine_.planned_shape();
  wish.busy = !engine_.idle() || engine_.steps_in_flight() > 0;
  wish.launches_digest = engine_.launches_digest();
  return wish;
}

void Simulation::run(const StepShape& shape) {
  if (engine_.submit_step(shape) == StepStart::kNotAccepted) {
    ++totals_.refused_steps;
    engine_.drop_step();
    while (engine_.steps_in_flight() > 0) finish();
    if (engine_.submit_step(shape) != StepStart::kStarted) complain("the dummy was refused");
  }
  note_step();
}

void Simulation::note_step() {
  const StepTransaction& step = engine_.in_flight(engine_.steps_in_flight() - 1);
  if (auto violation = find_violation(step.batch(), settings_.engine)) complain("{}", *violation);
  if (step.schedule().rows.empty()) {
    ++totals_.dummy_steps;
    return;
  }
  ++totals_.steps;
  if (planned_twice_ && !second_schedule_.rows.empty() && step.schedule().digest() != second_schedule_.digest()) {
    complain("P5: two schedules of one state differ");
  }
  totals_.decode_rows += step.batch().num_decodes;
  totals_.prefill_rows += static_cast<int64_t>(step.batch().rows.size()) - step.batch().num_decodes;
  for (const Admission& admission : step.schedule().admitted)
    totals_.fully_reserved += admission.fully_reserved ? 1 : 0;
}

void Simulation::finish() {
  if (engine_.steps_in_flight() == 0) return;
  for (const StepRow& row : engine_.in_flight(0).schedule().rows) {
    totals_.rows_with_results_dropped += engine_.state().at(row.sequence).phase == SequencePhase::kRetiring ? 1 : 0;
  }
  if (Status finished = engine_.finish_step(); !finished.ok()) complain("{}", finished.error().message());
}

std::optional<std::string> Simulation::check() {
  if (auto violation = find_violation(engine_)) complain("{}", *violation);
  if (executor_.fault()) complain("{}", *executor_.fault());
  for (const auto& [id, watched] : watched_) {
    if (watched.constraint != nullptr && watched.constraint->fault()) complain("{}", *watched.constraint->fault());
  }
  for (const auto& [id, watched] : watched_) {
    if (totals_.steps - watched.since_step > kMostSteps) complain("F2: request {} has waited {} steps", id, kMostSteps);
  }
  return fault_;
}

std::optional<std::string> Simulation::apply(const SimEvent& event) {
  switch (event.kind) {
    case EventKind::kSubmit: submit(make_request(event)); break;
    case EventKind::kCancel: cancel(event.a); break;
    case EventKind::kBegin: begin(); break;
    case EventKind::kFinish: finish(); break;
    case EventKind::kWait: now_ += EngineTime(event.a % 32); break;
    case EventKind::kRefuse: executor_.refuse_next(); break;
  }
  now_ += EngineTime(1);
  return check();
}

std::optional<std::string> Simulation::drain() {
  for (int64_t turn = 0; !engine_.idle(); ++turn) {
    if (turn > 20 * kMostSteps) return "F1: does not come to an end";
    if (auto fault = apply({.kind = EventKind::kBegin})) return fault;
    if (auto fault = apply({.kind = EventKind::kFinish})) return fault;
  }
  while (engine_.steps_in_flight() > 0) {
    if (auto fault = apply({.kind = EventKind::kFinish})) return fault;
  }
  if (!watched_.empty()) return "F4: requests have not ended";
  return find_leak(engine_.state());
}

SimTotals Simulation::totals() const {
  SimTotals totals = totals_;
  const EngineStats& stats = engine_.state().stats;
  totals.preemptions = stats.preemptions;
  totals.cached_tokens = stats.prompt_tokens_cached;
  totals.forks = stats.forks;
  totals.overtakes = stats.overtakes;
  totals.drafts_accepted = executor_.drafts_accepted();
  totals.blocks_copied = executor_.blocks_copied();
  totals.prompt_tokens_scored = executor_.tokens_scored();
  return totals;
}

std::string Simulation::describe() const {
  const EngineState& state = engine_.state();
  std::string text = executor_.describe();
  for (const Sequence& sequence : state.sequences) {
    if (sequence.phase == SequencePhase::kUnused) continue;
    text += fmt::format("({} {} {} {} {} {} {} {} {} {}:", sequence.request_id, static_cast<int>(sequence.phase),
                        sequence.num_tokens(), sequence.num_computed, sequence.next_upper, sequence.steps_in_flight,
                        sequence.num_preemptions, sequence.num_overtakes, sequence.slot, sequence.drafts_ready);
    for (const BlockLease& lease : sequence.blocks) text += fmt::format(" {}", lease.id());
    text += ')';
  }
  for (BlockId block = 1; block < state.pool.num_blocks(); ++block) {
    text += fmt::format("{}{}", static_cast<int>(state.pool.state(block)), state.pool.indexed(block) ? 'i' : '-');
  }
  for (BlockId block = state.pool.next_cached(0); block != 0; block = state.pool.next_cached(block)) {
    text += fmt::format(",{}", block);
  }
  return text;
}

std::optional<std::string> run_episodes(uint64_t first_seed, int64_t steps, SimTotals& totals) {
  static uint64_t current_seed;
  std::signal(SIGABRT, [](int) { std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(current_seed)); });
  for (uint64_t seed = first_seed; totals.steps < steps; ++seed) {
    current_seed = seed;
    const SimSettings settings = random_settings(seed);
    Simulation simulation(settings);
    std::mt19937_64 random(seed * 977 + 1);
    std::optional<std::string> fault;
    for (int i = 0; i < 3000 && !fault; ++i) fault = simulation.apply(random_event(random, settings.arrivals));
    if (!fault) fault = simulation.drain();
    totals.add(simulation.totals());
    if (fault) return fmt::format("seed {}: {}", seed, *fault);
  }
  return std::nullopt;
}

}  // namespace lantern
