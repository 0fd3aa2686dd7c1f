// What the commands that run an engine have in common.
#pragma once

#include "cli/settings.h"
#include "server/served_model.h"

namespace lantern::cli {

// From --device, --threads, --kv-cache-dtype, --data-parallel-size, --max-model-len, --max-num-seqs,
// --max-num-batched-tokens, --draft-tokens, --drafter, --kv-cache-memory, --enable-prefix-caching, --mla-form and
// --graphs. The model is the caller's to name.
EngineOptions engine_options(const Values& values);

// The same, with the model that --model names, and from --strict-config, --max-logprobs, --max-traced-rows,
// --traced-layer, --served-model-name, --chat-format and the model's generation_config.json. Errors: there is no
// default model; a file that makes no sense.
Result<ServedModelOptions> served_model_options(const Values& values);

// load_engine() and load_served_model(), where Ctrl-C ends the process (EndOnInterrupt).
Result<LoadedEngine> load_interruptibly(const EngineOptions& options);
Result<std::unique_ptr<ServedModel>> load_interruptibly(const ServedModelOptions& options);

}  // namespace lantern::cli
