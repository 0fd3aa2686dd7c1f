// `lantern doctor --check-graphs`: whether captured graphs replay on this machine as they should.
#pragma once

#include "base/result.h"
#include "cli/settings.h"

namespace lantern::cli {

// From --device, --replays, --seed and --json. The exit code is 1 when a replayed plan differs from a fresh one.
Result<int> run_doctor_graphs(const Values& values);

}  // namespace lantern::cli
