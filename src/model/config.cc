#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cmath>
#include <limits>

#include "base/file.h"
#include "base/json_error.h"
#include "base/log.h"
#include "model/config_fields.h"
#include "model/config_sections.h"

namespace lantern {
namespace json = boost::json;
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxMtpLayers = 16;
constexpr size_t kMaxFileBytes = 16u << 20;

Result<json::object> parse_object(std::string_view text, std::string_view where) {
  json::error_code code;
  json::value value = json::parse(json::string_view(text.data(), text.size()), code);
  if (code) return json_error(text).within(where);
  if (!value.is_object()) return Error(ErrorCode::kCorrupt, fmt::format("{}: not a JSON object", where));
  return std::move(value.get_object());
}

std::string supported_names() {
  std::vector<std::string_view> names;
  for (const ArchitectureDefaults& defaults : all_architectures()) names.push_back(defaults.class_name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Status read_architecture(ConfigFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.model_type, fields.string_or("model_type", ""));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fields.strings_or_empty("architectures"));
  for (const ArchitectureDefaults& defaults : all_architectures()) {
    // Files saved from a bare configuration class have no architectures; the model type names the class then.
    const bool match = names.empty() ? config.model_type == defaults.model_type : names.front() == defaults.class_name;
    if (!match) continue;
    config.architecture = defaults.architecture;
    return {};
  }
  if (names.empty() && config.model_type.empty()) {
    return fields.bad_value("architectures", fmt::format("one of {}", supported_names()));
  }
  return Error(ErrorCode::kUnsupported,
               fmt::format("{}: architecture '{}' is not supported; supported are {}", fields.where(),
                           names.empty() ? config.model_type : names.front(), supported_names()));
}

Status read_sizes(ConfigFields& fields, ModelConfig& config) {
  const ArchitectureDefaults& defaults = architecture_defaults(config.architecture);
  ASSIGN_OR_RETURN(const std::string_view dtype_name, fields.spelling({"dtype", "torch_dtype"}));
  ASSIGN_OR_RETURN(config.torch_dtype, fields.string_or(dtype_name, ""));
  ASSIGN_OR_RETURN(config.vocab_size, fields.integer("vocab_size", 1, kMaxDimension));
  ASSIGN_OR_RETURN(config.hidden_size, fields.integer("hidden_size", 1, kMaxDimension));
  ASSIGN_OR_RETURN(config.intermediate_size, fields.integer("intermediate_size", 1, kMaxDimension));
  ASSIGN_OR_RETURN(config.num_layers, fields.integer("num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.max_position_embeddings,
                   fields.integer("max_position_embeddings", 1, std::numeric_limits<int32_t>::max()));
  ASSIGN_OR_RETURN(const double eps, fields.number_or("rms_norm_eps", 1e-30, 1.0, defaults.rms_norm_eps));
  config.rms_norm_eps = static_cast<float>(eps);
  ASSIGN_OR_RETURN(config.tie_word_embeddings, fields.boolean_or("tie_word_embeddings", false));
  ASSIGN_OR_RETURN(const std::string_view mtp_name, fields.spelling({"num_nextn_predict_layers", "num_mtp_layers"}));
  ASSIGN_OR_RETURN(config.num_mtp_layers, fields.integer_or(mtp_name, 0, kMaxMtpLayers, 0));
  config.mtp_chains_normed = defaults.mtp_chains_normed;
  return {};
}

Status read_token_ids(ConfigFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.eos_token_ids, fields.ids_or_empty("eos_token_id"));
  // Some files give these two as lists of one.
  ASSIGN_OR_RETURN(const std::vector<int32_t> bos, fields.ids_or_empty("bos_token_id"));
  if (!bos.empty()) config.bos_token_id = bos.front();
  ASSIGN_OR_RETURN(const std::vector<int32_t> pad, fields.ids_or_empty("pad_token_id"));
  if (!pad.empty()) config.pad_token_id = pad.front();
  return {};
}

}  // namespace

std::string_view to_string(Architecture architecture) { return architecture_defaults(architecture).class_name; }

float ModelConfig::softmax_scale() const {
  return static_cast<float>(yarn_softmax_factor(rope_scaling) / std::sqrt(static_cast<double>(qk_head_dim())));
}

Result<ModelConfig> parse_model_config(std::string_view text, const ConfigOptions& options,
                                       std::vector<std::string>* warnings) {
  ASSIGN_OR_RETURN(const json::object object, parse_object(text, "config.json"));
  ConfigFields fields(object, "config.json");
  ModelConfig config;
  RETURN_IF_ERROR(read_architecture(fields, config));
  RETURN_IF_ERROR(check_fixed_fields(fields));
  RETURN_IF_ERROR(read_sizes(fields, config));
  RETURN_IF_ERROR(read_attention(fields, config));
  RETURN_IF_ERROR(read_rope(fields, config));
  RETURN_IF_ERROR(read_experts(fields, config));
  RETURN_IF_ERROR(read_indexer(fields, config));
  RETURN_IF_ERROR(read_quantization(fields, config));
  RETURN_IF_ERROR(read_token_ids(fields, config));

  const std::vector<std::string> unknown = fields.unknown();
  if (!unknown.empty() && options.strict) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("config.json: '{}' is not known to Lantern and may change the result; remove it, or read "
                             "the file without --strict-config",
                             fmt::join(unknown, "', '")));
  }
  if (warnings != nullptr) {
    for (const std::string& name : unknown) {
      warnings->push_back(
          fmt::format("config.json: '{}' ({}) is not known to Lantern and is ignored", name, shown(object.at(name))));
    }
  }
  return config;
}

Result<ModelConfig> load_model_config(const std::filesystem::path& dir, const ConfigOptions& options) {
  Result<std::string> text = read_file(dir / "config.json", kMaxFileBytes);
  if (!text.ok() && text.error().code() == ErrorCode::kNotFound) {
    return Error(ErrorCode::kNotFound, text.error().message() + "; a model directory holds config.json");
  }
  if (!text.ok()) return std::move(text).error();
  std::vector<std::string> warnings;
  Result<ModelConfig> parsed = parse_model_config(*text, options, &warnings);
  if (!parsed.ok()) return std::move(parsed).error().within(dir.string());
  ModelConfig config = std::move(parsed).value();
  for (const std::string& warning : warnings) log_warning("{}: {}", dir.string(), warning);

  const std::filesystem::path generation = dir / "generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(generation, ignored)) {
    ASSIGN_OR_RETURN(const std::string generation_text, read_file(generation, kMaxFileBytes));
    ASSIGN_OR_RETURN(const json::object object, parse_object(generation_text, generation.string()));
    ConfigFields fields(object, generation.string());
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, fields.ids_or_empty("eos_token_id"));
    for (int32_t id : ids) {
      if (std::ranges::find(config.eos_token_ids, id) == config.eos_token_ids.end()) {
        config.eos_token_ids.push_back(id);
      }
    }
  }
  return config;
}

}  // namespace lantern
