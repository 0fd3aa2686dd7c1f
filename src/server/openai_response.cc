#include "server/openai_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/json_text.h"
#include "server/openai_logprobs.h"
#include "server/openai_parts.h"

namespace lantern {
namespace {

namespace json = boost::json;

json::object chat_message(const ParsedOutput& answer, bool with_reasoning, const std::string& reasoning_field) {
  json::object message{{"role", "assistant"}, {"content", answer.content}};
  if (with_reasoning && !answer.reasoning.empty()) message[reasoning_field] = answer.reasoning;
  if (answer.tool_calls.empty()) return message;
  if (answer.content.empty()) message["content"] = nullptr;
  json::array calls;
  for (const ChatToolCall& call : answer.tool_calls) {
    calls.emplace_back(json::object{{"id", call.id},
                                    {"type", "function"},
                                    {"function", json::object{{"name", call.name}, {"arguments", call.arguments}}}});
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

}  // namespace

void OpenAiChoice::add(const Output& output, bool keep_tokens) {
  const auto before = static_cast<int32_t>(reader.tokens());
  for (const int32_t place : output.drafted) drafted.push_back(before + place);
  answer.add(reader.push(output));
  if (keep_tokens) tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
  if (!output.logprobs.empty()) {
    logprobs.width = output.logprobs.width;
    logprobs.append(output.logprobs.rows(0, output.logprobs.size()));
  }
  selections.add(output.selections);
  if (!output.ended()) return;
  end_reason = output.end_reason;
  stop_string = output.stop_string;
  stop_token = output.stop_token;
  error = output.error;
}

OpenAiCollector::OpenAiCollector(const OpenAiRequest& request, const Tokenizer& tokenizer)
    : endpoint_(request.endpoint),
      tokenizer_(tokenizer),
      include_reasoning_(request.include_reasoning),
      return_token_ids_(request.return_token_ids),
      return_drafted_(request.return_drafted),
      return_selections_(request.return_selections),
      tokens_as_ids_(request.tokens_as_ids),
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
                        .tokens = of.prompt_logprobs >= 0 || return_token_ids_ ? of.prompt : std::vector<int32_t>(),
                        .logprobs = {.width = std::max(of.prompt_logprobs, 0)},
                        .choices = std::vector<OpenAiChoice>(
                            static_cast<size_t>(of.n),
                            OpenAiChoice{.reader = {request, tokenizer}, .selections = ToldSelections(request)})});
    open_ += of.n;
  }
}

void OpenAiCollector::add(size_t prompt, const Output& output) {
  Prompt& to = prompts_[prompt];
  to.logprobs.append(output.prompt_logprobs.rows(0, output.prompt_logprobs.size()));
  to.choices[static_cast<size_t>(output.choice)].add(output, logprobs_ >= 0 || return_token_ids_);
  if (!output.ended()) return;
  --open_;
  if (output.choice == 0) to.cached_tokens = output.cached_tokens;
}

OpenAiUsage OpenAiCollector::usage() const { return usage_of(prompts_, hides_output_); }

std::string_view OpenAiCollector::outcome() const {
  std::string_view worst = "stop";
  for (const Prompt& prompt : prompts_) {
    for (const OpenAiChoice& choice : prompt.choices) {
      if (error_of(choice.end_reason, choice.error)) return "error";
      if (choice.end_reason == EndReason::kLength) worst = "length";
    }
  }
  return worst;
}

std::variant<std::string, OpenAiError> OpenAiCollector::body(const std::string& id, int64_t created,
                                                             const std::string& model,
                                                             const std::string& reasoning_field) const {
  const bool chat = endpoint_ == OpenAiEndpoint::kChatCompletions;
  json::array choices;
  for (const Prompt& prompt : prompts_) {
    for (const OpenAiChoice& choice : prompt.choices) {
      if (std::optional<OpenAiError> error = error_of(choice.end_reason, choice.error)) return *std::move(error);
      json::object made{{"index", choices.size()}};
      if (chat) {
        made["message"] = chat_message(choice.answer, include_reasoning_, reasoning_field);
      } else {
        made["text"] = hides_output_ ? prompt.echo : prompt.echo + choice.answer.content;
      }
      if (logprobs_ < 0) {
        made["logprobs"] = nullptr;
      } else if (chat) {
        made["logprobs"] = chat_logprobs(tokenizer_, choice.tokens, choice.logprobs, logprobs_, tokens_as_ids_);
      } else {
        CompletionLogprobs lists(tokenizer_, prompt.skip_special_tokens, tokens_as_ids_);
        if (echoes_) lists.add_prompt(prompt.tokens, prompt.logprobs, logprobs_);
        if (!hides_output_) lists.add_output(choice.tokens, choice.logprobs, logprobs_);
        made["logprobs"] = lists.take(made["text"].get_string());
      }
      if (prompt_logprobs_ >= 0 && !chat)
        made["prompt_logprobs"] = prompt_logprobs(tokenizer_, prompt.tokens, prompt.logprobs, prompt_logprobs_);
      if (return_token_ids_) {
        made["token_ids"] = json::value_from(choice.tokens);
        if (!chat) made["prompt_token_ids"] = json::value_from(prompt.tokens);
      }
      if (return_drafted_) made["drafted"] = json::value_from(choice.drafted);
      if (return_selections_)
        made["selections"] = selections_json(hides_output_ ? SelectionTrace() : choice.selections.all());
      made["finish_reason"] = finish_reason(choice.end_reason, !choice.answer.tool_calls.empty());
      made["stop_reason"] = stop_reason(choice.stop_string, choice.stop_token, stop_token_ids_);
      choices.push_back(std::move(made));
    }
  }
  json::object body{{"id", (chat ? "chatcmpl-" : "cmpl-") + id},
                    {"object", chat ? "chat.completion" : "text_completion"},
                    {"created", created},
                    {"model", model},
                    {"choices", std::move(choices)},
                    {"usage", usage_json(usage())}};
  if (return_token_ids_ && chat) body["prompt_token_ids"] = json::value_from(prompts_.front().tokens);
  if (prompt_logprobs_ >= 0 && chat) {
    const Prompt& prompt = prompts_.front();  // a chat has one
    body["prompt_logprobs"] = prompt_logprobs(tokenizer_, prompt.tokens, prompt.logprobs, prompt_logprobs_);
  }
  return json_text(body);
}

std::string openai_error_body(const OpenAiError& error) { return json::serialize(error_json(error)); }

}  // namespace lantern
