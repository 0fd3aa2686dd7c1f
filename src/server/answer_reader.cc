#include "server/answer_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace lantern {

AnswerReader::AnswerReader(const OpenAiRequest& request, const Tokenizer& tokenizer) {
  if (!request.chat_format) return;
  thread_local std::mt19937_64 random{std::random_device{}()};
  parser_.emplace(*request.chat_format, OutputParserOptions{.starts_thinking = request.starts_thinking,
                                                            .tools = request.tools,
                                                            .call_id_prefix = fmt::format("call_{:016x}", random())});
  end_of_thinking_ = tokenizer.added_token_id("</think>");
}

OutputDelta AnswerReader::push(const Output& output) {
  tokens_ += static_cast<int64_t>(output.tokens.size());
  OutputDelta delta;
  if (!parser_) {
    delta.content = output.text;
    return delta;
  }
  const bool was_thinking = parser_->thinking();
  delta = parser_->push(output.text);
  if (was_thinking || parser_->thinking()) {
    // Drafts put several tokens into one output; where thinking ends among them is to be seen by the token alone.
    const auto end = end_of_thinking_ ? std::ranges::find(output.tokens, *end_of_thinking_) : output.tokens.end();
    reasoning_tokens_ += end == output.tokens.end() ? end - output.tokens.begin() : end - output.tokens.begin() + 1;
  }
  if (!output.ended()) return delta;
  const bool cut = output.end_reason == EndReason::kLength || !output.stop_string.empty();
  delta.add(parser_->finish(cut ? OutputEnd::kCut : OutputEnd::kTurn));
  return delta;
}

}  // namespace lantern
