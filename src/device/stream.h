// A stream runs launches in order. A launch is a kernel (a plain function) and a trivially copyable parameter struct
// that is copied at launch, so that a recorded launch sees nothing but those bytes and fixed memory.
#pragma once

#include <memory>
#include <type_traits>

#include "base/thread_pool.h"
#include "device/device.h"

namespace lantern {

// What a host kernel may use beside its parameters.
struct HostContext {
  ThreadPool& threads;
};

template <class Params>
using HostKernel = void (*)(const Params&, HostContext&);

class Stream {
 public:
  // `device` must outlive the stream.
  explicit Stream(Device& device);

  Device& device() const { return device_; }

  // Runs `kernel` after everything launched before. `name` is for fault reports and has static lifetime.
  // Parameters are copied as bytes, so nothing else can be launched.
  template <class Params>
    requires std::is_trivially_copyable_v<Params>
  void launch(const char* name, HostKernel<Params> kernel, const Params& params) {
    last_launch_ = name;
    kernel(params, context_);
  }

  // Waits until everything launched has finished. The host device runs launches as they come.
  void synchronize() {}
  const char* last_launch() const { return last_launch_; }

 private:
  Device& device_;
  HostContext context_;
  const char* last_launch_ = "";
};

}  // namespace lantern
