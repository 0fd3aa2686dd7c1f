// Checked access to the members of a JSON object that a client sent. The first error is kept; after it everything reads
// as absent. For this room's sources only.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/openai_request.h"

namespace lantern {

class JsonFields {
 public:
  explicit JsonFields(const boost::json::object& object) : object_(object) {}

  // Null counts as absent.
  const boost::json::value* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  // Absent members leave `into` as it is. Limits are inclusive.
  void boolean(std::string_view name, bool& into);
  void integer(std::string_view name, int32_t& into, int64_t lowest, int64_t highest);
  void integer64(std::string_view name, int64_t& into, int64_t lowest, int64_t highest);
  void real(std::string_view name, float& into, double lowest, double highest);
  // Above 0.
  void positive(std::string_view name, float& into, double highest);
  void text(std::string_view name, std::string& into);
  // A list of whole numbers from 0 to `highest`.
  void ids(std::string_view name, std::vector<int32_t>& into, int64_t highest);
  // A string or a list of strings, none of them empty.
  void texts(std::string_view name, std::vector<std::string>& into, size_t most);

  void fail(std::string_view name, std::string message, std::string code = "invalid_value");
  void fail(OpenAiError error);
  bool ok() const { return !error_; }
  const OpenAiError& error() const { return *error_; }

 private:
  const boost::json::object& object_;
  std::optional<OpenAiError> error_;
};

// A request's body, which must be one JSON object, or what is wrong with it.
std::variant<boost::json::object, OpenAiError> parse_body(std::string_view body);
// The member of a value that is an object and has it; else null. Null has no members.
const boost::json::value* member_of(const boost::json::value* value, std::string_view name);
// "a number", "an object", ...
std::string_view kind_of(const boost::json::value& value);
// What a client is told of a value: numbers as people write them (1.5, not JSON's 1.5E0), of others their kind.
std::string shown_to_client(const boost::json::value& value);

}  // namespace lantern
