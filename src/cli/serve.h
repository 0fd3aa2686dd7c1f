// `lantern serve`, for programs that put something around its executors: a server whose steps hang or fail.
#pragma once

#include <vector>

#include "cli/settings.h"
#include "engine/load_engine.h"

namespace lantern::cli {

// `values` are those of the command. Returns when a signal came or the engine was lost; ends the process where a step
// hangs.
Result<int> serve_with_hooks(const Values& values, std::vector<ExecutorHooks> hooks);

}  // namespace lantern::cli
