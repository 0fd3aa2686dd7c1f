#include "server/openai_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "server/openai_logprobs.h"
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
  if (!output.logprobs.empty()) {
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    logprobs.width = output.logprobs.width;
    logprobs.append(output.logprobs.rows(0, output.logprobs.size()));
  }
  if (!output.ended()) return;
  end_reason = output.end_reason;
  stop_string = output.stop_string;
  stop_token = output.stop_token;
  error = output.error;
}

OpenAiCollector::OpenAiCollector(const OpenAiRequest& request, const Tokenizer& tokenizer)
    : endpoint_(request.endpoint),
      tokenizer_(tokenizer),
      starts_thinking_(request.starts_thinking),
      hides_output_(request.hides_output),
      logprobs_(request.logprobs),
      prompt_logprobs_(request.prompt_logprobs),
      echoes_(request.echoes),
      stop_token_ids_(request.stop_token_ids) {
  for (size_t p = 0; p < request.prompts.size(); ++p) {
    const Request& of = request.prompts[p].request;
    prompts_.push_back({.prompt_tokens = static_cast<int32_t>(of.prompt.size()),
                        .cached_tokens = 0,
                        .echo = request.echo[p],
                        .skip_special_tokens = request.prompts[p].skip_special_tokens,
                        .tokens = of.prompt_logprobs >= 0 ? of.prompt : std::vector<int32_t>(),
                        .logprobs = {.width = std::max(of.prompt_logprobs, 0)},
                        .choices = std::vector<OpenAiChoice>(static_cast<size_t>(of.n))});
    open_ += of.n;
  }
}

void OpenAiCollector::add(size_t prompt, const Output& output) {
  Prompt& to = prompts_[prompt];
  to.logprobs.append(output.prompt_logprobs.rows(0, output.prompt_logprobs.size()));
  to.choices[static_cast<size_t>(output.choice)].add(output);
  if (!output.ended()) return;
  --open_;
  if (output.choice == 0) to.cached_tokens = output.cached_tokens;
}

int64_t OpenAiCollector::completion_tokens() const {
  int64_t sum = 0;
  for (const Prompt& prompt : prompts_) {
    for (const OpenAiChoice& choice : prompt.choices) sum += hides_output_ ? 0 : choice.completion_tokens;
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
        made["text"] = hides_output_ ? prompt.echo : prompt.echo + choice.text;
      }
      if (logprobs_ < 0) {
        made["logprobs"] = nullptr;
      } else if (chat) {
        made["logprobs"] = chat_logprobs(tokenizer_, choice.tokens, choice.logprobs, logprobs_);
      } else {
        CompletionLogprobs lists(tokenizer_, prompt.skip_special_tokens);
        if (echoes_) lists.add_prompt(prompt.tokens, prompt.logprobs, logprobs_);
        if (!hides_output_) lists.add_output(choice.tokens, choice.logprobs, logprobs_);
        made["logprobs"] = lists.take(made["text"].get_string());
      }
      if (prompt_logprobs_ >= 0 && !chat)
        made["prompt_logprobs"] = prompt_logprobs(tokenizer_, prompt.tokens, prompt.logprobs, prompt_logprobs_);
      made["finish_reason"] = choice.end_reason == EndReason::kStop ? "stop" : "length";
      made["stop_reason"] = stop_reason(choice, stop_token_ids_);
      choices.push_back(std::move(made));
    }
  }
  json::object body{{"id", (chat ? "chatcmpl-" : "cmpl-") + id},
                    {"object", chat ? "chat.completion" : "text_completion"},
                    {"created", created},
                    {"model", model},
                    {"choices", std::move(choices)},
                    {"usage", usage(prompt_tokens, completion_tokens(), cached_tokens)}};
  if (prompt_logprobs_ >= 0 && chat) {
    const Prompt& prompt = prompts_.front();  // a chat has one
    body["prompt_logprobs"] = prompt_logprobs(tokenizer_, prompt.tokens, prompt.logprobs, prompt_logprobs_);
  }
  return json::serialize(body);
}

std::string openai_error_body(const OpenAiError& error) {
  return json::serialize(json::object{{"error", json::object{{"message", error.message},
                                                             {"type", error.type},
                                                             {"param", text_or_null(error.param)},
                                                             {"code", text_or_null(error.code)}}}});
}

}  // namespace lantern
