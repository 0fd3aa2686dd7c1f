// Makes an FP8 checkpoint from an unquantised one, in the form of the public FP8 releases.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/result.h"

namespace lantern {

enum class QuantizeFormat : uint8_t {
  kFp8Block128,  // F8_E4M3 weights; F32 `weight_scale_inv` of exact powers of two for blocks of 128 x 128 ("ue8m0")
};
// "fp8" or its full name "fp8-block-128".
Result<QuantizeFormat> parse_quantize_format(std::string_view name);

struct QuantizeOptions {
  QuantizeFormat format = QuantizeFormat::kFp8Block128;
  int threads = 0;  // 0: every usable core
  uint64_t max_shard_bytes = uint64_t{5} << 30;
};

struct QuantizeSummary {
  int64_t tensors = 0;
  int64_t quantized_tensors = 0;
  int64_t bytes_before = 0;  // of tensor data
  int64_t bytes_after = 0;
};

// Called from the calling thread, between tensors.
using QuantizeProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// Reads `source_dir` (config.json and safetensors) and writes `target_dir`, which must not exist: projections are
// quantised, all other tensors and the tokenizer and text files are copied, config.json gains a quantization_config.
// The target appears complete or not at all. Errors: a source that is quantised already, holds a value that is not
// finite, or is no supported model; a target that exists; no space.
Result<QuantizeSummary> quantize_checkpoint(const std::filesystem::path& source_dir,
                                            const std::filesystem::path& target_dir,
                                            const QuantizeOptions& options = {},
                                            const QuantizeProgress& progress = nullptr);

}  // namespace lantern
