#include "device/capture_guard.h"

#include <fmt/core.h>

#include <utility>

#include "base/check.h"

namespace lantern {
namespace {

thread_local CaptureGuard* active_guard = nullptr;

}  // namespace

CaptureGuard::CaptureGuard(const BucketKey& bucket) : bucket_(bucket) {
  CHECK(active_guard == nullptr, "the {} cannot be captured inside the capture of the {}", to_string(bucket),
        to_string(active_guard->bucket()));
  active_guard = this;
}

CaptureGuard::~CaptureGuard() {
  CHECK(active_guard == this, "the capture of the {} ended on another thread than it began on", to_string(bucket_));
  active_guard = nullptr;
}

CaptureGuard* CaptureGuard::active() { return active_guard; }

void CaptureGuard::forbid(std::string_view operation) {
  CHECK(active_guard == nullptr, "{} during the capture of the {}: do it before or after", operation,
        to_string(active_guard->bucket()));
}

Status CaptureGuard::refuse(std::string_view operation) {
  if (active_guard == nullptr) return {};
  Error error(ErrorCode::kInvalidArgument, fmt::format("{} during the capture of the {}: do it before the capture",
                                                       operation, to_string(active_guard->bucket())));
  active_guard->fail(error);
  return error;
}

void CaptureGuard::fail(Error error) {
  if (!failure_) failure_ = std::move(error);
}

}  // namespace lantern
