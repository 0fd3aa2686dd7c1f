#include "text/tool_arguments.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/json_text.h"
#include "text/chat_builder.h"
#include "text/json.h"

namespace lantern {
namespace json = boost::json;

namespace {

uint8_t kind_bit(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return kJsonNull;
    case json::kind::bool_: return kJsonBool;
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_: return kJsonNumber;
    case json::kind::string: return kJsonString;
    case json::kind::array: return kJsonArray;
    case json::kind::object: return kJsonObject;
  }
  return kUnknownTypes;
}

uint8_t named_type(const json::value& name) {
  if (name == "null") return kJsonNull;
  if (name == "boolean") return kJsonBool;
  if (name == "integer" || name == "number") return kJsonNumber;
  if (name == "string") return kJsonString;
  if (name == "array") return kJsonArray;
  if (name == "object") return kJsonObject;
  return kUnknownTypes;
}

// `deeper`: alternatives may be looked into.
uint8_t schema_types(const json::value& schema, bool deeper) {
  const json::object* object = schema.if_object();
  if (object == nullptr) return kUnknownTypes;
  uint8_t types = kUnknownTypes;
  if (const json::value* type = object->if_contains("type")) {
    if (const json::array* list = type->if_array()) {
      for (const json::value& name : *list) types |= named_type(name);
      return types;
    }
    return named_type(*type);
  }
  if (const json::value* constant = object->if_contains("const")) return kind_bit(*constant);
  if (const json::value* values = object->if_contains("enum"); values != nullptr && values->is_array()) {
    for (const json::value& value : values->get_array()) types |= kind_bit(value);
    return types;
  }
  for (const char* name : {"anyOf", "oneOf"}) {
    const json::value* options = deeper ? object->if_contains(name) : nullptr;
    if (options == nullptr || !options->is_array()) continue;
    for (const json::value& option : options->get_array()) {
      const uint8_t of_option = schema_types(option, false);
      if (of_option == kUnknownTypes) return kUnknownTypes;
      types |= of_option;
    }
    return types;
  }
  return types;
}

}  // namespace

ToolTypes::ToolTypes(const std::vector<std::string>& tools) {
  for (const std::string& text : tools) {
    const Result<ParsedTool> tool = parse_tool(text);
    if (!tool.ok()) continue;
    const json::object& function = tool->function();
    auto& of_tool = types_[std::string(std::string_view(function.at("name").get_string()))];
    const json::value* parameters = function.if_contains("parameters");
    if (parameters == nullptr || !parameters->is_object()) continue;
    const json::value* properties = parameters->get_object().if_contains("properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [name, schema] : properties->get_object()) {
      of_tool[std::string(std::string_view(name))] = schema_types(schema, true);
    }
  }
}

uint8_t ToolTypes::of(std::string_view tool, std::string_view parameter) const {
  const auto of_tool = types_.find(tool);
  if (of_tool == types_.end()) return kUnknownTypes;
  const auto found = of_tool->second.find(parameter);
  return found == of_tool->second.end() ? static_cast<uint8_t>(kUnknownTypes) : found->second;
}

std::string value_as_json(std::string_view text, uint8_t types) {
  const std::string_view trimmed = strip(text);
  const auto allowed = [&](uint8_t type) {
    // Where a string is as good, text in quotes stays what it is.
    return types == kUnknownTypes || ((types & type) != 0 && type != kJsonString) || (types & kJsonString) == 0;
  };
  for (const auto& [python, constant, type] :
       {std::tuple("True", "true", kJsonBool), {"False", "false", kJsonBool}, {"None", "null", kJsonNull}}) {
    if (trimmed == python && allowed(type)) return constant;
  }
  if (const Result<json::value> value = parse_json(trimmed, 64); value.ok() && allowed(kind_bit(*value)))
    return std::string(trimmed);
  std::string out = "\"";
  append_json_chars(text, out);
  return out + '"';
}

bool begins_json(std::string_view text) {
  json::parse_options options;
  options.max_depth = 64;
  json::stream_parser parser({}, options);
  json::error_code error;
  const size_t read = parser.write_some(text.data(), text.size(), error);
  return !error && read == text.size();
}

}  // namespace lantern
