// How much ops take at a time where a launch may be larger. Scratch is sized by it, and host and CUDA kernels share the
// scratch's size. No result depends on it.
#pragma once

#include <cstdint>

namespace lantern {

// Tokens of mlp() and moe(): the weights are then read once per pass, which this many rows outweigh.
constexpr int64_t kTokensPerPass = 1024;
// Rows of sample() and process_logits(): each needs scratch for its whole vocabulary.
constexpr int64_t kRowsAtOnce = 32;

}  // namespace lantern
