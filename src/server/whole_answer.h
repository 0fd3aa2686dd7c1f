// Answers that are given whole, in whatever API they were asked for.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "server/openai_response.h"

namespace lantern {

// A request's choices, as outputs come, and the body that is made of them.
class WholeAnswer {
 public:
  virtual ~WholeAnswer() = default;
  // `prompt` is an index into OpenAiRequest::prompts.
  virtual void add(size_t prompt, const Output& output) = 0;
  // All was said.
  virtual bool complete() const = 0;
  virtual OpenAiUsage usage() const = 0;
  virtual std::string_view outcome() const = 0;  // "stop", "length" or "error", for logs
  // Once it is complete: the body, or what went wrong with one of the choices.
  virtual std::variant<std::string, OpenAiError> body() const = 0;
};

}  // namespace lantern
