// Which API an answer is given in. For this room's sources only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/openai_stream.h"
#include "server/whole_answer.h"

namespace lantern {

struct AnswerShape {
  enum class Api : uint8_t { kOpenAi, kMessages, kResponses };

  Api api = Api::kOpenAi;  // messages and responses have one prompt and one choice
  std::string id;          // without prefix
  int64_t created = 0;     // in seconds since 1970
  std::string model;
  std::string reasoning_field;  // OpenAI's: what a message's thinking is called
  int32_t stream_interval = 1;  // OpenAI's streams: tokens of a choice in one event, but for the first and the last
  std::string repeated = {};    // of a response: ChatOfResponse::repeated
};

// The tokenizer outlives what they give.
std::unique_ptr<AnswerStream> make_answer_stream(const OpenAiRequest& request, const Tokenizer& tokenizer,
                                                 const AnswerShape& shape);
std::unique_ptr<WholeAnswer> make_whole_answer(const OpenAiRequest& request, const Tokenizer& tokenizer,
                                               const AnswerShape& shape);

}  // namespace lantern
