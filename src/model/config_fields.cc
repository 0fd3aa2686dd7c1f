#include "model/config_fields.h"

#include <fmt/format.h>

#include <boost/json/value.hpp>
#include <cmath>
#include <optional>

#include "base/json_text.h"

namespace lantern {
namespace json = boost::json;
namespace {

std::string integer_range(int64_t min, int64_t max) { return fmt::format("an integer from {} to {}", min, max); }

std::optional<int64_t> as_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  return std::nullopt;  // uint64 starts where int64 ends; doubles are not counts
}

std::optional<double> as_number(const json::value& value) {
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  if (value.is_double() && std::isfinite(value.get_double())) return value.get_double();
  return std::nullopt;
}

}  // namespace

std::string shown(const json::value& value) {
  constexpr size_t kLongest = 80;
  std::string text = json_text(value);
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;  // keep code points whole
  return text.substr(0, end) + "...";
}

const json::value* ConfigFields::find(std::string_view name) {
  mark_known(name);
  const json::value* value = object_.if_contains(name);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

Error ConfigFields::bad_value(std::string_view name, std::string_view expected, ErrorCode code) const {
  const json::value* value = object_.if_contains(name);
  if (value == nullptr) {
    return Error(ErrorCode::kNotFound, fmt::format("{}: '{}' is missing; expected {}", where_, name, expected));
  }
  return Error(code, fmt::format("{}: '{}' is {}; expected {}", where_, name, shown(*value), expected));
}

Result<int32_t> ConfigFields::integer(std::string_view name, int64_t min, int64_t max) {
  const json::value* value = find(name);
  const std::optional<int64_t> number = value != nullptr ? as_integer(*value) : std::nullopt;
  if (!number || *number < min || *number > max) return bad_value(name, integer_range(min, max));
  return static_cast<int32_t>(*number);
}

Result<double> ConfigFields::number(std::string_view name, double min, double max) {
  const json::value* value = find(name);
  const std::optional<double> number = value != nullptr ? as_number(*value) : std::nullopt;
  if (!number || *number < min || *number > max) {
    return bad_value(name, fmt::format("a number from {:g} to {:g}", min, max));
  }
  return *number;
}

Result<int32_t> ConfigFields::integer_or(std::string_view name, int64_t min, int64_t max, int32_t fallback) {
  if (!has(name)) return fallback;
  return integer(name, min, max);
}

Result<double> ConfigFields::number_or(std::string_view name, double min, double max, double fallback) {
  if (!has(name)) return fallback;
  return number(name, min, max);
}

Result<bool> ConfigFields::boolean_or(std::string_view name, bool fallback) {
  const json::value* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) return bad_value(name, "true or false");
  return value->get_bool();
}

Result<std::string> ConfigFields::string_or(std::string_view name, std::string_view fallback) {
  const json::value* value = find(name);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) return bad_value(name, "a string");
  return std::string(value->get_string());
}

Result<std::string> ConfigFields::choice_or(std::string_view name, std::initializer_list<std::string_view> allowed,
                                            std::string_view fallback) {
  const json::value* value = find(name);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) {
    for (std::string_view choice : allowed) {
      if (std::string_view(value->get_string()) == choice) return std::string(choice);
    }
  }
  return bad_value(name, fmt::format("'{}'", fmt::join(allowed, "' or '")), ErrorCode::kUnsupported);
}

Result<std::vector<std::string>> ConfigFields::strings_or_empty(std::string_view name) {
  std::vector<std::string> strings;
  const json::value* value = find(name);
  if (value == nullptr) return strings;
  if (!value->is_array()) return bad_value(name, "a list of strings");
  for (const json::value& item : value->get_array()) {
    if (!item.is_string()) return bad_value(name, "a list of strings");
    strings.emplace_back(item.get_string());
  }
  return strings;
}

Result<std::vector<int32_t>> ConfigFields::ids_or_empty(std::string_view name) {
  constexpr std::string_view kExpected = "a token id from 0 to 2147483647, or a list of them";
  std::vector<int32_t> ids;
  const json::value* value = find(name);
  if (value == nullptr) return ids;
  const auto add = [&](const json::value& item) {
    const std::optional<int64_t> id = as_integer(item);
    if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) return false;
    ids.push_back(static_cast<int32_t>(*id));
    return true;
  };
  if (value->is_array()) {
    for (const json::value& item : value->get_array()) {
      if (!add(item)) return bad_value(name, kExpected);
    }
  } else if (!add(*value)) {
    return bad_value(name, kExpected);
  }
  return ids;
}

Result<const json::object*> ConfigFields::object_or_null(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return static_cast<const json::object*>(nullptr);
  if (!value->is_object()) return bad_value(name, "an object");
  return &value->get_object();
}

Result<std::string_view> ConfigFields::spelling(std::initializer_list<std::string_view> names) {
  std::string_view chosen;
  for (std::string_view name : names) {
    if (!has(name)) continue;
    if (chosen.empty()) {
      chosen = name;
    } else if (*find(chosen) != *find(name)) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: '{}' is {} but '{}' is {}; they are two spellings of one field, keep one", where_,
                               chosen, shown(*find(chosen)), name, shown(*find(name))));
    }
  }
  return chosen.empty() ? *names.begin() : chosen;
}

std::vector<std::string> ConfigFields::unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_) {
    if (!known_.contains(std::string_view(name))) names.emplace_back(name);
  }
  return names;
}

}  // namespace lantern
