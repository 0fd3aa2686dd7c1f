#include "server/answer_shape.h"

#include "server/anthropic.h"
#include "server/responses_answer.h"

namespace lantern {
namespace {

// Of completions and chats; a message is made from a chat.
class OpenAiAnswer final : public WholeAnswer {
 public:
  OpenAiAnswer(const OpenAiRequest& request, const Tokenizer& tokenizer, AnswerShape shape)
      : collector_(request, tokenizer), shape_(std::move(shape)) {}

  void add(size_t prompt, const Output& output) override { collector_.add(prompt, output); }
  bool complete() const override { return collector_.complete(); }
  OpenAiUsage usage() const override { return collector_.usage(); }
  std::string_view outcome() const override { return collector_.outcome(); }
  std::variant<std::string, OpenAiError> body() const override {
    const bool message = shape_.api == AnswerShape::Api::kMessages;
    std::variant<std::string, OpenAiError> body = collector_.body(
        shape_.id, shape_.created, shape_.model, message ? "reasoning_content" : shape_.reasoning_field);
    if (const std::string* text = std::get_if<std::string>(&body); text != nullptr && message)
      return messages_of_chat(*text);
    return body;
  }

 private:
  OpenAiCollector collector_;
  AnswerShape shape_;
};

}  // namespace

std::unique_ptr<AnswerStream> make_answer_stream(const OpenAiRequest& request, const Tokenizer& tokenizer,
                                                 const AnswerShape& shape) {
  switch (shape.api) {
    case AnswerShape::Api::kMessages:
      return std::make_unique<MessagesStreamer>(request, tokenizer, shape.id, shape.model);
    case AnswerShape::Api::kResponses: return make_response_stream(request, tokenizer, shape);
    case AnswerShape::Api::kOpenAi: break;
  }
  return std::make_unique<OpenAiStreamer>(request, tokenizer,
                                          OpenAiStreamSettings{.id = shape.id,
                                                               .created = shape.created,
                                                               .model = shape.model,
                                                               .reasoning_field = shape.reasoning_field,
                                                               .interval = shape.stream_interval});
}

std::unique_ptr<WholeAnswer> make_whole_answer(const OpenAiRequest& request, const Tokenizer& tokenizer,
                                               const AnswerShape& shape) {
  if (shape.api == AnswerShape::Api::kResponses) return make_whole_response(request, tokenizer, shape);
  return std::make_unique<OpenAiAnswer>(request, tokenizer, shape);
}

}  // namespace lantern
