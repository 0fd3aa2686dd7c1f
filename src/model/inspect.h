// What a model is made of, for `lantern inspect`: from tensor headers alone, or from a config's shapes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/weights.h"

namespace lantern {

struct ModelSummary {
  struct Group {
    std::string name;
    int64_t tensors = 0;
    int64_t parameters = 0;  // elements, block scales not counted
    int64_t bytes = 0;       // block scales counted
  };
  struct KvBytes {
    std::string layout;  // as --kv-cache-dtype names it
    int64_t bytes_per_token = 0;
  };

  std::string architecture;  // "DeepseekV32ForCausalLM"
  std::string model_type;
  std::string quantization;  // "" or e.g. "fp8 128x128 ue8m0"
  int64_t total_parameters = 0;
  // What one decoded token uses: embedding table, MTP layers and experts that are not chosen are left out.
  int64_t active_parameters = 0;
  int64_t active_bytes_per_token = 0;
  int64_t total_bytes = 0;
  int32_t shards = 0;  // files; 0 for a summary of a config
  // embedding, attention, indexer, dense_mlp, router, shared_experts, experts, norms, head, mtp, other; parts without
  // tensors are left out.
  std::vector<Group> parts;
  std::vector<Group> dtypes;  // by safetensors name, largest first; each tensor under its own dtype, scales too
  std::vector<KvBytes> kv_cache;
};

// Reads headers only. Errors: those of check_weights().
Result<ModelSummary> summarize_checkpoint(const std::filesystem::path& dir, const ModelConfig& config);
// The same for weights that do not exist, e.g. a built-in shape.
Result<ModelSummary> summarize_shapes(const ModelConfig& config, DummyFormat format);

}  // namespace lantern
