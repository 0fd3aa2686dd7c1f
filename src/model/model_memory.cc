#include "model/model_memory.h"

#include "model/activations.h"

namespace lantern {

ModelMemory model_memory(const ModelConfig& config, const ModelOptions& options, int32_t workers) {
  const StepLimits& limits = options.limits;
  const int64_t token_bytes = kv_bytes_per_token(config, options.layouts, limits.block_size);
  Workspace counting = Workspace::counting();
  Activations(counting, config, limits, options.sample_rows, workers);
  return {.caches = token_bytes * limits.block_size * limits.num_blocks,
          .activations = static_cast<int64_t>(counting.peak_bytes())};
}

}  // namespace lantern
