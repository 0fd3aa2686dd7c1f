#include "device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "device/capture_guard.h"
#include "device/cuda/cuda_stream.h"

namespace lantern {
namespace {

constexpr int kLeastCapability = 8;     // the portable code is compiled for 8.0
constexpr size_t kAlignment = 4096;     // that of every allocation
constexpr size_t kCudaAlignment = 256;  // what cudaMalloc promises

Error unusable(std::string message) { return Error(ErrorCode::kUnsupported, std::move(message)); }

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// Why the first call into CUDA failed, in words that say what to do.
Error explain(cudaError_t error) {
  int driver = 0, runtime = 0;
  const bool known = cudaDriverGetVersion(&driver) == cudaSuccess && cudaRuntimeGetVersion(&runtime) == cudaSuccess;
  cudaGetLastError();
  if (known && driver == 0) {
    return unusable("no NVIDIA driver was found on this machine (libcuda.so.1); install one, or use --device cpu");
  }
  if (known && error == cudaErrorInsufficientDriver) {
    return unusable(
        fmt::format("the NVIDIA driver knows CUDA up to {}, but this build needs {}; update the driver, or "
                    "use --device cpu",
                    version_text(driver), version_text(runtime)));
  }
  if (error == cudaErrorNoDevice) {
    return unusable("the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES set to none?); use --device cpu");
  }
  return unusable(fmt::format("CUDA does not start: {} ({}); use --device cpu", cudaGetErrorString(error),
                              cudaGetErrorName(error)));
}

}  // namespace

CudaDevice::CudaDevice(int ordinal, std::string description, int multiprocessors, cudaStream_t copies)
    : ordinal_(ordinal), description_(std::move(description)), multiprocessors_(multiprocessors), copies_(copies) {}

CudaDevice::~CudaDevice() {
  make_current();
  cudaStreamDestroy(copies_);
}

void CudaDevice::make_current() const { LANTERN_CUDA_CHECK(cudaSetDevice(ordinal_), "turn to {}", description_); }

size_t CudaDevice::available_bytes() const {
  make_current();
  size_t free = 0, total = 0;
  LANTERN_CUDA_CHECK(cudaMemGetInfo(&free, &total), "count the free memory of {}", description_);
  return free;
}

void CudaDevice::add_stream(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  streams_.emplace(stream, false);
}

void CudaDevice::remove_stream(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  streams_.erase(stream);
}

void CudaDevice::set_capturing(cudaStream_t stream, bool capturing) {
  const std::lock_guard lock(mutex_);
  streams_[stream] = capturing;
}

void CudaDevice::copy(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return;
  make_current();
  {
    // Not the whole device, which would be a fault while another thread captures.
    const std::lock_guard lock(mutex_);
    for (const auto& [stream, capturing] : streams_) {
      if (!capturing) LANTERN_CUDA_CHECK(cudaStreamSynchronize(stream), "wait for a stream before a copy");
    }
  }
  LANTERN_CUDA_CHECK(cudaMemcpyAsync(destination, source, bytes, kind, copies_), "copy {} bytes", bytes);
  LANTERN_CUDA_CHECK(cudaStreamSynchronize(copies_), "copy {} bytes", bytes);
}

void CudaDevice::copy_to_device(void* destination, const void* source, size_t bytes) {
  CaptureGuard::forbid("copy_to_device()");
  copy(destination, source, bytes, cudaMemcpyHostToDevice);
}

void CudaDevice::copy_to_host(void* destination, const void* source, size_t bytes) {
  CaptureGuard::forbid("copy_to_host()");
  copy(destination, source, bytes, cudaMemcpyDeviceToHost);
}

void* CudaDevice::allocate_pinned(size_t bytes) {
  CaptureGuard::forbid("allocate_pinned()");
  make_current();
  void* address = nullptr;
  if (cudaHostAlloc(&address, std::max<size_t>(bytes, 1), cudaHostAllocDefault) != cudaSuccess) {
    cudaGetLastError();  // it has been heard
    return nullptr;
  }
  std::memset(address, 0, bytes);
  return address;
}

void CudaDevice::release_pinned(void* address) {
  make_current();
  LANTERN_CUDA_CHECK(cudaFreeHost(address), "give back pinned memory");
}

std::unique_ptr<StreamBackend> CudaDevice::make_stream_backend() { return std::make_unique<CudaStream>(*this); }

void* CudaDevice::allocate_zeroed(size_t bytes) {
  make_current();
  const size_t slack = kAlignment - kCudaAlignment;
  void* given = nullptr;
  if (bytes > SIZE_MAX - slack || cudaMalloc(&given, std::max<size_t>(bytes, 1) + slack) != cudaSuccess) {
    cudaGetLastError();  // out of memory is an answer, not a fault
    return nullptr;
  }
  const auto address = reinterpret_cast<uintptr_t>(given);
  auto* aligned = reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
  LANTERN_CUDA_CHECK(cudaMemsetAsync(aligned, 0, std::max<size_t>(bytes, 1), copies_), "zero {} bytes", bytes);
  LANTERN_CUDA_CHECK(cudaStreamSynchronize(copies_), "zero {} bytes", bytes);
  const std::lock_guard lock(mutex_);
  allocations_.emplace(aligned, given);
  return aligned;
}

void CudaDevice::release_memory(void* address) {
  make_current();
  void* given = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto it = allocations_.find(address);
    CHECK(it != allocations_.end(), "memory was released that {} did not allocate", description_);
    given = it->second;
    allocations_.erase(it);
  }
  LANTERN_CUDA_CHECK(cudaFree(given), "release memory");
}

Result<std::unique_ptr<Device>> make_cuda_device(int ordinal) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return explain(error);
  if (ordinal < 0 || ordinal >= count) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("there is no GPU {}: {} of them are visible, numbered from 0", ordinal, count));
  }
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal); error != cudaSuccess) {
    return explain(error);
  }
  if (properties.major < kLeastCapability) {
    return unusable(
        fmt::format("GPU {} ({}) has compute capability {}.{}, but Lantern's kernels need {}.0 or later; "
                    "use --device cpu",
                    ordinal, properties.name, properties.major, properties.minor, kLeastCapability));
  }
  int driver = 0;
  cudaStream_t copies = nullptr;
  cudaError_t error = cudaDriverGetVersion(&driver);
  if (error == cudaSuccess) error = cudaSetDevice(ordinal);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
  if (error != cudaSuccess) return explain(error);
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(
      ordinal,
      fmt::format("cuda:{} ({}, compute capability {}.{}, {} multiprocessors, driver for CUDA {})", ordinal,
                  properties.name, properties.major, properties.minor, properties.multiProcessorCount,
                  version_text(driver)),
      properties.multiProcessorCount, copies));
}

}  // namespace lantern
