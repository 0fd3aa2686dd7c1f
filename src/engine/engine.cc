#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <utility>

#include "engine/engine_loop.h"

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

RequestHandle::RequestHandle(std::weak_ptr<EngineLoop> loop, std::shared_ptr<LiveRequest> live)
    : loop_(std::move(loop)), live_(std::move(live)) {}

void RequestHandle::cancel() const {
  if (const std::shared_ptr<EngineLoop> loop = loop_.lock()) loop->cancel(live_);
}

// What came and was not read: at most one output for each choice, in the order in which they began.
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
        to.tokens.insert(to.tokens.end(), output.tokens.begin(), output.tokens.end());
        output.tokens = std::move(to.tokens);
        output.text = std::move(to.text) + output.text;
        join(to.logprobs, output.logprobs);
        join(to.prompt_logprobs, output.prompt_logprobs);
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

Result<std::unique_ptr<Engine>> Engine::create(Parts parts) {
  ASSIGN_OR_RETURN(parts.settings, EngineSettings::checked(parts.settings));
  return std::unique_ptr<Engine>(new Engine(std::make_shared<EngineLoop>(std::move(parts))));
}

Engine::~Engine() { loop_->shutdown(); }

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
  ASSIGN_OR_RETURN(std::shared_ptr<LiveRequest> live, loop_->submit(std::move(request), std::move(on_output)));
  return RequestHandle(loop_, std::move(live));
}

bool Engine::drain(std::optional<std::chrono::milliseconds> timeout) { return loop_->drain(timeout); }
EngineReport Engine::report() const { return loop_->report(); }
std::optional<Error> Engine::lost() const { return loop_->lost(); }
const EngineSettings& Engine::settings() const { return loop_->settings(); }
const Tokenizer* Engine::tokenizer() const { return loop_->tokenizer(); }

}  // namespace lantern
