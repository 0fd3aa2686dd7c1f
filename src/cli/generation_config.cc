#include "cli/generation_config.h"

#include <fmt/core.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "base/json_error.h"
#include "cli/console.h"
#include "ops/sampling_settings.h"

namespace lantern::cli {

Result<GenerationConfig> load_generation_config(const std::filesystem::path& dir) {
  GenerationConfig config;
  const std::filesystem::path path = dir / "generation_config.json";
  if (!std::filesystem::exists(path)) return config;
  ASSIGN_OR_RETURN(const std::string text, read_text(path.string()));
  boost::system::error_code failure;
  const boost::json::value document = boost::json::parse(text, failure);
  if (failure) return json_error(text).within(path.string());
  if (!document.is_object()) {
    return Error(ErrorCode::kCorrupt, fmt::format("{}: is not a JSON object", path.string()));
  }
  const boost::json::object& object = document.get_object();
  const auto number = [&](const char* name, std::optional<double>& into) -> Status {
    const boost::json::value* found = object.if_contains(name);
    if (found == nullptr || found->is_null()) return {};
    if (!found->is_number()) {
      return Error(ErrorCode::kCorrupt, fmt::format("{}: {} is not a number", path.string(), name));
    }
    into = found->to_number<double>();
    return {};
  };
  std::optional<double> top_k;
  RETURN_IF_ERROR(number("temperature", config.temperature));
  RETURN_IF_ERROR(number("top_p", config.top_p));
  RETURN_IF_ERROR(number("top_k", top_k));
  RETURN_IF_ERROR(number("repetition_penalty", config.repetition_penalty));
  if (top_k) {
    if (*top_k != std::floor(*top_k) || *top_k < -1 || *top_k > std::numeric_limits<int32_t>::max()) {
      return Error(ErrorCode::kCorrupt, fmt::format("{}: top_k {} is not a whole number from -1 to {}", path.string(),
                                                    *top_k, std::numeric_limits<int32_t>::max()));
    }
    config.top_k = static_cast<int32_t>(*top_k);
  }
  SamplingSettings settings;
  settings.temperature = static_cast<float>(config.temperature.value_or(1));
  settings.top_p = static_cast<float>(config.top_p.value_or(1));
  settings.repetition_penalty = static_cast<float>(config.repetition_penalty.value_or(1));
  if (Status checked = check_sampling(settings); !checked.ok()) return std::move(checked).error().within(path.string());
  const boost::json::value* do_sample = object.if_contains("do_sample");
  if (do_sample != nullptr && do_sample->is_bool() && !do_sample->get_bool()) config.temperature = 0;
  return config;
}

}  // namespace lantern::cli
