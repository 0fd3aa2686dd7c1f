// Requests of OpenAI's Responses API, as chats: https://platform.openai.com/docs/api-reference/responses
// Nothing is stored: a conversation is what its request says.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "server/openai_request.h"

namespace lantern {

struct ChatOfResponse {
  std::string body;      // of POST /v1/chat/completions
  std::string repeated;  // a JSON object: what the answer says again of its request, but for what is long
};

// From the body of POST /v1/responses, or what is wrong with it.
std::variant<ChatOfResponse, OpenAiError> chat_of_response(std::string_view body, const OpenAiModel& model);
// What is wrong with the chat, by the name of the response's field that it came from.
OpenAiError response_error_of(OpenAiError error);

}  // namespace lantern
