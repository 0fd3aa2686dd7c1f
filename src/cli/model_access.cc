#include "cli/model_access.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "cli/console.h"
#include "cli/dispatch.h"
#include "cli/generation_config.h"
#include "cli/value_forms.h"

namespace lantern::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kDefaultModel = "models/tiny";

// The nearest folder at or above `from` that holds the default model.
std::optional<fs::path> default_model_above(fs::path from) {
  std::error_code ignored;
  while (!from.empty()) {
    if (fs::exists(from / kDefaultModel / "config.json", ignored)) return from / kDefaultModel;
    if (from == from.root_path()) break;
    from = from.parent_path();
  }
  return std::nullopt;
}

}  // namespace

Status check_model_dir(const fs::path& dir) {
  constexpr const char* kModel = "a model is a folder with config.json, tokenizer and safetensors";
  std::error_code failure;
  const fs::file_status status = fs::status(dir, failure);
  if (status.type() == fs::file_type::not_found)
    return Error(ErrorCode::kNotFound, fmt::format("{} does not exist; {}", dir.string(), kModel));
  if (failure) return Error(ErrorCode::kIo, fmt::format("{} cannot be looked at: {}", dir.string(), failure.message()));
  if (!fs::is_directory(status))
    return Error(ErrorCode::kInvalidArgument, fmt::format("{} is a file; {}", dir.string(), kModel));
  if (::faccessat(AT_FDCWD, dir.c_str(), R_OK | X_OK, AT_EACCESS) != 0)
    return Error(ErrorCode::kIo, fmt::format("{} may not be read: {}", dir.string(), std::strerror(errno)));
  return {};
}

Result<fs::path> model_dir(const Values& values) {
  if (!values.given("model")) return default_model_dir();
  const fs::path dir = values.text("model");
  RETURN_IF_ERROR(check_model_dir(dir));
  return dir;
}

Result<fs::path> default_model_dir() {
  std::error_code ignored;
  for (const fs::path& start : {fs::read_symlink("/proc/self/exe", ignored).parent_path(), fs::current_path(ignored)}) {
    if (auto found = default_model_above(start)) return fs::proximate(*found, ignored);
  }
  return Error(ErrorCode::kNotFound,
               fmt::format("no {} was found above the executable or the current folder; name a model with --model DIR",
                           kDefaultModel));
}

Result<LoadedModel> load_model(const Values& values, bool has_indexer_setting, bool generates) {
  ASSIGN_OR_RETURN(const fs::path dir, model_dir(values));
  const EndOnInterrupt while_loading;
  SessionOptions options;
  options.model_dir = dir;
  options.device = values.text("device");
  options.threads = static_cast<int32_t>(values.integer("threads"));
  options.kv_cache_dtype = values.text("kv-cache-dtype");
  if (values.given("max-model-len")) options.max_model_len = static_cast<int32_t>(values.integer("max-model-len"));
  options.strict_config = values.is_on("strict-config");
  if (has_indexer_setting) options.indexer = values.text("indexer");
  if (generates) {
    options.draft_tokens = static_cast<int32_t>(values.integer("draft-tokens"));
    options.drafter = values.text("drafter");
    options.graphs = values.text("graphs");
    if (values.text("mla-form") == "absorbed") options.mla_form = MlaForm::kAbsorbed;
  }
  ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::load(dir));
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::load(options));
  RETURN_IF_ERROR(apply_dispatch_settings(values, session->model()));
  return LoadedModel{.session = std::move(session), .tokenizer = std::move(tokenizer), .name = dir.string()};
}

Result<std::vector<int32_t>> input_ids(const Values& values, const Tokenizer& tokenizer, std::string_view text_setting,
                                       std::string_view file_setting, std::string_view ids_setting) {
  if (values.given(ids_setting)) return parse_token_ids(values.text(ids_setting));
  std::string text = values.text(text_setting);
  if (values.given(file_setting)) {
    ASSIGN_OR_RETURN(text, read_text(values.text(file_setting)));
  }
  // A text of nothing but the beginning-of-sentence token would be generated from in silence.
  if (text.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the {} is empty; give at least one character", text_setting));
  }
  return tokenizer.encode(text, {.add_special = values.is_on("bos"), .parse_special = values.is_on("special-tokens")});
}

Result<SamplingSettings> sampling_settings(const Values& values, const fs::path& dir) {
  ASSIGN_OR_RETURN(const GenerationConfig shipped, load_generation_config(dir));
  SamplingSettings settings;
  settings.temperature =
      static_cast<float>(values.given("temperature") ? values.real("temperature") : shipped.temperature.value_or(1.0));
  settings.top_p = static_cast<float>(values.given("top-p") ? values.real("top-p") : shipped.top_p.value_or(1.0));
  settings.top_k = values.given("top-k") ? static_cast<int32_t>(values.integer("top-k")) : shipped.top_k.value_or(0);
  settings.min_p = static_cast<float>(values.real("min-p"));
  settings.repetition_penalty =
      static_cast<float>(values.given("repetition-penalty") ? values.real("repetition-penalty")
                                                            : shipped.repetition_penalty.value_or(1.0));
  settings.presence_penalty = static_cast<float>(values.real("presence-penalty"));
  settings.frequency_penalty = static_cast<float>(values.real("frequency-penalty"));
  if (values.given("seed")) {
    settings.seed = static_cast<uint64_t>(values.integer("seed"));
  } else {
    settings.seed = std::random_device{}();
  }
  return settings;
}

Status set_token_rules(const Values& values, GenerateRequest& request) {
  for (const std::string& entry : values.list("logit-bias")) {
    ASSIGN_OR_RETURN(const LogitBias bias, parse_logit_bias(entry));
    request.logit_bias.push_back(bias);
  }
  request.min_tokens = static_cast<int32_t>(values.integer("min-tokens"));
  if (values.given("stop-token-ids")) {
    ASSIGN_OR_RETURN(request.stop_token_ids, parse_token_ids(values.text("stop-token-ids")));
  }
  return {};
}

void write_acceptance(JsonWriter& json, const DraftCounts& counts) {
  if (counts.checked.empty()) return;
  json.key("draft_acceptance").begin_array();
  for (size_t k = 0; k < counts.checked.size(); ++k) {
    if (counts.checked[k] == 0) {
      json.null();
    } else {
      json.value(static_cast<double>(counts.accepted[k]) / static_cast<double>(counts.checked[k]));
    }
  }
  json.end_array();
}

std::string acceptance_text(const DraftCounts& counts) {
  if (counts.checked.empty()) return "";
  std::string text = "drafts accepted, by place:";
  for (size_t k = 0; k < counts.checked.size(); ++k) {
    const double share = static_cast<double>(counts.accepted[k]) / static_cast<double>(counts.checked[k]);
    text += counts.checked[k] == 0 ? " -" : fmt::format(" {:.1f} % of {}", 100 * share, counts.checked[k]);
    if (k + 1 < counts.checked.size()) text += ",";
  }
  return text;
}

void write_graphs(JsonWriter& json, const GraphCounts& counts) {
  json.field("graphs", to_string(counts.mode))
      .field("num_graphs", counts.num_graphs)
      .field("steps_replayed", counts.steps_replayed);
}

std::string rate_text(int64_t tokens, double seconds) {
  return seconds > 0 ? fmt::format("{:.1f} tokens/s", static_cast<double>(tokens) / seconds) : std::string("-");
}

}  // namespace lantern::cli
