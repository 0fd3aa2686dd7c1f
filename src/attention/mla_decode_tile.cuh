// The absorbed attention on tensor cores; see mla_decode_tile_cuda.cu.
#pragma once

#include "attention/mla.h"

namespace lantern::cuda {

// Whether mla_decode_tiles() takes a cache of this form on the current device.
bool mla_tiles_take(const LatentCacheView& cache);
// As mla_decode(), with queries and weights of the softmax rounded to bf16.
void mla_decode_tiles(void* stream, const MlaDecodeParams& p);

}  // namespace lantern::cuda
