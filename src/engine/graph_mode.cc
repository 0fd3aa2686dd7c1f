#include "engine/graph_mode.h"

#include <fmt/format.h>

namespace lantern {

std::string_view to_string(GraphMode mode) {
  switch (mode) {
    case GraphMode::kNone: return "none";
    case GraphMode::kFull: return "full";
    case GraphMode::kVerify: return "verify";
  }
  return "";
}

Result<GraphMode> parse_graph_mode(std::string_view name, DeviceKind device) {
  // On a CPU a launch is a function call: what a replay saves does not show beside a model (docs/engine.md).
  if (name == "auto") return device == DeviceKind::kCpu ? GraphMode::kNone : GraphMode::kFull;
  for (const GraphMode mode : {GraphMode::kNone, GraphMode::kFull, GraphMode::kVerify}) {
    if (name == to_string(mode)) return mode;
  }
  if (name == "piecewise") {
    return Error(ErrorCode::kUnsupported,
                 "graphs 'piecewise' keep attention out of the graph for kernels that cannot be captured, and every "
                 "kernel of this device can; use full");
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("graphs '{}' are not known; use auto, none, full or verify", name));
}

}  // namespace lantern
