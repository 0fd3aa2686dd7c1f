#include "server/openai_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "text/reasoning_splitter.h"

namespace lantern {
namespace {

namespace json = boost::json;

json::value text_or_null(const std::string& text) { return text.empty() ? json::value() : json::value(text); }

json::object usage(int64_t prompt_tokens, int64_t completion_tokens, int64_t cached_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens},
          {"prompt_tokens_details", json::object{{"cached_tokens", cached_tokens}}}};
}

// What ended the text: the string, a token that the client named, or null for the model's own end.
json::value stop_reason(const OpenAiChoice& choice, const std::vector<int32_t>& named) {
  if (!choice.stop_string.empty()) return json::value(choice.stop_string);
  const bool is_named = std::ranges::find(named, choice.stop_token) != named.end();
  return is_named ? json::value(choice.stop_token) : json::value();
}

json::object chat_message(const OpenAiChoice& choice, bool starts_thinking) {
  ReasoningSplitter splitter(starts_thinking);
  ReasoningSplitter::Delta all = splitter.add(choice.text);
  const ReasoningSplitter::Delta rest = splitter.flush();
  all.reasoning += rest.reasoning;
  all.content += rest.content;
  json::object message{{"role", "assistant"}, {"content", all.content}};
  if (!all.reasoning.empty()) message["reasoning_content"] = all.reasoning;
  return message;
}

std::optional<OpenAiError> error_of(const OpenAiChoice& choice) {
  switch (choice.end_reason) {
    case EndReason::kStop:
    case EndReason::kLength: return std::nullopt;
    case EndReason::kDeadline:
      return OpenAiError{
          .status = 504, .message = "the request's time is over", .type = "timeout_error", .code = "timeout"};
    case EndReason::kCancelled:
      return OpenAiError{
          .status = 503, .message = "the request was cancelled", .type = "unavailable_error", .code = "cancelled"};
    default: return OpenAiError{.status = 500, .message = choice.error, .type = "server_error", .code = "failed"};
  }
}

}  // namespace

void OpenAiChoice::add(const Output& output) {
  text += output.text;
  completion_tokens += static_cast<int32_t>(output.tokens.size());
  if (!output.ended()) return;
  end_reason = output.end_reason;
  stop_string = output.stop_string;
  stop_token = output.stop_token;
  error = output.error;
}

OpenAiCollector::OpenAiCollector(const OpenAiRequest& request)
    : endpoint_(request.endpoint), starts_thinking_(request.starts_thinking), stop_token_ids_(request.stop_token_ids) {
  for (size_t p = 0; p < request.prompts.size(); ++p) {
    const Request& of = request.prompts[p].request;
    prompts_.push_back({.prompt_tokens = static_cast<int32_t>(of.prompt.size()),
                        .cached_tokens = 0,
                        .echo = request.echo[p],
                        .choices = std::vector<OpenAiChoice>(static_cast<size_t>(of.n))});
    open_ += of.n;
  }
}

void OpenAiCollector::add(size_t prompt, const Output& output) {
  Prompt& to = prompts_[prompt];
  to.choices[static_cast<size_t>(output.choice)].add(output);
  if (!output.ended()) return;
  --open_;
  if (output.choice == 0) to.cached_tokens = output.cached_tokens;
}

int64_t OpenAiCollector::completion_tokens() const {
  int64_t sum = 0;
  for (const Prompt& prompt : prompts_) {
    for (const OpenAiChoice& choice : prompt.choices) sum += choice.completion_tokens;
  }
  return sum;
}

std::variant<std::string, OpenAiError> OpenAiCollector::body(const std::string& id, int64_t created,
                                                             const std::string& model) const {
  const bool chat = endpoint_ == OpenAiEndpoint::kChatCompletions;
  json::array choices;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  for (const Prompt& prompt : prompts_) {
    prompt_tokens += prompt.prompt_tokens;
    cached_tokens += prompt.cached_tokens;
    for (const OpenAiChoice& choice : prompt.choices) {
      if (std::optional<OpenAiError> error = error_of(choice)) return *std::move(error);
      json::object made{{"index", choices.size()}};
      if (chat) {
        made["message"] = chat_message(choice, starts_thinking_);
      } else {
        made["text"] = prompt.echo + choice.text;
      }
      made["logprobs"] = nullptr;
      made["finish_reason"] = choice.end_reason == EndReason::kStop ? "stop" : "length";
      made["stop_reason"] = stop_reason(choice, stop_token_ids_);
      choices.push_back(std::move(made));
    }
  }
  return json::serialize(json::object{{"id", (chat ? "chatcmpl-" : "cmpl-") + id},
                                      {"object", chat ? "chat.completion" : "text_completion"},
                                      {"created", created},
                                      {"model", model},
                                      {"choices", std::move(choices)},
                                      {"usage", usage(prompt_tokens, completion_tokens(), cached_tokens)}});
}

std::string openai_error_body(const OpenAiError& error) {
  return json::serialize(json::object{{"error", json::object{{"message", error.message},
                                                             {"type", error.type},
                                                             {"param", text_or_null(error.param)},
                                                             {"code", text_or_null(error.code)}}}});
}

}  // namespace lantern
