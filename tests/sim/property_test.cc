// Lists of events from rapidcheck, which cuts a failing list down to the few events that matter. Each list runs in a
// child process, so that a failed CHECK is a failure like any other. RC_PARAMS="max_success=100000 seed=7" in the
// environment makes rapidcheck try more, or the same again.
#include <gtest/gtest.h>

#include <rapidcheck.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "simulation.h"

namespace lantern {

std::ostream& operator<<(std::ostream& out, const SimEvent& event) { return out << to_string(event); }

namespace {

// Before rapidcheck reads its parameters, which is at the first check.
[[maybe_unused]] const int kTries = setenv("RC_PARAMS", "max_success=500", 0);

std::string run(uint64_t seed, const std::vector<SimEvent>& events) {
  Simulation simulation(random_settings(seed));
  for (const SimEvent& event : events) {
    if (auto fault = simulation.apply(event)) return *fault;
  }
  return simulation.drain().value_or("");
}

// What `work` returns, or what it wrote to standard error before it died.
template <class Work>
std::string in_child(const Work& work) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe failed";
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    const std::string fault = work();
    const bool written = write(ends[1], fault.data(), fault.size()) == static_cast<ssize_t>(fault.size());
    _exit(written && fault.empty() ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(count));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0 && text.empty()) return "died without a word";
  return text;
}

rc::Gen<SimEvent> any_event() {
  const auto byte = rc::gen::inRange(0, 256);
  // Shrinks towards submissions of short prompts with few tokens.
  return rc::gen::map(rc::gen::tuple(rc::gen::weightedElement<EventKind>({{6, EventKind::kBegin},
                                                                          {5, EventKind::kFinish},
                                                                          {3, EventKind::kSubmit},
                                                                          {1, EventKind::kCancel},
                                                                          {1, EventKind::kWait},
                                                                          {1, EventKind::kRefuse}}),
                                     byte, byte, byte, byte),
                      [](const std::tuple<EventKind, int, int, int, int>& t) {
                        return SimEvent{std::get<0>(t), static_cast<uint8_t>(std::get<1>(t)),
                                        static_cast<uint8_t>(std::get<2>(t)), static_cast<uint8_t>(std::get<3>(t)),
                                        static_cast<uint8_t>(std::get<4>(t))};
                      });
}

TEST(SimulationProperty, NoListOfEventsBreaksTheContract) {
  EXPECT_TRUE(rc::check("any events", [] {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1'000'000));
    const auto events =
        *rc::gen::scale(4.0, rc::gen::container<std::vector<SimEvent>>(rc::gen::resize(rc::kNominalSize, any_event())));
    const std::string fault = in_child([&] { return run(seed, events); });
    if (!fault.empty()) RC_FAIL(fault);
  }));
}

}  // namespace
}  // namespace lantern
