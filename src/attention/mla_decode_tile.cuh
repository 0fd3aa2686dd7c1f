// The absorbed attention on tensor cores; see mla_decode_tile_cuda.cu.
#pragma once

#include "attention/mla.h"

namespace lantern::cuda {

// As mla_decode(), with queries and weights of the softmax rounded to bf16; by the kernel of mla_decode_sm90_cuda.cu
// where `warpgroups`.
void mla_decode_tiles(void* stream, const MlaDecodeParams& p, bool warpgroups);

}  // namespace lantern::cuda
