// What a model allocates beside its weights, known before it does.
#pragma once

#include "model/model.h"

namespace lantern {

// Bytes of what grows with the limits of steps.
struct ModelMemory {
  int64_t caches = 0;
  int64_t activations = 0;  // and scratch
};
// On a device of so many workers (Device::worker_count).
ModelMemory model_memory(const ModelConfig& config, const ModelOptions& options, int32_t workers);

}  // namespace lantern
