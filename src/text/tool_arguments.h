// Types of tools' parameters, for formats whose calls do not say them, and values as JSON. For this room's sources
// only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lantern {

// A set of JSON types.
enum JsonTypes : uint8_t {
  kUnknownTypes = 0,
  kJsonNull = 1,
  kJsonBool = 2,
  kJsonNumber = 4,
  kJsonString = 8,
  kJsonArray = 16,
  kJsonObject = 32,
};

class ToolTypes {
 public:
  // `tools` as in ChatOptions. What is no tool is left out: the chat encoder has refused it.
  explicit ToolTypes(const std::vector<std::string>& tools);

  // What a tool's schema allows for a parameter by "type", "enum", "const", "anyOf" or "oneOf"; kUnknownTypes where the
  // schema does not say, or the tool or the parameter is not known. References are not followed.
  uint8_t of(std::string_view tool, std::string_view parameter) const;

 private:
  std::map<std::string, std::map<std::string, uint8_t, std::less<>>, std::less<>> types_;
};

// The text of a value as JSON: itself where it is JSON of one of the types (any, where they are unknown), the JSON
// constant where it is Python's True, False or None, and a string else.
std::string value_as_json(std::string_view text, uint8_t types);

// Whether `text` is the beginning of a JSON value.
bool begins_json(std::string_view text);

}  // namespace lantern
