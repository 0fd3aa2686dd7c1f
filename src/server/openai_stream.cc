#include "server/openai_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "server/openai_logprobs.h"
#include "server/openai_parts.h"

namespace lantern {

namespace json = boost::json;

std::string sse_event(std::string_view text) {
  std::string event = "data: ";
  event += text;
  event += "\n\n";
  return event;
}

namespace {

// The first piece of a call has its id and name.
json::array calls_json(const std::vector<ToolCallDelta>& calls) {
  json::array all;
  for (const ToolCallDelta& call : calls) {
    json::object function;
    if (!call.name.empty()) function["name"] = call.name;
    function["arguments"] = call.arguments;
    json::object one{{"index", call.index}};
    if (!call.id.empty()) {
      one["id"] = call.id;
      one["type"] = "function";
    }
    one["function"] = std::move(function);
    all.emplace_back(std::move(one));
  }
  return all;
}

}  // namespace

struct OpenAiStreamer::Choice {
  int32_t index = 0;
  AnswerReader reader;
  ToldSelections selections;
  std::unique_ptr<CompletionLogprobs> lists = nullptr;  // of a completion with log-probabilities
  Output waiting = {};                                  // what no event has told
  OutputDelta delta = {};                               // of it
  bool began = false;
};

struct OpenAiStreamer::Prompt {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  std::string echo;
  std::vector<int32_t> tokens;  // where they are told
  Logprobs logprobs;
  std::vector<Choice> choices;
};

OpenAiStreamer::OpenAiStreamer(const OpenAiRequest& request, const Tokenizer& tokenizer, OpenAiStreamSettings settings)
    : endpoint_(request.endpoint),
      tokenizer_(tokenizer),
      settings_(std::move(settings)),
      stop_token_ids_(request.stop_token_ids),
      include_usage_(request.include_usage),
      continuous_usage_(request.continuous_usage),
      include_reasoning_(request.include_reasoning),
      return_token_ids_(request.return_token_ids),
      return_drafted_(request.return_drafted),
      return_selections_(request.return_selections),
      tokens_as_ids_(request.tokens_as_ids),
      echoes_(request.echoes),
      hides_output_(request.hides_output),
      logprobs_(request.logprobs) {
  const bool chat = endpoint_ == OpenAiEndpoint::kChatCompletions;
  settings_.interval = std::max({settings_.interval, request.stream_interval, 1});
  head_ = fmt::format(R"(data: {{"id":"{}{}","object":"{}","created":{},"model":{},"choices":[)",
                      chat ? "chatcmpl-" : "cmpl-", settings_.id, chat ? "chat.completion.chunk" : "text_completion",
                      settings_.created, json::serialize(std::string_view(settings_.model)));
  int32_t index = 0;
  for (size_t p = 0; p < request.prompts.size(); ++p) {
    const EngineRequest& of = request.prompts[p];
    Prompt& prompt = prompts_.emplace_back();
    prompt.prompt_tokens = static_cast<int64_t>(of.request.prompt.size());
    prompt.echo = request.echo[p];
    if (return_token_ids_ || (echoes_ && logprobs_ >= 0)) prompt.tokens = of.request.prompt;
    prompt.logprobs.width = std::max(of.request.prompt_logprobs, 0);
    for (int32_t i = 0; i < of.request.n; ++i) {
      Choice& choice = prompt.choices.emplace_back(
          Choice{.index = index++, .reader = {request, tokenizer}, .selections = ToldSelections(request)});
      if (!chat && logprobs_ >= 0)
        choice.lists = std::make_unique<CompletionLogprobs>(tokenizer, of.skip_special_tokens, tokens_as_ids_);
    }
    open_ += of.request.n;
  }
}

OpenAiStreamer::~OpenAiStreamer() = default;

OpenAiUsage OpenAiStreamer::usage() const { return usage_of(prompts_, hides_output_); }

void OpenAiStreamer::add(size_t prompt_index, Output&& output, std::vector<std::string>& events) {
  if (complete_) return;
  Prompt& prompt = prompts_[prompt_index];
  if (!output.prompt_logprobs.empty()) {
    prompt.logprobs.append(output.prompt_logprobs.rows(0, output.prompt_logprobs.size()));
    if (output.tokens.empty() && !output.ended()) return;
  }
  Choice& choice = prompt.choices[static_cast<size_t>(output.choice)];
  if (output.ended()) {
    if (const std::optional<OpenAiError> error = error_of(output.end_reason, output.error))
      return add_error(*error, events);
    --open_;
    if (output.choice == 0) prompt.cached_tokens = output.cached_tokens;
    if (output.end_reason == EndReason::kLength) outcome_ = "length";
  }
  OutputDelta delta = choice.reader.push(output);
  if (!include_reasoning_) delta.reasoning.clear();
  choice.delta.add(std::move(delta));
  Output& waiting = choice.waiting;
  if (!hides_output_) choice.selections.add(output.selections);
  if (waiting.tokens.empty()) {
    waiting = std::move(output);
  } else {
    waiting.add_tokens(output.tokens, output.drafted);
    if (!output.logprobs.empty()) waiting.logprobs.append(output.logprobs.rows(0, output.logprobs.size()));
    waiting.end_reason = output.end_reason;
    waiting.stop_string = std::move(output.stop_string);
    waiting.stop_token = output.stop_token;
  }

  const bool enough = static_cast<int32_t>(waiting.tokens.size()) >= settings_.interval;
  if (!choice.began || waiting.ended() || enough) add_chunks(prompt, choice, events);
  if (open_ == 0) end(events);
}

// The members behind `choices`.
std::string OpenAiStreamer::tail(bool with_choices) const {
  if (continuous_usage_ || !with_choices)
    return fmt::format("],\"usage\":{}}}\n\n", json::serialize(usage_json(usage())));
  return include_usage_ ? "],\"usage\":null}\n\n" : "]}\n\n";
}

std::string OpenAiStreamer::logprobs_of(const Prompt& prompt, Choice& choice) const {
  if (logprobs_ < 0) return "null";
  const Output& waiting = choice.waiting;
  if (choice.lists == nullptr) {
    return json_text(chat_logprobs(tokenizer_, waiting.tokens, waiting.logprobs, logprobs_, tokens_as_ids_));
  }
  if (!choice.began && echoes_) choice.lists->add_prompt(prompt.tokens, prompt.logprobs, logprobs_);
  if (!hides_output_) choice.lists->add_output(waiting.tokens, waiting.logprobs, logprobs_);
  return json_text(choice.lists->take_piece());
}

// `body` is a member: "delta":{...} or "text":"...". `last`: how the choice ended.
std::string OpenAiStreamer::chunk(Choice& choice, std::string_view body, std::string_view logprobs,
                                  std::string_view finish, const Output* last) const {
  // Every token comes here: no format is read for it.
  std::string text;
  text.reserve(head_.size() + body.size() + logprobs.size() + 128);
  text += head_;
  text += "{\"index\":";
  text += std::to_string(choice.index);
  text += ',';
  text += body;
  text += ",\"logprobs\":";
  text += logprobs;
  text += ",\"finish_reason\":";
  text += finish;
  if (last != nullptr) {
    text += ",\"stop_reason\":";
    text += json::serialize(stop_reason(last->stop_string, last->stop_token, stop_token_ids_));
  }
  // With a chat's last, empty delta there are none.
  const bool empty = last != nullptr && endpoint_ == OpenAiEndpoint::kChatCompletions;
  const auto add_list = [&](std::string_view name, const std::vector<int32_t>& list) {
    fmt::format_to(std::back_inserter(text), ",\"{}\":{}", name,
                   empty ? "[]" : json::serialize(json::value_from(list)));
  };
  if (return_token_ids_) add_list("token_ids", choice.waiting.tokens);
  if (return_drafted_) add_list("drafted", choice.waiting.drafted);
  if (return_selections_)
    fmt::format_to(std::back_inserter(text), ",\"selections\":{}",
                   json::serialize(selections_json(choice.selections.take())));
  text += '}';
  text += tail(true);
  return text;
}

void OpenAiStreamer::add_chunks(Prompt& prompt, Choice& choice, std::vector<std::string>& events) {
  const Output& waiting = choice.waiting;
  const Output* last = waiting.ended() ? &waiting : nullptr;
  std::string finish = "null";
  if (last != nullptr) finish = fmt::format("\"{}\"", finish_reason(waiting.end_reason, choice.reader.has_calls()));
  const bool says_something = !choice.delta.empty() || logprobs_ >= 0 || return_token_ids_ || return_drafted_ ||
                              return_selections_ || continuous_usage_;
  if (endpoint_ == OpenAiEndpoint::kChatCompletions) {
    const bool has_tokens = !waiting.tokens.empty() || !choice.delta.empty();
    if (!choice.began || (says_something && has_tokens)) {
      std::string delta = "\"delta\":{";
      if (!choice.began) delta += R"("role":"assistant",)";
      const auto add_member = [&](std::string_view name, std::string_view value) {
        delta += '"';
        delta += name;
        delta += "\":";
        delta += value;
        delta += ',';
      };
      if (!choice.delta.reasoning.empty())
        add_member(settings_.reasoning_field, json::serialize(std::string_view(choice.delta.reasoning)));
      const bool first_and_empty = !choice.began && choice.delta.reasoning.empty() && choice.delta.tool_calls.empty();
      if (!choice.delta.content.empty() || first_and_empty)
        add_member("content", json::serialize(std::string_view(choice.delta.content)));
      if (!choice.delta.tool_calls.empty())
        add_member("tool_calls", json::serialize(calls_json(choice.delta.tool_calls)));
      if (delta.back() == ',') delta.pop_back();
      delta += '}';
      events.push_back(chunk(choice, delta, logprobs_of(prompt, choice), "null", nullptr));
    }
    if (last != nullptr) events.push_back(chunk(choice, "\"delta\":{}", "null", finish, last));
  } else if (!choice.began || says_something || last != nullptr) {
    std::string text = choice.began ? std::string() : prompt.echo;
    if (!hides_output_) text += choice.delta.content;
    events.push_back(chunk(choice, "\"text\":" + json::serialize(std::string_view(text)), logprobs_of(prompt, choice),
                           finish, last));
  }
  choice.began = true;
  choice.waiting = {};
  choice.delta = {};
}

void OpenAiStreamer::end(std::vector<std::string>& events) {
  complete_ = true;
  if (include_usage_) events.push_back(head_ + tail(false));
  events.emplace_back(kSseDone);
}

void OpenAiStreamer::add_error(const OpenAiError& error, std::vector<std::string>& events) {
  if (complete_) return;
  complete_ = true;
  outcome_ = "error";
  events.push_back(sse_event(openai_error_body(error)));
  events.emplace_back(kSseDone);
}

}  // namespace lantern
