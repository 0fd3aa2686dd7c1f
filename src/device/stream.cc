#include "device/stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "device/launch_pointers.h"

namespace lantern {

Stream::Stream(Device& device)
    : device_(device),
      backend_(device.make_stream_backend()),
      eager_host_(backend_->host_context()),
      log_(device.description()),
      poison_before_replay_(kCheckedBuild) {}

Stream::~Stream() {
  if (is_capturing()) abandon_capture();
}

void Stream::note_launch(const char* name, const void* params, size_t params_bytes) {
  log_.begin(name, params_bytes);
  if (is_capturing()) check_pointers(name, params, params_bytes);
}

void Stream::record_host(const HostLaunch& launch) {
  CHECK(backend_->host_context() != nullptr, "the host kernel '{}' was launched on {}", launch.name,
        device_.description());
  note_launch(launch.name, launch.params, launch.params_bytes);
  log_.end();
  if (!guard_->failure()) backend_->record(launch);
}

void Stream::check_pointers(const char* name, const void* params, size_t params_bytes) {
  CHECK(CaptureGuard::active() == &*guard_, "'{}' was launched on a thread that does not capture the {}", name,
        to_string(capture_.bucket));
  capture_.launches.push_back({name, params_bytes});
  const std::span bytes(static_cast<const std::byte*>(params), params_bytes);
  for (auto pointer = next_pointer(bytes, 0); pointer; pointer = next_pointer(bytes, pointer->offset + 16)) {
    const auto entry = device_.ledger().find(pointer->address, pointer->bytes);
    if (entry) {
      capture_.memory.push_back(entry->id);
    } else {
      guard_->fail(Error(
          ErrorCode::kInvalidArgument,
          fmt::format("launch '{}' in the capture of the {}: the pointer at byte {} of its parameters, {} with {} "
                      "bytes, does not lie in memory that {} knows; allocate it there or register it before",
                      name, to_string(capture_.bucket), pointer->offset, pointer->address, pointer->bytes,
                      device_.description())));
    }
  }
}

void Stream::synchronize() {
  CaptureGuard::forbid("synchronize()");
  backend_->synchronize();
  log_.end();
}

void Stream::copy_to_device(void* destination, const void* source, size_t bytes) {
  CaptureGuard::forbid("copy_to_device()");
  backend_->copy_to_device(destination, source, bytes);
}

void Stream::copy_to_host(void* destination, const void* source, size_t bytes) {
  CaptureGuard::forbid("copy_to_host()");
  backend_->copy_to_host(destination, source, bytes);
}

Status Stream::begin_capture(const BucketKey& bucket) {
  if (device_.sealed()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the {} cannot be captured on {} after start-up; capture before the device is sealed",
                             to_string(bucket), device_.description()));
  }
  CaptureGuard::forbid(fmt::format("capture of the {}", to_string(bucket)));
  RETURN_IF_ERROR(backend_->begin_capture());
  guard_.emplace(bucket);
  capture_ = {
      .bucket = bucket, .device = &device_, .launches = {}, .memory = {}, .removals = device_.ledger().removals()};
  eager_host_ = nullptr;
  log_.set_mode(LaunchRecord::Mode::kRecorded, bucket);
  return {};
}

void Stream::abandon_capture() {
  CHECK(is_capturing(), "nothing is being captured on {}", device_.description());
  backend_->abandon_capture();
  guard_.reset();
  eager_host_ = backend_->host_context();
  log_.set_mode(LaunchRecord::Mode::kEager);
}

Result<std::unique_ptr<Graph>> Stream::end_capture() {
  CHECK(is_capturing(), "nothing is being captured on {}", device_.description());
  if (guard_->failure()) {
    Error error = *guard_->failure();
    abandon_capture();
    return error;
  }
  std::sort(capture_.memory.begin(), capture_.memory.end());
  capture_.memory.erase(std::unique(capture_.memory.begin(), capture_.memory.end()), capture_.memory.end());
  Result<std::unique_ptr<Graph>> graph = backend_->end_capture(std::exchange(capture_, {}));
  guard_.reset();
  eager_host_ = backend_->host_context();
  log_.set_mode(LaunchRecord::Mode::kEager);
  return graph;
}

void Stream::poison_workspaces() {
  CaptureGuard::forbid("poison_workspaces()");
  for (const MemoryLedger::Entry& entry : device_.ledger().entries()) {
    if (entry.memory_class != MemoryClass::kWorkspace) continue;
    backend_->fill(const_cast<std::byte*>(entry.begin), kWorkspacePoison, entry.bytes);
  }
}

}  // namespace lantern
