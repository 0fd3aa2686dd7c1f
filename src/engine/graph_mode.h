// Whether steps replay captured graphs, and which.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "device/device.h"

namespace lantern {

enum class GraphMode : uint8_t {
  kNone,
  kPiecewise,         // steps are rounded up to a bucket of tokens; attention runs eagerly between captured pieces
  kFull,              // steps of decodes are rounded up to a bucket and replayed whole; steps with prompts run eagerly
  kFullAndPiecewise,  // steps of decodes whole, steps with prompts in pieces
  kVerify,            // each step runs eagerly and in every way of these, and whatever bit differs ends the process
};
std::string_view to_string(GraphMode mode);

// Whether steps of decodes have whole graphs.
constexpr bool captures_whole(GraphMode mode) {
  return mode == GraphMode::kFull || mode == GraphMode::kFullAndPiecewise || mode == GraphMode::kVerify;
}
// Whether steps have pieces.
constexpr bool captures_pieces(GraphMode mode) {
  return mode == GraphMode::kPiecewise || mode == GraphMode::kFullAndPiecewise || mode == GraphMode::kVerify;
}

// "none", "piecewise", "full", "full_and_piecewise", "verify" or "auto", which is what is known to be fast on such a
// device. Errors: invalid_argument for another name.
Result<GraphMode> parse_graph_mode(std::string_view name, DeviceKind device);

}  // namespace lantern
