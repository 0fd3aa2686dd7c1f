// What several commands need of a model: where it is, a session on it, its tokenizer, prompts and sampling settings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/json_writer.h"
#include "cli/settings.h"
#include "engine/session.h"
#include "ops/sampling.h"
#include "text/tokenizer.h"

namespace lantern::cli {

// models/tiny of the checkout that the executable was built in, or of the current folder or one above it. Errors:
// neither exists.
Result<std::filesystem::path> default_model_dir();
// Errors: `dir` is none, or may not be read.
Status check_model_dir(const std::filesystem::path& dir);
// --model, or the default. Errors: as above.
Result<std::filesystem::path> model_dir(const Values& values);

struct LoadedModel {
  std::unique_ptr<Session> session;
  Tokenizer tokenizer;
  std::string name;  // the folder as given
};
// From --model, --device, --threads, --kv-cache-dtype, --max-model-len, --strict-config, --explain-dispatch,
// --require-impl and, where the command has them, --indexer, or, if they generate, --draft-tokens, --drafter,
// --mla-form and --graphs.
Result<LoadedModel> load_model(const Values& values, bool has_indexer_setting, bool generates);

// The ids of --text_setting, --file_setting or --ids_setting, of which the command demands exactly one. Errors: nothing
// in it.
Result<std::vector<int32_t>> input_ids(const Values& values, const Tokenizer& tokenizer, std::string_view text_setting,
                                       std::string_view file_setting, std::string_view ids_setting);

// Flags, then DIR/generation_config.json, then temperature 1 and no filter. Without --seed a fresh one.
Result<SamplingSettings> sampling_settings(const Values& values, const std::filesystem::path& dir);

// --logit-bias, --min-tokens and --stop-token-ids into `request`.
Status set_token_rules(const Values& values, GenerateRequest& request);

// Shares of accepted drafts by place, given that those before were: as `"draft_acceptance": [0.99, 0.97]` (null where
// none was checked), and as a line of text; nothing without drafts.
void write_acceptance(JsonWriter& json, const DraftCounts& counts);
std::string acceptance_text(const DraftCounts& counts);

// As `"graphs": "full", "num_graphs": 4, "steps_replayed": 120`.
void write_graphs(JsonWriter& json, const GraphCounts& counts);

// "12.3 tokens/s", or "-" for no time at all.
std::string rate_text(int64_t tokens, double seconds);

}  // namespace lantern::cli
