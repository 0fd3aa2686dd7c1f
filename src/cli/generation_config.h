// The sampling defaults that a checkpoint ships.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/result.h"

namespace lantern::cli {

struct GenerationConfig {
  std::optional<double> temperature;  // 0 where do_sample is false
  std::optional<double> top_p;
  std::optional<int32_t> top_k;  // -1 or 0: all
  std::optional<double> repetition_penalty;
};

// DIR/generation_config.json; everything unset where there is none. Errors: not JSON, a value of the wrong type,
// a number out of its range.
Result<GenerationConfig> load_generation_config(const std::filesystem::path& dir);

}  // namespace lantern::cli
