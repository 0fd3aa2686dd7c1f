#include "base/check.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace lantern {
namespace {

std::atomic<FaultReporter> fault_reporter{nullptr};

}  // namespace

void set_fault_reporter(FaultReporter reporter) { fault_reporter = reporter; }

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "lantern: broken invariant at %s:%d: %s: %s\n", file, line, condition, message.c_str());
  // Taken away first: a fault in the report must not report again.
  if (const FaultReporter report = fault_reporter.exchange(nullptr)) report();
  std::fflush(stderr);
  std::abort();
}

}  // namespace lantern
