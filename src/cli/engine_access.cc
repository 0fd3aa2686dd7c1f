#include "cli/engine_access.h"

#include "cli/console.h"
#include "cli/generation_config.h"
#include "cli/model_access.h"

namespace lantern::cli {

EngineOptions engine_options(const Values& values) {
  EngineOptions options;
  options.device = values.text("device");
  options.threads = static_cast<int32_t>(values.integer("threads"));
  options.kv_cache_dtype = values.text("kv-cache-dtype");
  options.data_parallel_size = static_cast<int32_t>(values.integer("data-parallel-size"));
  if (values.given("max-model-len")) options.max_model_len = static_cast<int32_t>(values.integer("max-model-len"));
  options.max_num_seqs = static_cast<int32_t>(values.integer("max-num-seqs"));
  if (values.given("max-num-batched-tokens"))
    options.max_num_batched_tokens = static_cast<int32_t>(values.integer("max-num-batched-tokens"));
  options.num_draft_tokens = static_cast<int32_t>(values.integer("draft-tokens"));
  options.drafter = values.text("drafter");
  if (values.given("kv-cache-memory")) options.kv_cache_bytes = values.integer("kv-cache-memory");
  options.prefix_caching = values.is_on("enable-prefix-caching");
  if (values.text("mla-form") == "absorbed") options.mla_form = MlaForm::kAbsorbed;
  options.graphs = values.text("graphs");
  return options;
}

Result<ServedModelOptions> served_model_options(const Values& values) {
  ServedModelOptions options;
  options.engine = engine_options(values);
  ASSIGN_OR_RETURN(options.engine.model_dir, model_dir(values));
  options.engine.strict_config = values.is_on("strict-config");
  options.engine.max_logprobs = static_cast<int32_t>(values.integer("max-logprobs"));
  options.engine.max_traced_rows = static_cast<int32_t>(values.integer("max-traced-rows"));
  if (values.given("traced-layer")) options.engine.traced_layer = static_cast<int32_t>(values.integer("traced-layer"));
  options.names = values.list("served-model-name");
  options.chat_format = values.text("chat-format");
  ASSIGN_OR_RETURN(const GenerationConfig shipped, load_generation_config(options.engine.model_dir));
  options.temperature = shipped.temperature;
  options.top_p = shipped.top_p;
  options.top_k = shipped.top_k;
  return options;
}

Result<LoadedEngine> load_interruptibly(const EngineOptions& options) {
  const EndOnInterrupt while_loading;
  return load_engine(options);
}

Result<std::unique_ptr<ServedModel>> load_interruptibly(const ServedModelOptions& options) {
  const EndOnInterrupt while_loading;
  return load_served_model(options);
}

}  // namespace lantern::cli
