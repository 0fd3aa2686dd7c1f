// How functions of the C interfaces answer: a code, and a sentence that the thread may ask for.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"
#include "lantern/status.h"

namespace lantern {

// Of one interface, in the thread that uses it.
class CAnswer {
 public:
  lantern_status finish(const Status& status) {
    if (status.ok()) return LANTERN_OK;
    message_ = status.error().message();
    return status.error().code() == ErrorCode::kUnsupported ? LANTERN_UNSUPPORTED : LANTERN_INVALID_ARGUMENT;
  }
  const char* last_error() const { return message_.c_str(); }

 private:
  std::string message_;
};

inline Error refuse(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

}  // namespace lantern
