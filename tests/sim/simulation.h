// A run of the real engine core against the fake executor: a list of events, each followed by every check there is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/data_parallel.h"
#include "engine/engine_core.h"
#include "fake_executor.h"

namespace lantern {

enum class EventKind : uint8_t { kSubmit, kCancel, kBegin, kFinish, kWait, kRefuse };

// What a, b, c and d mean depends on the kind; any values make a valid event, so that a failing list can be cut
// anywhere.
struct SimEvent {
  EventKind kind = EventKind::kBegin;
  uint8_t a = 0, b = 0, c = 0, d = 0;
};
std::string to_string(const SimEvent& event);
SimEvent random_event(std::mt19937_64& random, double arrivals);

struct SimSettings {
  EngineSettings engine;
  FakeExecutor::Options executor;
  double arrivals = 0.2;  // share of submissions among events
};
// Settings of all kinds, small ones: few blocks, few slots.
SimSettings random_settings(uint64_t seed);

struct SimTotals {
  int64_t steps = 0;
  int64_t decode_rows = 0, prefill_rows = 0;
  int64_t ends_by_reason[6] = {};
  int64_t preemptions = 0, cached_tokens = 0, drafts_accepted = 0, blocks_copied = 0, forks = 0, overtakes = 0,
          refused_steps = 0, rows_with_results_dropped = 0, fully_reserved = 0, constrained = 0, dummy_steps = 0,
          prompt_tokens_scored = 0, constraint_failures = 0, tokens_traced = 0, tokens_not_traced = 0;
  int64_t longest_wait = 0;  // steps from submission to end
  void add(const SimTotals& other);
};

class Simulation final : private OutputSink {
 public:
  explicit Simulation(const SimSettings& settings);
  ~Simulation() override;

  // Returns what went wrong, at this event or before.
  std::optional<std::string> apply(const SimEvent& event);
  // Serves everything that is in to its end, without new requests, and looks for leaks.
  std::optional<std::string> drain();

  // For ranks that run in step: the first half of a begin event, which ends the oldest step where there must be one
  // fewer, and the second, with the agreed shape. A step that the executor refuses is replaced by the dummy.
  StepWish plan();
  void run(const StepShape& shape);
  std::vector<StepShape> take_shapes() { return executor_.take_shapes(); }
  // As after an event.
  std::optional<std::string> check();

  // For the exhaustive search.
  void submit(Request request);
  void cancel(size_t which);
  std::string describe() const;

  const EngineCore& engine() const { return engine_; }
  SimTotals totals() const;

 private:
  struct Watched {
    std::shared_ptr<const Request> request;
    int64_t since_step = 0;
    std::vector<int32_t> seen;  // by choice: tokens that the sink got
    std::vector<bool> ended;
    std::vector<bool> told_to_stop;
    std::vector<int32_t> logprobs;  // by choice: tokens whose log-probabilities the sink got
    int32_t scored = 0;             // of the prompt
    std::vector<int32_t> traced =
        {};  // by choice: tokens whose selections the sink got, or was told that there are none
    std::shared_ptr<FakeConstraint> constraint = nullptr;
  };

  Verdict on_tokens(const Sequence& sequence, int32_t count) override;
  void on_logprobs(const Sequence& sequence, const LogprobRows& rows) override;
  void on_prompt_logprobs(const Sequence& sequence, const LogprobRows& rows) override;
  void on_selections(const Sequence& sequence, int32_t count, std::span<const int32_t> records) override;
  void on_end(const Sequence& sequence) override;

  Request make_request(const SimEvent& event) const;
  int32_t expected_token(const Sequence& sequence, TextHash text, int32_t position) const;
  void begin();
  void finish();
  void plan_twice();
  void note_step();
  template <class... Args>
  void complain(fmt::format_string<Args...> format, Args&&... args) {
    if (!fault_) fault_ = fmt::format(format, std::forward<Args>(args)...);
  }

  SimSettings settings_;
  FakeExecutor executor_;
  Scheduler second_scheduler_;
  StepSchedule second_schedule_;
  bool planned_twice_ = false;
  EngineTime now_{0};
  std::map<RequestId, Watched> watched_;  // requests with choices that have not ended
  std::vector<RequestId> submitted_;      // recent ones, dead or alive: what cancel events choose from
  std::optional<std::string> fault_;
  SimTotals totals_;
  EngineCore engine_;  // goes first: its end tells the sink
};

// Seeds first, first + 1, ...: episodes until so many steps were begun. The failure names its seed; so does a line on
// standard error when a CHECK ends the process.
std::optional<std::string> run_episodes(uint64_t first_seed, int64_t steps, SimTotals& totals);

}  // namespace lantern
