#include "engine/graph_mode.h"

#include <fmt/format.h>

namespace lantern {

std::string_view to_string(GraphMode mode) {
  switch (mode) {
    case GraphMode::kNone: return "none";
    case GraphMode::kPiecewise: return "piecewise";
    case GraphMode::kFull: return "full";
    case GraphMode::kFullAndPiecewise: return "full_and_piecewise";
    case GraphMode::kVerify: return "verify";
  }
  return "";
}

Result<GraphMode> parse_graph_mode(std::string_view name, DeviceKind device) {
  // On a CPU a launch is a function call: what a replay saves does not show beside a model (docs/engine.md).
  if (name == "auto") return device == DeviceKind::kCpu ? GraphMode::kNone : GraphMode::kFull;
  for (const GraphMode mode :
       {GraphMode::kNone, GraphMode::kPiecewise, GraphMode::kFull, GraphMode::kFullAndPiecewise, GraphMode::kVerify}) {
    if (name == to_string(mode)) return mode;
  }
  return Error(
      ErrorCode::kInvalidArgument,
      fmt::format("graphs '{}' are not known; use auto, none, piecewise, full, full_and_piecewise or verify", name));
}

}  // namespace lantern
