// What whole answers and streams of the OpenAI API have in common. For this room's sources only.
#pragma once

#include <boost/json.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/openai_request.h"
#include "server/openai_response.h"

namespace lantern {

// Of an answer of one choice.
inline OpenAiUsage usage_of(const AnswerReader& reader, int64_t prompt_tokens, int64_t cached_tokens) {
  return {.prompt_tokens = prompt_tokens,
          .completion_tokens = reader.tokens(),
          .cached_tokens = cached_tokens,
          .reasoning_tokens = reader.reasoning_tokens(),
          .longest_choice = reader.tokens()};
}
// Of prompts with prompt_tokens, cached_tokens and choices with a `reader` each.
template <class Prompt>
OpenAiUsage usage_of(const std::vector<Prompt>& prompts, bool hides_output) {
  OpenAiUsage sum;
  for (const Prompt& prompt : prompts) {
    sum.prompt_tokens += prompt.prompt_tokens;
    sum.cached_tokens += prompt.cached_tokens;
    if (hides_output) continue;
    for (const auto& choice : prompt.choices) {
      sum.completion_tokens += choice.reader.tokens();
      sum.reasoning_tokens += choice.reader.reasoning_tokens();
      sum.longest_choice = std::max(sum.longest_choice, choice.reader.tokens());
    }
  }
  return sum;
}
// {"prompt_tokens": ..., "prompt_tokens_details": {"cached_tokens": ...}, ...}
boost::json::object usage_json(const OpenAiUsage& usage);
// "stop", "length"; "tool_calls" where the answer has such and ended by itself.
std::string_view finish_reason(EndReason reason, bool has_calls);
// What ended the text: the string, a token that the client named, or null for the model's own end.
boost::json::value stop_reason(const std::string& stop_string, int32_t stop_token, const std::vector<int32_t>& named);
// A list for each token: how many tokens of the context are passed over, how many were read, and so on in turn from the
// context's beginning; null where there is none to tell of.
boost::json::array selections_json(const SelectionTrace& trace);
// What a client is told of a choice that did not end by itself; nothing where it did.
std::optional<OpenAiError> error_of(EndReason reason, const std::string& why);
boost::json::object error_json(const OpenAiError& error);

}  // namespace lantern
