// What sessions and engines decide alike before they make a model.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/device.h"
#include "model/config.h"

namespace lantern {

enum class MtpLayers : uint8_t { kKeep, kDrop };
// The first `layers` layers of a model (0: all), and its MTP layers where somebody drafts with them: without, their
// weights and caches take no memory. Errors: more than there are.
Status keep_layers(ModelConfig& config, int32_t layers, MtpLayers mtp);

// Weights in main memory that one device holds and nothing else yet, for launches of another that reads them too.
void register_weights_of(const Device& owner, Device& reader);

}  // namespace lantern
