#include "cli/engine_access.h"

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

}  // namespace lantern::cli
