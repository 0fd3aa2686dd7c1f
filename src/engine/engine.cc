#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <utility>

#include "engine/engine_loop.h"
#include "engine/rank_router.h"

namespace lantern {

double EngineReport::acceptance() const {
  int64_t checked = 0;
  int64_t accepted = 0;
  for (size_t i = 0; i < kMaxDrafts; ++i) {
    checked += drafts_checked[i];
    accepted += drafts_accepted[i];
  }
  return checked > 0 ? static_cast<double>(accepted) / static_cast<double>(checked)
                     : std::numeric_limits<double>::quiet_NaN();
}

EngineReport& EngineReport::operator+=(const EngineReport& other) {
  const auto add = [&](auto EngineReport::* counter) { this->*counter += other.*counter; };
  for (const auto counter : {&EngineReport::num_running, &EngineReport::num_waiting, &EngineReport::num_blocks,
                             &EngineReport::num_free_blocks, &EngineReport::num_cached_blocks}) {
    add(counter);
  }
  for (const auto counter :
       {&EngineReport::choices_submitted, &EngineReport::preemptions, &EngineReport::prompt_tokens,
        &EngineReport::prompt_tokens_cached, &EngineReport::prefix_blocks_evicted, &EngineReport::prefix_blocks_flushed,
        &EngineReport::output_tokens, &EngineReport::tokens_run, &EngineReport::steps, &EngineReport::dummy_steps,
        &EngineReport::steps_replayed, &EngineReport::steps_refused, &EngineReport::step_tokens}) {
    add(counter);
  }
  for (const auto counter :
       {&EngineReport::step_seconds, &EngineReport::executor_seconds, &EngineReport::overhead_seconds}) {
    add(counter);
  }
  last_step_seconds = std::max(last_step_seconds, other.last_step_seconds);
  for (size_t i = 0; i < choices_ended.size(); ++i) choices_ended[i] += other.choices_ended[i];
  for (size_t i = 0; i < kMaxDrafts; ++i) {
    drafts_checked[i] += other.drafts_checked[i];
    drafts_accepted[i] += other.drafts_accepted[i];
  }
  for (size_t i = 0; i < draft_lengths.size(); ++i) draft_lengths[i] += other.draft_lengths[i];
  for (size_t i = 0; i < steps_by_tokens.size(); ++i) steps_by_tokens[i] += other.steps_by_tokens[i];
  return *this;
}

void EngineReport::add_step(int32_t tokens) {
  ++steps;
  step_tokens += tokens;
  ++steps_by_tokens[static_cast<size_t>(std::ranges::lower_bound(kStepTokenBounds, tokens) - kStepTokenBounds.begin())];
}

std::string StepInFlight::text() const {
  return fmt::format(
      "step {} of rank {}: {} decodes and {} prefills, {} tokens in a launch of {}, {} passes of the "
      "drafter",
      number, rank, decodes, prefills, tokens, launched_tokens, draft_passes);
}

RequestHandle::RequestHandle(std::weak_ptr<EngineLoop> loop, std::shared_ptr<LiveRequest> live)
    : loop_(std::move(loop)), live_(std::move(live)) {}

void RequestHandle::cancel() const {
  if (const std::shared_ptr<EngineLoop> loop = loop_.lock()) loop->cancel(live_);
}

// What came and was not read: at most one output for each choice, in the order in which they began.
void Output::add_tokens(const std::vector<int32_t>& more, const std::vector<int32_t>& more_drafted) {
  const auto before = static_cast<int32_t>(tokens.size());
  for (const int32_t place : more_drafted) drafted.push_back(before + place);
  tokens.insert(tokens.end(), more.begin(), more.end());
}

struct TokenStream::Queue {
  std::mutex mutex;
  std::condition_variable something_came;
  std::vector<Output> unread;   // by choice
  std::deque<int32_t> choices;  // whose output in `unread` waits
  int32_t num_open = 0;         // choices whose last output has not come
  bool abandoned = false;       // nobody will read

  explicit Queue(int32_t n) : unread(static_cast<size_t>(n)), num_open(n) {}

  void put(Output&& output) {
    {
      const std::lock_guard lock(mutex);
      if (output.ended()) --num_open;
      if (abandoned) return;
      Output& to = unread[static_cast<size_t>(output.choice)];
      const bool waits = std::ranges::find(choices, output.choice) != choices.end();
      if (waits) {
        to.add_tokens(output.tokens, output.drafted);
        output.tokens = std::move(to.tokens);
        output.drafted = std::move(to.drafted);
        output.text = std::move(to.text) + output.text;
        join(to.logprobs, output.logprobs);
        join(to.prompt_logprobs, output.prompt_logprobs);
        to.selections.append(output.selections);
        output.selections = std::move(to.selections);
      } else {
        choices.push_back(output.choice);
      }
      to = std::move(output);
    }
    something_came.notify_one();
  }

  // `later` becomes both, one behind the other.
  static void join(Logprobs& earlier, Logprobs& later) {
    if (earlier.empty()) return;
    earlier.append(later.rows(0, later.size()));
    later = std::move(earlier);
  }

  bool has_something() const { return !choices.empty() || num_open == 0; }

  Wait take(Output& output) {
    if (choices.empty()) return Wait::kEnd;
    output = std::exchange(unread[static_cast<size_t>(choices.front())], Output{});
    choices.pop_front();
    return Wait::kOutput;
  }
};

TokenStream::TokenStream(TokenStream&&) noexcept = default;

TokenStream& TokenStream::operator=(TokenStream&& other) noexcept {
  if (this != &other) {
    TokenStream gone(std::move(*this));
    queue_ = std::move(other.queue_);
    request_ = std::move(other.request_);
  }
  return *this;
}

TokenStream::~TokenStream() {
  if (queue_ == nullptr) return;
  bool open = false;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->abandoned = true;
    open = queue_->num_open > 0;
  }
  if (open) request_.cancel();
}

bool TokenStream::next(Output& output) {
  std::unique_lock lock(queue_->mutex);
  queue_->something_came.wait(lock, [&] { return queue_->has_something(); });
  return queue_->take(output) == Wait::kOutput;
}

TokenStream::Wait TokenStream::next_for(Output& output, std::chrono::milliseconds timeout) {
  std::unique_lock lock(queue_->mutex);
  if (!queue_->something_came.wait_for(lock, timeout, [&] { return queue_->has_something(); })) return Wait::kTimeout;
  return queue_->take(output);
}

void TokenStream::cancel() { request_.cancel(); }

namespace {

// How long a rank waits for the others' next step before it takes them for dead. The longest step there is, a full one
// of a large model on a slow machine, takes a fraction of that.
constexpr std::chrono::minutes kRankTimeout{10};

// Whatever shape the ranks agree on must fit each of them.
Status check_alike(const EngineSettings& a, const EngineSettings& b) {
  const auto differ = [](const char* name, int32_t first, int32_t other) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} is {} on one rank and {} on another; give all ranks the same", name, first, other));
  };
  const StepLimits& x = a.limits;
  const StepLimits& y = b.limits;
  if (x.max_tokens != y.max_tokens) return differ("max_tokens", x.max_tokens, y.max_tokens);
  if (x.max_requests != y.max_requests) return differ("max_requests", x.max_requests, y.max_requests);
  if (x.max_query_len != y.max_query_len) return differ("max_query_len", x.max_query_len, y.max_query_len);
  if (x.max_model_len != y.max_model_len) return differ("max_model_len", x.max_model_len, y.max_model_len);
  if (x.block_size != y.block_size) return differ("block_size", x.block_size, y.block_size);
  if (x.num_blocks != y.num_blocks) return differ("num_blocks", x.num_blocks, y.num_blocks);
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(Parts parts) {
  std::vector<Parts> ranks;
  ranks.push_back(std::move(parts));
  return create(std::move(ranks));
}

Result<std::unique_ptr<Engine>> Engine::create(std::vector<Parts> ranks) {
  if (ranks.empty()) return Error(ErrorCode::kInvalidArgument, "an engine needs at least one rank; give its parts");
  for (Parts& rank : ranks) {
    ASSIGN_OR_RETURN(rank.settings, EngineSettings::checked(rank.settings));
    RETURN_IF_ERROR(check_alike(ranks.front().settings, rank.settings));
  }
  std::unique_ptr<Engine> engine(new Engine());
  const auto count = static_cast<int32_t>(ranks.size());
  if (count == 1) {
    engine->loops_.push_back(std::make_shared<EngineLoop>(std::move(ranks.front()), EngineRank{}));
    return engine;
  }
  engine->router_ = RankRouter::create(count, ranks.front().settings, ranks.front().hash_key);
  const auto bell = std::make_shared<RankBell>();
  std::vector<std::unique_ptr<Communicator>> communicators = make_thread_communicators(count, kRankTimeout);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    engine->loops_.push_back(std::make_shared<EngineLoop>(
        std::move(ranks[rank]), EngineRank{.communicator = std::move(communicators[rank]), .bell = bell}));
  }
  return engine;
}

Engine::~Engine() {
  for (const auto& loop : loops_) loop->begin_shutdown();
  for (const auto& loop : loops_) loop->shutdown();
}

Result<TokenStream> Engine::submit(EngineRequest request) {
  // More choices than that are refused below.
  const int32_t n = std::clamp(request.request.n, 0, settings().limits.max_requests);
  auto queue = std::make_shared<TokenStream::Queue>(n);
  ASSIGN_OR_RETURN(RequestHandle handle,
                   submit(std::move(request), [queue](Output&& output) { queue->put(std::move(output)); }));
  TokenStream stream(std::move(queue));
  stream.request_ = std::move(handle);
  return stream;
}

Result<RequestHandle> Engine::submit(EngineRequest request, OnOutput on_output) {
  std::unique_ptr<RankRouter::Ticket> ticket;
  if (router_ != nullptr) {
    std::vector<uint8_t> full;
    full.reserve(loops_.size());
    for (const auto& loop : loops_) full.push_back(loop->has_room(request.request.n) ? 0 : 1);
    ticket = router_->choose(request.request, full);
  }
  const std::shared_ptr<EngineLoop>& loop = loops_[ticket == nullptr ? 0 : static_cast<size_t>(ticket->rank())];
  ASSIGN_OR_RETURN(std::shared_ptr<LiveRequest> live,
                   loop->submit(std::move(request), std::move(on_output), std::move(ticket)));
  return RequestHandle(loop, std::move(live));
}

void Engine::forget_prefixes() {
  for (const auto& loop : loops_) loop->forget_prefixes();
}

void Engine::pause() {
  for (const auto& loop : loops_) loop->pause();
}
void Engine::resume() {
  for (const auto& loop : loops_) loop->resume();
}

void Engine::start_profile() {
  for (const auto& loop : loops_) loop->start_profile();
}
std::optional<EngineProfile> Engine::stop_profile() {
  std::optional<EngineProfile> all;
  for (size_t rank = 0; rank < loops_.size(); ++rank) {
    std::optional<EngineProfile> one = loops_[rank]->stop_profile();
    if (!one) continue;
    for (ProfiledStep& step : one->steps) step.step.rank = static_cast<int32_t>(rank);
    if (!all) {
      all = std::move(one);
      continue;
    }
    all->steps.insert(all->steps.end(), one->steps.begin(), one->steps.end());
    all->steps_lost += one->steps_lost;
  }
  return all;
}

bool Engine::drain(std::optional<std::chrono::milliseconds> timeout) {
  const auto start = std::chrono::steady_clock::now();
  for (const auto& loop : loops_) loop->begin_drain();
  for (const auto& loop : loops_) {
    std::optional<std::chrono::milliseconds> left = timeout;
    if (left) {
      const auto passed =
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
      left = std::max(*left - passed, std::chrono::milliseconds(0));
    }
    if (!loop->wait_until_drained(left)) return false;
  }
  return true;
}

EngineReport Engine::report() const {
  EngineReport sum = loops_.front()->report();
  for (size_t rank = 1; rank < loops_.size(); ++rank) sum += loops_[rank]->report();
  return sum;
}
std::vector<EngineReport> Engine::rank_reports() const {
  std::vector<EngineReport> reports;
  reports.reserve(loops_.size());
  for (const auto& loop : loops_) reports.push_back(loop->report());
  return reports;
}
std::vector<StepInFlight> Engine::steps_in_flight() const {
  std::vector<StepInFlight> all;
  for (size_t rank = 0; rank < loops_.size(); ++rank) {
    for (StepInFlight& step : loops_[rank]->steps_in_flight()) {
      step.rank = static_cast<int32_t>(rank);
      all.push_back(step);
    }
  }
  return all;
}
std::optional<Error> Engine::lost() const {
  for (const auto& loop : loops_) {
    if (std::optional<Error> lost = loop->lost()) return lost;
  }
  return std::nullopt;
}
const EngineSettings& Engine::settings() const { return loops_.front()->settings(); }
const Tokenizer* Engine::tokenizer() const { return loops_.front()->tokenizer(); }

}  // namespace lantern
