// A device: where memory lives and kernels run. This header is the whole of what other rooms know of it.
// The host device runs kernels on the calling thread and a thread pool; CUDA is a further implementation.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/memory_ledger.h"

namespace lantern {

class StreamBackend;

enum class DeviceKind { kCpu, kCuda };

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual DeviceKind kind() const = 0;
  virtual std::string description() const = 0;
  // Bytes that may still be allocated, by the system's own account.
  virtual size_t available_bytes() const = 0;
  // Threads or multiprocessors that work on one launch; scratch is sized by it.
  virtual int worker_count() const = 0;
  // Copies that have happened when they return. They wait for no stream: synchronize() where launches use the memory.
  // Implementations begin with CaptureGuard::forbid, since a copy during a capture would happen once and never again.
  virtual void copy_to_device(void* destination, const void* source, size_t bytes) = 0;
  virtual void copy_to_host(void* destination, const void* source, size_t bytes) = 0;
  // Zeroed memory, aligned to 4096 bytes, entered in the ledger; out_of_memory with numbers when it does not fit, and
  // an error too while this thread captures a graph (capture_guard.h).
  Result<void*> allocate(MemoryClass memory_class, std::string_view owner, size_t bytes);
  // Broken invariant while this thread captures.
  void release(void* address);

  // Host memory that streams copy from and to while the calling thread goes on; null when the system refuses. For
  // PinnedBuffer.
  virtual void* allocate_pinned(size_t bytes);
  virtual void release_pinned(void* address);

  // No allocation and no capture is allowed afterwards: an allocation is a broken invariant, named by its owner.
  void seal() { sealed_ = true; }
  bool sealed() const { return sealed_; }
  const MemoryLedger& ledger() const { return ledger_; }
  // For memory that the device can read but did not allocate: mapped checkpoint files, and buffers of a caller of the
  // C ABI. Recorded launches may read it until it is unregistered.
  void register_memory(MemoryClass memory_class, std::string_view owner, const void* begin, size_t bytes) {
    ledger_.add(memory_class, owner, begin, bytes);
  }
  void unregister_memory(const void* begin);

  // What a Stream needs of this device. Broken invariant for devices that only hold memory.
  virtual std::unique_ptr<StreamBackend> make_stream_backend();

 protected:
  Device() = default;
  virtual void* allocate_zeroed(size_t bytes) = 0;  // null when refused
  virtual void release_memory(void* address) = 0;

 private:
  MemoryLedger ledger_;
  std::atomic<bool> sealed_ = false;
};

// Bytes of main memory that the system would give without swapping: what is free, and what caches files and can be
// dropped.
size_t available_host_memory();

// The CPU device with `threads` threads (0: every usable core).
std::unique_ptr<Device> make_host_device(int threads = 0);

// The GPU with this number. unsupported, with the reason, where this build has no CUDA or the machine no usable GPU.
Result<std::unique_ptr<Device>> make_cuda_device(int ordinal = 0);

}  // namespace lantern
