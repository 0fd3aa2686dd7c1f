#include "device/launch_failures.h"

#include <utility>

namespace lantern {
namespace {

thread_local LaunchFailures* innermost = nullptr;

}  // namespace

LaunchFailures::LaunchFailures() : outer_(std::exchange(innermost, this)) {}
LaunchFailures::~LaunchFailures() { innermost = outer_; }

LaunchFailures* LaunchFailures::heard_by() { return innermost; }

void LaunchFailures::note(std::string message) {
  if (status_.ok()) status_ = Error(ErrorCode::kUnsupported, std::move(message));
}

}  // namespace lantern
