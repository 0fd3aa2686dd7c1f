// Makes an FP8 checkpoint from an unquantised one, in the form of the public FP8 releases.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/result.h"

namespace lantern {

struct QuantizeOptions {
  int threads = 0;  // 0: every usable core
  uint64_t max_shard_bytes = uint64_t{5} << 30;
};

struct QuantizeSummary {
  int64_t tensors = 0;
  int64_t quantized_tensors = 0;
  int64_t bytes_before = 0;  // of tensor data
  int64_t bytes_after = 0;
};

// Called from the calling thread, between tensors. False stops: nothing is left of the target.
using QuantizeProgress = std::function<bool(int64_t done_bytes, int64_t total_bytes)>;

// Reads `source_dir` (config.json and safetensors) and writes `target_dir`, which must not exist: projections are
// quantised to F8_E4M3 with an F32 `weight_scale_inv` of exact powers of two for each block of 128 x 128 ("ue8m0"), all
// other tensors and the tokenizer and text files are copied, config.json gains a quantization_config. The target
// appears complete or not at all. Errors: a source that is quantised already, holds a value that is not finite, or is
// no supported model; those of check_weights(); a target that exists; no space; stopped by `progress`.
Result<QuantizeSummary> quantize_checkpoint(const std::filesystem::path& source_dir,
                                            const std::filesystem::path& target_dir,
                                            const QuantizeOptions& options = {},
                                            const QuantizeProgress& progress = nullptr);

}  // namespace lantern
