#include "server/json_fields.h"

#include <fmt/format.h>

#include <cmath>

namespace lantern {
namespace json = boost::json;

namespace {

constexpr size_t kMaxDepth = 64;

}  // namespace

std::variant<json::object, OpenAiError> parse_body(std::string_view body) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::error_code failure;
  json::value document = json::parse(body, failure, {}, options);
  if (failure)
    return OpenAiError{.message = fmt::format("the body is not JSON: {}", failure.message()), .code = "invalid_json"};
  if (!document.is_object()) {
    return OpenAiError{.message = fmt::format("the body must be a JSON object, not {}", kind_of(document)),
                       .code = "invalid_json"};
  }
  return std::move(document.get_object());
}

const json::value* member_of(const json::value* value, std::string_view name) {
  const json::object* object = value != nullptr ? value->if_object() : nullptr;
  return object != nullptr ? object->if_contains(name) : nullptr;
}

std::string_view kind_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return "true or false";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_: return "a number";
    case json::kind::string: return "a string";
    case json::kind::array: return "a list";
    case json::kind::object: return "an object";
  }
  return "unknown";
}

std::string shown_to_client(const json::value& value) {
  switch (value.kind()) {
    case json::kind::int64: return fmt::to_string(value.get_int64());
    case json::kind::uint64: return fmt::to_string(value.get_uint64());
    case json::kind::double_: return fmt::to_string(value.get_double());
    default: return std::string(kind_of(value));
  }
}

const json::value* JsonFields::find(std::string_view name) const {
  if (error_) return nullptr;
  const json::value* found = object_.if_contains(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

void JsonFields::fail(std::string_view name, std::string message, std::string code) {
  fail(OpenAiError{.message = std::move(message), .param = std::string(name), .code = std::move(code)});
}
void JsonFields::fail(OpenAiError error) {
  if (!error_) error_ = std::move(error);
}

void JsonFields::boolean(std::string_view name, bool& into) {
  const json::value* value = find(name);
  if (value == nullptr) return;
  if (!value->is_bool()) return fail(name, fmt::format("{} must be true or false, not {}", name, kind_of(*value)));
  into = value->get_bool();
}

void JsonFields::integer64(std::string_view name, int64_t& into, int64_t lowest, int64_t highest) {
  const json::value* value = find(name);
  if (value == nullptr) return;
  json::error_code failure;
  const auto number = value->is_number() ? value->to_number<int64_t>(failure) : 0;
  if (!value->is_number() || failure) {
    return fail(name, fmt::format("{} must be a whole number from {} to {}, not {}", name, lowest, highest,
                                  shown_to_client(*value)));
  }
  if (number < lowest || number > highest)
    return fail(name, fmt::format("{} must be a whole number from {} to {}, not {}", name, lowest, highest, number));
  into = number;
}

void JsonFields::integer(std::string_view name, int32_t& into, int64_t lowest, int64_t highest) {
  int64_t wide = into;
  integer64(name, wide, lowest, highest);
  into = static_cast<int32_t>(wide);
}

void JsonFields::real(std::string_view name, float& into, double lowest, double highest) {
  const json::value* value = find(name);
  if (value == nullptr) return;
  const double number = value->is_number() ? value->to_number<double>() : std::nan("");
  if (!(number >= lowest && number <= highest)) {
    return fail(
        name, fmt::format("{} must be a number from {} to {}, not {}", name, lowest, highest, shown_to_client(*value)));
  }
  into = static_cast<float>(number);
}

void JsonFields::positive(std::string_view name, float& into, double highest) {
  const json::value* value = find(name);
  if (value == nullptr) return;
  const float number = value->is_number() ? value->to_number<float>() : 0.0F;
  if (!(number > 0 && number <= highest))
    return fail(
        name, fmt::format("{} must be a number above 0 and up to {}, not {}", name, highest, shown_to_client(*value)));
  into = number;
}

void JsonFields::text(std::string_view name, std::string& into) {
  const json::value* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return fail(name, fmt::format("{} must be a string, not {}", name, kind_of(*value)));
  into = std::string_view(value->get_string());
}

void JsonFields::ids(std::string_view name, std::vector<int32_t>& into, int64_t highest) {
  const json::value* value = find(name);
  if (value == nullptr) return;
  if (!value->is_array())
    return fail(name, fmt::format("{} must be a list of token ids, not {}", name, kind_of(*value)));
  into.clear();
  for (const json::value& item : value->get_array()) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() > highest) {
      return fail(name, fmt::format("{} must be a list of token ids from 0 to {}, but item {} is {}", name, highest,
                                    into.size(), shown_to_client(item)));
    }
    into.push_back(static_cast<int32_t>(item.get_int64()));
  }
}

void JsonFields::texts(std::string_view name, std::vector<std::string>& into, size_t most) {
  const json::value* value = find(name);
  if (value == nullptr) return;
  into.clear();
  const auto add = [&](const json::string& text) {
    if (text.empty()) return fail(name, fmt::format("{} has an empty string; leave it out", name));
    into.emplace_back(std::string_view(text));
  };
  if (value->is_string()) return add(value->get_string());
  if (!value->is_array())
    return fail(name, fmt::format("{} must be a string or a list of strings, not {}", name, kind_of(*value)));
  if (value->get_array().size() > most) {
    return fail(name,
                fmt::format("{} has {} strings, and at most {} are allowed", name, value->get_array().size(), most));
  }
  for (const json::value& item : value->get_array()) {
    if (!item.is_string()) {
      return fail(name, fmt::format("{} must be a string or a list of strings, but item {} is {}", name, into.size(),
                                    kind_of(item)));
    }
    add(item.get_string());
  }
}

}  // namespace lantern
