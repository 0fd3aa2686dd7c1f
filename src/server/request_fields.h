// What is done with the fields of requests, as data: docs/server.md lists them, and a test holds it to this. Fields
// that are not here are ignored, since clients add such freely. For this room's sources only.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "server/openai_request.h"

namespace lantern {

enum RequestApi : uint8_t { kOfCompletions = 1, kOfChats = 2, kOfResponses = 4, kOfMessages = 8 };

enum class FieldUse : uint8_t {
  kRead,
  kPassed,   // read; responses and messages, which are chats in other words, pass it on as it is
  kIgnored,  // it asks for nothing that would change an answer
  kRefused,  // it asks for what Lantern cannot do
};

struct RequestField {
  std::string_view name;
  FieldUse use;
  uint8_t apis;  // of RequestApi
  // Of a refused field: why, or what to do instead; of an ignored one why that is harmless.
  std::string_view why = {};
  // Of a refused field: the values that ask for nothing, as a JSON list. Empty: false, 0, "" and []. Null always does.
  std::string_view nothing = {};
};

std::span<const RequestField> request_fields();

// What a client is told of the first field of `body` that asks for what cannot be done.
std::optional<OpenAiError> refused_field(const boost::json::object& body, RequestApi api);
// The fields of `body` that its chat has as well.
boost::json::object passed_fields(const boost::json::object& body, RequestApi api);
// The error by the name that the field has in the request that the chat was made from: pairs of the chat's and that.
OpenAiError with_param_renamed(OpenAiError error, std::span<const std::pair<std::string_view, std::string_view>> names);

}  // namespace lantern
