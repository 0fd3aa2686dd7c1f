// Whether steps replay captured graphs.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "device/device.h"

namespace lantern {

enum class GraphMode : uint8_t {
  kNone,
  kFull,    // steps of decodes are rounded up to a bucket and replayed whole; steps with prompts run eagerly
  kVerify,  // each such step runs eagerly and by replay, and whatever bit differs ends the process
};
std::string_view to_string(GraphMode mode);

// "auto", "none", "full", "piecewise", "verify"; auto is what is fastest on such a device. Errors: invalid_argument for
// another name; unsupported, with the reason, for one that has no meaning there.
Result<GraphMode> parse_graph_mode(std::string_view name, DeviceKind device);

}  // namespace lantern
