#include "base/check.h"
#include "device/stream_event.h"

namespace lantern {

std::unique_ptr<StreamEvent> make_cuda_event(Stream& stream) {
  CHECK(false, "{} has streams of CUDA in a build without it", stream.device().description());
}

}  // namespace lantern
