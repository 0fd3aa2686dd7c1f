// Sends the requests of `bench serve` at their times and reads the streams of answers.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

#include "cli/answer_events.h"
#include "cli/bench_serve.h"
#include "cli/console.h"

namespace lantern::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLookForInterrupt = std::chrono::milliseconds(100);

// Reads one answer into its record; on the client's thread alone, until its end.
class AnswerRecorder {
 public:
  AnswerRecorder(ServeRecord& record, Clock::time_point start)
      : record_(record), start_(start), events_([this](const OutputDelta& piece) {
          record_.token_seconds.push_back(now_);
          record_.text += piece.reasoning + piece.content;
        }) {}
  AnswerRecorder(const AnswerRecorder&) = delete;
  AnswerRecorder& operator=(const AnswerRecorder&) = delete;

  void head(int32_t status) { events_.head(status); }
  void data(std::string_view part) {
    now_ = std::chrono::duration<double>(Clock::now() - start_).count();
    events_.data(part);
  }
  void end(const Status& status) {
    record_.error = events_.end(status);
    const AnswerUsage& usage = events_.usage();
    record_.input_tokens = usage.prompt_tokens;
    record_.cached_tokens = usage.cached_tokens;
    record_.output_tokens =
        usage.completion_tokens > 0 ? usage.completion_tokens : static_cast<int64_t>(record_.token_seconds.size());
  }

 private:
  ServeRecord& record_;
  Clock::time_point start_;
  double now_ = 0;
  AnswerEvents events_;
};

}  // namespace

std::vector<double> arrival_times(int64_t count, double rate, double burstiness, uint64_t seed) {
  std::vector<double> times(static_cast<size_t>(count), 0);
  if (std::isinf(rate)) return times;
  std::mt19937_64 random(seed);
  std::gamma_distribution<double> interval(burstiness, 1 / (rate * burstiness));
  for (size_t i = 1; i < times.size(); ++i) times[i] = times[i - 1] + interval(random);
  return times;
}

ServeRun run_load(ServerAccess& server, const ServeTarget& target, const ServeLoad& load,
                  const std::function<void(int64_t)>& done) {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t open = 0;
  int64_t over = 0;
  ServeRun run;
  run.records.resize(load.bodies.size());
  std::vector<uint64_t> calls;
  const Clock::time_point start = Clock::now();
  const auto seconds = [start] { return std::chrono::duration<double>(Clock::now() - start).count(); };

  std::unique_lock lock(mutex);
  for (size_t i = 0; i < load.bodies.size() && !interrupted(); ++i) {
    const auto due =
        start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(load.arrivals[i]));
    while (!interrupted() && (Clock::now() < due || (load.max_concurrency > 0 && open >= load.max_concurrency))) {
      const Clock::time_point look = Clock::now() + kLookForInterrupt;
      changed.wait_until(lock, Clock::now() < due ? std::min(due, look) : look);
      done(over);
    }
    if (interrupted()) break;
    ++open;
    lock.unlock();
    run.records[i].start = seconds();
    const auto recorder = std::make_shared<AnswerRecorder>(run.records[i], start);
    HttpReceiver receiver;
    receiver.head = [recorder](int32_t status, const HttpFields&) { recorder->head(status); };
    receiver.data = [recorder](std::string_view part) {
      recorder->data(part);
      return true;
    };
    receiver.end = [&, recorder](const Status& status) {
      recorder->end(status);
      const std::lock_guard guard(mutex);
      --open;
      ++over;
      changed.notify_one();
    };
    calls.push_back(server.http().start(server.post(target.path(), load.bodies[i]), std::move(receiver)));
    lock.lock();
  }
  bool told = false;
  while (open > 0) {
    changed.wait_for(lock, kLookForInterrupt);
    done(over);
    if (!interrupted() || std::exchange(told, true)) continue;
    for (const uint64_t call : calls) server.http().cancel(call);
  }
  run.duration = seconds();
  return run;
}

}  // namespace lantern::cli
