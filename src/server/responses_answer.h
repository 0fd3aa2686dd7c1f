// Answers of OpenAI's Responses API: a list of items, each a thought, a message or a call of a function.
#pragma once

#include <memory>

#include "server/answer_shape.h"

namespace lantern {

// A stream ends with response.completed, response.incomplete or response.failed.
std::unique_ptr<AnswerStream> make_response_stream(const OpenAiRequest& request, const Tokenizer& tokenizer,
                                                   const AnswerShape& shape);
std::unique_ptr<WholeAnswer> make_whole_response(const OpenAiRequest& request, const Tokenizer& tokenizer,
                                                 const AnswerShape& shape);

}  // namespace lantern
