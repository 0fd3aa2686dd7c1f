#include "text/json.h"

#include <fmt/format.h>

#include "base/json_error.h"

namespace lantern {
namespace json = boost::json;

namespace {

Error wrong_kind(const json::value& value, std::string_view where, std::string_view wanted) {
  return Error(ErrorCode::kCorrupt, fmt::format("{} must be {} but is {}", where, wanted, json_kind(value)));
}

const json::value* find_not_null(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  return value != nullptr && value->is_null() ? nullptr : value;
}

}  // namespace

Result<json::value> parse_json(std::string_view text, size_t max_depth) {
  json::parse_options options;
  options.max_depth = max_depth;
  json::parser parser(json::make_shared_resource<json::monotonic_resource>(), options);
  boost::system::error_code error;
  // boost::json reports what is wrong with the text through the error code; it throws only when memory runs out.
  try {
    const size_t read = parser.write_some(text.data(), text.size(), error);
    if (error || read < text.size()) return json_error(text, max_depth);
    return parser.release();
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, fmt::format("no memory to read {} bytes of JSON", text.size()));
  }
}

std::string_view json_kind(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return "true or false";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_: return "a number";
    case json::kind::string: return "a string";
    case json::kind::array: return "an array";
    case json::kind::object: return "an object";
  }
  return "unknown";
}

Result<const json::value*> json_member(const json::object& object, std::string_view name, std::string_view where) {
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr) return Error(ErrorCode::kCorrupt, fmt::format("{} has no \"{}\"", where, name));
  return value;
}

Result<const json::object*> json_object(const json::value& value, std::string_view where) {
  if (!value.is_object()) return wrong_kind(value, where, "an object");
  return &value.get_object();
}

Result<const json::array*> json_array(const json::value& value, std::string_view where) {
  if (!value.is_array()) return wrong_kind(value, where, "an array");
  return &value.get_array();
}

Result<std::string_view> json_string(const json::value& value, std::string_view where) {
  if (!value.is_string()) return wrong_kind(value, where, "a string");
  return std::string_view(value.get_string().data(), value.get_string().size());
}

Result<int64_t> json_integer(const json::value& value, std::string_view where) {
  if (value.is_int64()) return value.get_int64();
  return wrong_kind(value, where, "an integer");
}

Result<bool> json_bool_or(const json::object& object, std::string_view name, bool absent, std::string_view where) {
  const json::value* value = find_not_null(object, name);
  if (value == nullptr) return absent;
  if (!value->is_bool()) return wrong_kind(*value, fmt::format("\"{}\" of {}", name, where), "true or false");
  return value->get_bool();
}

Result<std::string_view> json_string_or(const json::object& object, std::string_view name, std::string_view absent,
                                        std::string_view where) {
  const json::value* value = find_not_null(object, name);
  if (value == nullptr) return absent;
  return json_string(*value, fmt::format("\"{}\" of {}", name, where));
}

}  // namespace lantern
