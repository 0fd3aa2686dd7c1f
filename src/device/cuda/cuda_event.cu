#include <fmt/format.h>

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "device/stream_event.h"

namespace lantern {
namespace {

class CudaEvent final : public StreamEvent {
 public:
  explicit CudaEvent(cudaStream_t stream) : stream_(stream) {
    LANTERN_CUDA_CHECK(cudaEventCreate(&event_), "make an event");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }

  bool passed() const override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    LANTERN_CUDA_CHECK(state, "ask for an event");
    return true;
  }
  void wait() const override { LANTERN_CUDA_CHECK(cudaEventSynchronize(event_), "wait for an event"); }
  double seconds_since(const StreamEvent& earlier) const override {
    float milliseconds = 0;
    LANTERN_CUDA_CHECK(cudaEventSynchronize(event_), "wait for an event");
    LANTERN_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(earlier).event_, event_),
                       "tell the time between two events");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  void do_record() override { LANTERN_CUDA_CHECK(cudaEventRecord(event_, stream_), "record an event"); }

  cudaStream_t stream_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::unique_ptr<StreamEvent> make_cuda_event(Stream& stream) {
  static_cast<CudaDevice&>(stream.device()).make_current();
  return std::make_unique<CudaEvent>(static_cast<cudaStream_t>(stream.native_handle()));
}

}  // namespace lantern
