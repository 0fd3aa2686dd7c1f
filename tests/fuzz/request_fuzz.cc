// Bodies of requests, of OpenAI's endpoints and of Anthropic's. What is accepted is within the model's limits; what is
// not has an error that can be told (CVE-2025-62164, CVE-2026-21869, and what else comes in a body).
#include <cmath>

#include "base/check.h"
#include "fuzz_input.h"
#include "server/anthropic.h"
#include "server/openai_request.h"
#include "server/openai_response.h"

using namespace lantern;

namespace {

struct Served {
  Tokenizer tokenizer = Tokenizer::load(LANTERN_SOURCE_DIR "/models/tiny").value();
  ChatEncoder chat = ChatEncoder::create(ChatFormat::kDeepSeekV32, tokenizer).value();
  OpenAiModel model = {};
  Served() {
    model.names = {"tiny"};
    model.tokenizer = &tokenizer;
    model.chat = &chat;
    model.max_model_len = 2048;
    model.vocab_size = 2048;
    model.max_logprobs = 20;
    model.streams = true;
  }
};

void check_error(const OpenAiError& error) {
  CHECK(error.status == 400 || error.status == 404 || error.status == 501, "{}: {}", error.status, error.message);
  CHECK(!error.message.empty() && !error.type.empty(), "a refusal says nothing");
  CHECK(openai_error_body(error).starts_with("{\"error\":"), "no error");
  CHECK(anthropic_error_body(error).starts_with("{\"type\":"), "no error");
}

void check_request(const OpenAiRequest& request, const OpenAiModel& model) {
  CHECK(!request.prompts.empty() && request.echo.size() == request.prompts.size(), "no prompt");
  for (const EngineRequest& prompt : request.prompts) {
    const Request& of = prompt.request;
    CHECK(of.n >= 1 && of.n <= 128, "{} choices", of.n);
    CHECK(!of.prompt.empty() && of.max_tokens >= 1, "nothing to do");
    CHECK(std::ssize(of.prompt) + of.max_tokens <= model.max_model_len, "longer than the context");
    for (const int32_t id : of.prompt) CHECK(id >= 0 && id < model.vocab_size, "id {}", id);
    for (const int32_t id : of.stop_token_ids) CHECK(id >= 0 && id < model.vocab_size, "id {}", id);
    for (const LogitBias& bias : of.logit_bias)
      CHECK(bias.token >= 0 && bias.token < model.vocab_size, "id {}", bias.token);
    CHECK(of.logprobs <= model.max_logprobs && of.prompt_logprobs <= model.max_logprobs, "log-probabilities");
    const SamplingSettings& s = of.sampling;
    for (const float value :
         {s.temperature, s.top_p, s.min_p, s.presence_penalty, s.frequency_penalty, s.repetition_penalty}) {
      CHECK(std::isfinite(value), "a setting of sampling is no number");
    }
    CHECK(s.temperature >= 0 && s.top_p > 0 && s.repetition_penalty > 0, "a setting of sampling is out of its range");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Served served;
  test::FuzzInput input(data, size);
  const size_t kind = input.below(3);
  std::string body(input.rest());
  if (kind == 2) {
    std::variant<std::string, OpenAiError> chat = chat_of_messages(body);
    if (const OpenAiError* error = std::get_if<OpenAiError>(&chat)) {
      check_error(*error);
      return 0;
    }
    body = std::get<std::string>(std::move(chat));
  }
  const auto endpoint = kind == 0 ? OpenAiEndpoint::kCompletions : OpenAiEndpoint::kChatCompletions;
  const std::variant<OpenAiRequest, OpenAiError> read = read_openai_request(endpoint, body, served.model, 1);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&read)) {
    check_error(*error);
  } else {
    check_request(std::get<OpenAiRequest>(read), served.model);
  }
  return 0;
}
