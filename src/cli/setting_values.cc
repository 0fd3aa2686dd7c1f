// Reading and checking the values of settings.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/check.h"
#include "cli/settings.h"

namespace lantern::cli {
namespace {

constexpr int64_t kKibi = 1024;

Result<int64_t> size_factor(std::string_view suffix) {
  struct Suffix {
    std::string_view name;
    int64_t factor;
  };
  static constexpr Suffix kSuffixes[] = {{"", 1},
                                         {"k", 1'000},
                                         {"m", 1'000'000},
                                         {"g", 1'000'000'000},
                                         {"K", kKibi},
                                         {"Ki", kKibi},
                                         {"M", kKibi * kKibi},
                                         {"Mi", kKibi * kKibi},
                                         {"G", kKibi * kKibi * kKibi},
                                         {"Gi", kKibi * kKibi * kKibi}};
  for (const Suffix& known : kSuffixes) {
    if (known.name == suffix) return known.factor;
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("'{}' is no size suffix (k, K, Ki, m, M, Mi, g, G, Gi)", suffix));
}

}  // namespace

Result<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a whole number", text));
  }
  return value;
}

Result<double> parse_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a number", text));
  }
  return value;
}

Result<int64_t> parse_size(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  if (digits == 0) return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a number of 0 or more", text));
  const std::string_view suffix = text.substr(digits);
  ASSIGN_OR_RETURN(const int64_t factor, size_factor(suffix));
  double value = 0;
  if (text.substr(0, digits).find('.') == std::string_view::npos) {
    ASSIGN_OR_RETURN(const int64_t whole, parse_integer(text.substr(0, digits)));
    value = static_cast<double>(whole);
  } else {
    ASSIGN_OR_RETURN(value, parse_real(text.substr(0, digits)));
  }
  const double size = value * static_cast<double>(factor);
  if (size != std::floor(size) || size > 9e15) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a whole number of a sensible size", text));
  }
  return static_cast<int64_t>(size);
}

Status check_value(const Setting& setting, std::string_view flag, std::string_view value) {
  if (!setting.choices.empty()) {
    for (std::string_view rest = setting.choices; !rest.empty();) {
      const size_t bar = std::min(rest.find('|'), rest.size());
      if (rest.substr(0, bar) == value) return {};
      rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} must be one of {}, not '{}'", flag, setting.choices, value));
  }
  double number = 0;
  switch (setting.type) {
    case SettingType::kText:
    case SettingType::kPath: {
      if (value.empty() && !setting.may_be_empty) {
        return Error(ErrorCode::kInvalidArgument, fmt::format("{} is empty; give it a value, or leave it out", flag));
      }
      Status formed = setting.form == nullptr ? Status() : setting.form(value);
      return formed.ok() ? Status() : std::move(formed).error().within(flag);
    }
    case SettingType::kSwitch:
      if (value == "true" || value == "false") return {};
      return Error(ErrorCode::kInvalidArgument, fmt::format("{} must be true or false, not '{}'", flag, value));
    case SettingType::kInteger: {
      Result<int64_t> parsed = parse_integer(value);
      if (!parsed.ok()) return std::move(parsed).error().within(flag);
      number = static_cast<double>(*parsed);
      break;
    }
    case SettingType::kSize: {
      Result<int64_t> parsed = parse_size(value);
      if (!parsed.ok()) return std::move(parsed).error().within(flag);
      number = static_cast<double>(*parsed);
      break;
    }
    case SettingType::kReal: {
      Result<double> parsed = parse_real(value);
      if (!parsed.ok()) return std::move(parsed).error().within(flag);
      number = *parsed;
      // What float holds no more is 0 where it is used.
      if (static_cast<float>(number) == 0.0f) number = 0;
      break;
    }
  }
  const Limits& limits = setting.limits;
  if (number < limits.lowest || number > limits.highest || (limits.above_lowest && number == limits.lowest)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} must be {} {} and at most {}, not {}", flag,
                             limits.above_lowest ? "above" : "at least", limits.lowest, limits.highest, value));
  }
  return {};
}

void Values::declare(std::string_view name, std::string_view default_value) {
  Value value;
  if (!default_value.empty()) value.values.emplace_back(default_value);
  values_.insert_or_assign(std::string(name), std::move(value));
}

void Values::set(std::string_view name, std::vector<std::string> values, Origin origin) {
  values_.insert_or_assign(std::string(name), Value{.values = std::move(values), .origin = origin});
}

const Values::Value& Values::find(std::string_view name) const {
  const auto found = values_.find(name);
  CHECK(found != values_.end(), "this command has no setting {}", name);
  return found->second;
}

Values::Origin Values::origin(std::string_view name) const { return find(name).origin; }

bool Values::is_on(std::string_view name) const { return text(name) == "true"; }

const std::string& Values::text(std::string_view name) const {
  static const std::string none;
  const Value& value = find(name);
  return value.values.empty() ? none : value.values.back();
}

int64_t Values::integer(std::string_view name) const {
  const std::string& value = text(name);
  Result<int64_t> parsed = find_setting(name).type == SettingType::kSize ? parse_size(value) : parse_integer(value);
  CHECK(parsed.ok(), "setting {} has no number", name);
  return *parsed;
}

double Values::real(std::string_view name) const {
  Result<double> parsed = parse_real(text(name));
  CHECK(parsed.ok(), "setting {} has no number", name);
  return *parsed;
}

const std::vector<std::string>& Values::list(std::string_view name) const { return find(name).values; }

}  // namespace lantern::cli
