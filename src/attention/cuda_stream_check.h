// Whether a guest's stream can be launched on. Our own launches end the process where CUDA refuses them; that of
// another program must not end for what it did before, or for a stream that is none.
#pragma once

#include "base/result.h"

namespace lantern {

// Of the calling thread's current device. Allowed while the stream is captured. Errors (unsupported): CUDA's own words;
// no CUDA in this build.
Status check_cuda_stream(void* cuda_stream);

}  // namespace lantern
