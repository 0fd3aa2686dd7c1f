// A stream runs launches in order. A launch is a kernel (a plain function) and a trivially copyable parameter struct
// that is copied at launch, so that a recorded launch sees nothing but those bytes and fixed memory.
//
// Between begin_capture() and end_capture() launches are recorded into a Graph instead of run. Each DevPtr in their
// parameters must then lie, with its whole extent, in memory that the device's ledger knows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/bucket_key.h"
#include "device/capture_guard.h"
#include "device/device.h"
#include "device/graph.h"
#include "device/launch_log.h"
#include "device/stream_backend.h"

namespace lantern {

// What a host kernel may use beside its parameters.
struct HostContext {
  ThreadPool& threads;
};

template <class Params>
using HostKernel = void (*)(const Params&, HostContext&);

// Parameters are copied as bytes, so nothing else can be launched.
template <class Params>
concept LaunchParams = std::is_trivially_copyable_v<Params> && alignof(Params) <= alignof(std::max_align_t);

// As a 32-bit word: not a number in any float format (f64, f32, bf16, f16, e4m3), and larger than any length, index or
// slot as an integer.
constexpr uint32_t kWorkspacePoison = 0x7fff7fff;

// Of one thread at a time.
class Stream {
 public:
  // `device` must outlive the stream.
  explicit Stream(Device& device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device& device() const { return device_; }

  // Runs `kernel` after everything launched before, or records it. `name` is for fault reports and has static lifetime.
  // Broken invariant where the device runs no host kernels.
  template <LaunchParams Params>
  void launch(const char* name, HostKernel<Params> kernel, const Params& params) {
    if (eager_host_ != nullptr) [[likely]] {
      log_.begin(name, sizeof(Params));
      kernel(params, *eager_host_);
      log_.end();
      return;
    }
    record_host({name, reinterpret_cast<HostLaunch::Kernel>(kernel), &invoke_host<Params>, &params, sizeof(Params)});
  }

  // For launches of the device's own kind: enters the launch in the log and, while recording, checks the pointers in
  // its parameters. The caller then launches on native_handle().
  void note_launch(const char* name, const void* params, size_t params_bytes);
  // cudaStream_t; null on the host device.
  void* native_handle() const { return backend_->native_handle(); }

  // Waits until everything launched has finished. Broken invariant while this thread captures, as are the copies.
  void synchronize();
  // Ordered after what was launched before; host memory must stay as it is until synchronize(). The host device copies
  // at once.
  void copy_to_device(void* destination, const void* source, size_t bytes);
  void copy_to_host(void* destination, const void* source, size_t bytes);

  // Broken invariant where this thread captures already. Errors: the device is sealed; the device cannot.
  Status begin_capture(const BucketKey& bucket);
  // The launches since begin_capture(), on the thread of begin_capture(). Errors: a launch with a pointer out of known
  // memory, or an allocation, is named with the bucket; recording has ended all the same.
  Result<std::unique_ptr<Graph>> end_capture();
  // Forgets what was recorded.
  void abandon_capture();
  bool is_capturing() const { return guard_.has_value(); }

  // Fills every workspace of the device with kWorkspacePoison, after everything launched before.
  void poison_workspaces();
  // Whether replays poison the workspaces first, so that nothing can come from one step into the next by them. On in
  // builds without NDEBUG.
  void set_poison_before_replay(bool on) { poison_before_replay_ = on; }
  bool poison_before_replay() const { return poison_before_replay_; }

  const char* last_launch() const { return log_.last(); }
  std::vector<LaunchRecord> recent_launches() const { return log_.recent(); }
  uint64_t launch_count() const { return log_.launches(); }

 private:
  friend class Graph;

  template <class Params>
  static void invoke_host(HostLaunch::Kernel kernel, const void* params, HostContext& context) {
    reinterpret_cast<HostKernel<Params>>(kernel)(*static_cast<const Params*>(params), context);
  }
  void record_host(const HostLaunch& launch);
  void check_pointers(const char* name, const void* params, size_t params_bytes);

  Device& device_;
  std::unique_ptr<StreamBackend> backend_;
  HostContext* eager_host_;  // null while recording and where host kernels cannot run
  LaunchLog log_;
  std::optional<CaptureGuard> guard_;
  GraphCapture capture_;
  bool poison_before_replay_;
};

}  // namespace lantern
