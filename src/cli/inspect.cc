#include "model/inspect.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/json_writer.h"
#include "cli/model_access.h"

namespace lantern::cli {
namespace {

Result<ModelSummary> summarize(const std::string& name, const Values& values) {
  std::error_code ignored;
  if (!std::filesystem::exists(name, ignored)) {
    const Result<std::string> text = builtin_config_json(name);
    if (!text.ok()) {
      return Error(ErrorCode::kNotFound, fmt::format("{} does not exist, and {}", name, text.error().message()));
    }
    ASSIGN_OR_RETURN(const ModelConfig config, parse_model_config(*text, {}));
    return summarize_shapes(config, DummyFormat::kBf16);
  }
  ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(name, {.strict = values.is_on("strict-config")}));
  return summarize_checkpoint(name, config);
}

std::string as_json(const std::string& name, const ModelSummary& summary) {
  JsonWriter json;
  json.begin_object()
      .field("model", name)
      .field("architecture", summary.architecture)
      .field("model_type", summary.model_type)
      .field("quantization", summary.quantization)
      .field("parameters", summary.total_parameters)
      .field("active_parameters", summary.active_parameters)
      .field("bytes", summary.total_bytes)
      .field("active_bytes_per_token", summary.active_bytes_per_token)
      .field("shards", summary.shards);
  const auto groups = [&](const char* key, const std::vector<ModelSummary::Group>& list) {
    json.key(key).begin_array();
    for (const ModelSummary::Group& group : list) {
      json.begin_object()
          .field("name", group.name)
          .field("tensors", group.tensors)
          .field("parameters", group.parameters)
          .field("bytes", group.bytes)
          .end_object();
    }
    json.end_array();
  };
  groups("parts", summary.parts);
  groups("dtypes", summary.dtypes);
  json.key("kv_bytes_per_token").begin_object();
  for (const ModelSummary::KvBytes& kv : summary.kv_cache) json.field(kv.layout, kv.bytes_per_token);
  return json.end_object().end_object().take();
}

// Three significant digits and a unit.
std::string scaled(int64_t number, std::string_view unit) {
  constexpr std::string_view kPrefixes[] = {"", "k", "M", "G", "T"};
  auto value = static_cast<double>(number);
  size_t prefix = 0;
  while (value >= 1000 && prefix + 1 < std::size(kPrefixes)) {
    value /= 1000;
    ++prefix;
  }
  return prefix == 0
             ? fmt::format("{} {}", number, unit)
             : fmt::format("{:.{}f} {}{}", value, value < 10 ? 2 : (value < 100 ? 1 : 0), kPrefixes[prefix], unit);
}

std::string as_text(const std::string& name, const ModelSummary& summary) {
  std::string text;
  const auto row = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<18} {}\n", label, value);
  };
  row("model", name);
  row("architecture", fmt::format("{} ({})", summary.architecture, summary.model_type));
  if (!summary.quantization.empty()) row("quantization", summary.quantization);
  row("parameters", fmt::format("{}, {} active per token", scaled(summary.total_parameters, ""),
                                scaled(summary.active_parameters, "")));
  const std::string files = summary.shards > 0 ? fmt::format(" in {} files", summary.shards) : std::string();
  row("weights", fmt::format("{}{}, {} read per token", scaled(summary.total_bytes, "B"), files,
                             scaled(summary.active_bytes_per_token, "B")));
  for (const ModelSummary::KvBytes& kv : summary.kv_cache) {
    row(fmt::format("kv cache {}", kv.layout), fmt::format("{} B per token", kv.bytes_per_token));
  }
  const auto table = [&](std::string_view title, const std::vector<ModelSummary::Group>& groups) {
    text += fmt::format("\n{:<18} {:>8} {:>12} {:>12}\n", title, "tensors", "parameters", "bytes");
    for (const ModelSummary::Group& group : groups) {
      text += fmt::format("{:<18} {:>8} {:>12} {:>12}\n", group.name, group.tensors, scaled(group.parameters, ""),
                          scaled(group.bytes, "B"));
    }
  };
  table("part", summary.parts);
  table("type", summary.dtypes);
  return text;
}

}  // namespace

Result<int> run_inspect(const Values& values) {
  std::string name = values.text("MODEL");
  if (name.empty()) {
    ASSIGN_OR_RETURN(const std::filesystem::path dir, default_model_dir());
    name = dir.string();
  }
  ASSIGN_OR_RETURN(const ModelSummary summary, summarize(name, values));
  write_text(values.is_on("json") ? as_json(name, summary) + "\n" : as_text(name, summary));
  return kSuccess;
}

}  // namespace lantern::cli
