// Launches that the device refuses end the process, since nothing of an engine's step can do without one. Whoever
// launches for a caller of a C interface hears of them instead.
#pragma once

#include <string>

#include "base/result.h"

namespace lantern {

// While it lives, refused launches of this thread are noted here, and what would come after one is not launched.
class LaunchFailures {
 public:
  LaunchFailures();
  ~LaunchFailures();
  LaunchFailures(const LaunchFailures&) = delete;
  LaunchFailures& operator=(const LaunchFailures&) = delete;

  // Errors: unsupported, with the first refusal.
  const Status& status() const { return status_; }

  // Of this thread, the innermost; null: none.
  static LaunchFailures* heard_by();
  void note(std::string message);

 private:
  LaunchFailures* outer_;
  Status status_;
};

}  // namespace lantern
