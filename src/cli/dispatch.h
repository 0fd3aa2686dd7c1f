// --explain-dispatch and --require-impl, once a model is loaded.
#pragma once

#include <vector>

#include "base/result.h"
#include "cli/json_writer.h"
#include "cli/settings.h"
#include "model/dispatch_report.h"

namespace lantern::cli {

// Prints to stderr what the model's ops choose, where it is asked for. Errors: an implementation that is required is
// not chosen.
Status apply_dispatch_settings(const Values& values, const Model& model);

// As [{"op": "linear", "subject": ..., "chosen": ..., "passed_over": [{"name": ..., "reason": ...}]}].
void write_dispatch(JsonWriter& json, const std::vector<DispatchChoice>& report);

}  // namespace lantern::cli
