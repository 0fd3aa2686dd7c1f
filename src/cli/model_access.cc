#include "cli/model_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "cli/console.h"
#include "cli/generation_config.h"
#include "engine/bad_words.h"

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

Result<fs::path> model_dir(const Values& values) {
  if (!values.text("model").empty()) return fs::path(values.text("model"));
  return default_model_dir();
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
  return LoadedModel{.session = std::move(session), .tokenizer = std::move(tokenizer), .name = dir.string()};
}

Result<std::vector<int32_t>> parse_token_ids(std::string_view text) {
  std::vector<int32_t> ids;
  constexpr std::string_view kSeparators = " ,\t\n[]";
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kSeparators), text.size()));
    if (text.empty()) return ids;
    const size_t length = std::min(text.find_first_of(kSeparators), text.size());
    Result<int64_t> id = parse_integer(text.substr(0, length));
    if (!id.ok() || *id < 0 || *id > INT32_MAX) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("'{}' is not a token id; give ids as 0,17,42", text.substr(0, length)));
    }
    ids.push_back(static_cast<int32_t>(*id));
    text.remove_prefix(length);
  }
}

Result<std::vector<int32_t>> input_ids(const Values& values, const Tokenizer& tokenizer, std::string_view text_setting,
                                       std::string_view file_setting, std::string_view ids_setting) {
  if (values.given(ids_setting)) {
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, parse_token_ids(values.text(ids_setting)));
    if (ids.empty()) return Error(ErrorCode::kInvalidArgument, fmt::format("--{} names no token id", ids_setting));
    return ids;
  }
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

Status set_token_rules(const Values& values, const Tokenizer& tokenizer, GenerateRequest& request) {
  for (const std::string& entry : values.list("logit-bias")) {
    const size_t equals = std::min(entry.find('='), entry.size());
    const Result<int64_t> id = parse_integer(std::string_view(entry).substr(0, equals));
    const Result<double> bias = parse_real(std::string_view(entry).substr(std::min(equals + 1, entry.size())));
    if (!id.ok() || !bias.ok() || *id < 0 || *id > INT32_MAX) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--logit-bias '{}' is not a token id and a number; give it as 17=-2.5", entry));
    }
    request.logit_bias.push_back({static_cast<int32_t>(*id), static_cast<float>(*bias)});
  }
  ASSIGN_OR_RETURN(request.bad_words,
                   encode_bad_words(tokenizer, values.list("bad-words"),
                                    {.name = "--bad-words", .parse_special = values.is_on("special-tokens")}));
  request.min_tokens = static_cast<int32_t>(values.integer("min-tokens"));
  ASSIGN_OR_RETURN(request.stop_token_ids, parse_token_ids(values.text("stop-token-ids")));
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
