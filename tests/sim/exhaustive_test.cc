// Every order of events there is, for three blocks and two or three requests: submissions, cancels, starting and
// finishing steps, a refused step. States that were met before are not entered again; from each new one everything is
// also served to its end.
#include <gtest/gtest.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "simulation.h"

namespace lantern {
namespace {

struct Action {
  enum Kind : uint8_t { kSubmit, kCancel, kBegin, kFinish, kRefuse } kind;
  size_t request = 0;
};

class Search {
 public:
  Search(const SimSettings& settings, std::vector<Request> requests)
      : settings_(settings), requests_(std::move(requests)) {}

  // Returns the first fault, with the actions that lead to it.
  std::optional<std::string> run() {
    visit();
    return fault_;
  }
  size_t states() const { return seen_.size(); }

 private:
  struct Replay {
    std::unique_ptr<Simulation> simulation;
    std::vector<bool> submitted, cancelled;
    std::optional<std::string> fault;
  };

  Replay replay() const {
    Replay now{std::make_unique<Simulation>(settings_), std::vector<bool>(requests_.size()),
               std::vector<bool>(requests_.size()), std::nullopt};
    std::vector<size_t> order;
    for (const Action& action : path_) {
      SimEvent event;
      switch (action.kind) {
        case Action::kSubmit:
          now.simulation->submit(requests_[action.request]);
          now.submitted[action.request] = true;
          order.push_back(action.request);
          event.kind = EventKind::kWait;
          break;
        case Action::kCancel:
          now.simulation->cancel(static_cast<size_t>(std::ranges::find(order, action.request) - order.begin()));
          now.cancelled[action.request] = true;
          event.kind = EventKind::kWait;
          break;
        case Action::kBegin: event.kind = EventKind::kBegin; break;
        case Action::kFinish: event.kind = EventKind::kFinish; break;
        case Action::kRefuse:
          now.simulation->apply({.kind = EventKind::kRefuse});
          event.kind = EventKind::kBegin;
          break;
      }
      now.fault = now.simulation->apply(event);
      if (now.fault) return now;
    }
    return now;
  }

  std::string path_text() const {
    static constexpr const char* kNames[] = {"submit", "cancel", "begin", "finish", "refuse"};
    std::string text;
    for (const Action& action : path_) text += fmt::format(" {}", kNames[action.kind]) + std::to_string(action.request);
    return text;
  }

  void visit() {
    Replay now = replay();
    std::string state = now.simulation->describe();
    for (size_t i = 0; i < requests_.size(); ++i)
      state += fmt::format("{}{}", now.submitted[i] ? 's' : '-', now.cancelled[i] ? 'c' : '-');
    if (!now.fault && !seen_.insert(state).second) return;
    const bool in_flight = now.simulation->engine().steps_in_flight() > 0;
    if (!now.fault) now.fault = now.simulation->drain();
    if (now.fault) {
      fault_ = *now.fault + " after" + path_text();
      return;
    }
    std::vector<Action> next{{Action::kBegin}, {Action::kRefuse}};
    if (in_flight) next.push_back({Action::kFinish});
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (!now.submitted[i]) next.push_back({Action::kSubmit, i});
      if (now.submitted[i] && !now.cancelled[i]) next.push_back({Action::kCancel, i});
    }
    for (const Action& action : next) {
      path_.push_back(action);
      visit();
      if (fault_) return;
      path_.pop_back();
    }
  }

  SimSettings settings_;
  std::vector<Request> requests_;
  std::vector<Action> path_;
  std::unordered_set<std::string> seen_;
  std::optional<std::string> fault_;
};

SimSettings three_blocks(int32_t steps_in_flight, double acceptance) {
  SimSettings sim;
  StepLimits& limits = sim.engine.limits;
  limits.block_size = 2;
  limits.num_blocks = 4;
  limits.max_requests = 2;
  limits.max_query_len = 2;
  limits.max_tokens = 4;
  limits.max_model_len = 6;
  limits.max_blocks_per_request = 3;
  sim.engine.max_queued = 4;
  sim.engine.max_steps_in_flight = steps_in_flight;
  sim.engine.max_preemptions = 1;
  sim.engine.max_overtakes = 1;
  sim.engine.adaptive_drafts = false;
  sim.executor.acceptance = acceptance;  // 0 or 1: the state must not depend on what was drawn before
  return sim;
}

Request request_of(std::vector<int32_t> prompt, int32_t max_tokens, int32_t n = 1) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.n = n;
  return request;
}

class Interleavings : public testing::TestWithParam<std::tuple<int32_t, double>> {
 protected:
  void search(std::vector<Request> requests) {
    const auto& [steps_in_flight, acceptance] = GetParam();
    Search all(three_blocks(steps_in_flight, acceptance), std::move(requests));
    const auto fault = all.run();
    fmt::print("{} states\n", all.states());
    EXPECT_FALSE(fault) << *fault;
    EXPECT_GT(all.states(), 150u);
  }
};

// Both want all three blocks in the end.
TEST_P(Interleavings, TwoThatNeedEverything) { search({request_of({1, 2, 3}, 3), request_of({4, 5}, 4)}); }
TEST_P(Interleavings, TwoThatShareAPrefix) { search({request_of({1, 2, 3}, 2), request_of({1, 2, 3, 4}, 2)}); }
TEST_P(Interleavings, TwoChoicesAndAnother) { search({request_of({1, 2, 3}, 2, 2), request_of({4, 5}, 2)}); }
TEST_P(Interleavings, TwoChoicesOfAPromptThatEndsWithinABlock) { search({request_of({1}, 2, 2), request_of({4}, 2)}); }
TEST_P(Interleavings, Three) { search({request_of({1, 2}, 2), request_of({1, 2, 3}, 1), request_of({5}, 3)}); }

TEST_P(Interleavings, ThreeOfWhichOneHasTwoChoices) {
  search({request_of({1, 2, 3}, 3, 2), request_of({1, 2}, 4), request_of({1, 2, 3, 4}, 2)});
}

INSTANTIATE_TEST_SUITE_P(Overlap, Interleavings, testing::Combine(testing::Values(1, 2), testing::Values(0.0, 1.0)));

}  // namespace
}  // namespace lantern
