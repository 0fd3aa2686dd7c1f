// What the engine's own part of a step costs by the number of requests that wait: planning, reservation and commit of
// 64 decoding sequences, and what it takes to serve a queue to its end. Processor time of one thread beside an executor
// that takes none. Prints one JSON object to stdout.
//
//   build/release/bench/scheduler_bench [rounds]
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core_cost.h"

namespace lantern {
namespace {

constexpr int32_t kQueued[] = {0, 10, 100, 1000, 3000, 10000};
constexpr int32_t kServed[] = {100, 1000, 4000, 10000};
constexpr int32_t kTurns = 20;
constexpr int32_t kMostRounds = 20;  // the caches hold so many steps of 64 sequences

// The best of several rounds for each size, sizes in turn: other work on the machine only adds.
void steps(WaitFor wait_for, const char* name, int32_t rounds) {
  std::vector<std::unique_ptr<QueuedCore>> cores;
  for (const int32_t queued : kQueued) cores.push_back(std::make_unique<QueuedCore>(queued, wait_for));
  std::vector<double> best(cores.size(), 1e9);
  for (int32_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < cores.size(); ++i) best[i] = std::min(best[i], cores[i]->microseconds(kTurns));
  }
  for (const auto& core : cores) CHECK(core->state().stats.preemptions == 0, "the caches are too small");
  fmt::print("  \"{}\": [", name);
  for (size_t i = 0; i < cores.size(); ++i) {
    fmt::print("{}{{\"queued\": {}, \"microseconds_per_step\": {:.2f}}}", i == 0 ? "" : ", ", kQueued[i], best[i]);
  }
  fmt::print("],\n");
}

void serving(int32_t rounds) {
  std::vector<double> best(std::size(kServed), 1e9);
  for (int32_t round = 0; round < std::max(rounds / 4, 1); ++round) {
    for (size_t i = 0; i < best.size(); ++i) best[i] = std::min(best[i], microseconds_per_request(kServed[i]));
  }
  fmt::print("  \"queue_served\": [");
  for (size_t i = 0; i < best.size(); ++i) {
    fmt::print("{}{{\"requests\": {}, \"microseconds_per_request\": {:.2f}}}", i == 0 ? "" : ", ", kServed[i], best[i]);
  }
  fmt::print("]\n");
}

}  // namespace
}  // namespace lantern

int main(int argc, char** argv) {
  const int rounds = std::clamp(argc > 1 ? std::atoi(argv[1]) : 15, 1, lantern::kMostRounds);
  fmt::print("{{\n  \"running\": {},\n", lantern::QueuedCore::kRunning);
  lantern::steps(lantern::WaitFor::kSlot, "waiting_for_a_slot", rounds);
  lantern::steps(lantern::WaitFor::kBlocks, "waiting_for_blocks", rounds);
  lantern::serving(rounds);
  fmt::print("}}\n");
  return 0;
}
