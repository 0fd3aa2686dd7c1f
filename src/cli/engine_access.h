// What the commands that run an engine have in common.
#pragma once

#include "cli/settings.h"
#include "engine/load_engine.h"

namespace lantern::cli {

// From --device, --threads, --kv-cache-dtype, --data-parallel-size, --max-model-len, --max-num-seqs,
// --max-num-batched-tokens, --draft-tokens, --drafter, --kv-cache-memory, --enable-prefix-caching, --mla-form and
// --graphs. The model is the caller's to name.
EngineOptions engine_options(const Values& values);

}  // namespace lantern::cli
