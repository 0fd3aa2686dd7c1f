#include "server/responses_answer.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "base/unix_time.h"
#include "server/openai_logprobs.h"
#include "server/openai_parts.h"

namespace lantern {
namespace {

namespace json = boost::json;

std::string in_quotes(std::string_view text) { return json::serialize(text); }

// One choice's output as items, and the events that tell of them. While an item of text is open, so may be a call: what
// stands between the arguments of a call is text.
class Response {
 public:
  Response(const OpenAiRequest& request, const Tokenizer& tokenizer, AnswerShape shape)
      : shape_(std::move(shape)),
        reader_(request, tokenizer),
        has_logprobs_(request.logprobs >= 0),
        logprobs_(tokenizer, request.logprobs, request.tokens_as_ids),
        prompt_tokens_(static_cast<int64_t>(request.prompts.front().request.prompt.size())) {}

  // `events` is null where nobody follows.
  void add(const Output& output, std::vector<std::string>* events);
  void fail(const OpenAiError& error, std::vector<std::string>* events);

  bool complete() const { return status_ != "in_progress"; }
  OpenAiUsage usage() const { return usage_of(reader_, prompt_tokens_, cached_tokens_); }
  std::string_view outcome() const {
    if (error_) return "error";
    return status_ == "incomplete" ? "length" : "stop";
  }
  const std::optional<OpenAiError>& error() const { return error_; }
  json::object object() const;

 private:
  enum class Kind : uint8_t { kReasoning, kMessage, kCall };
  struct Item {
    Kind kind;
    std::string id;
    std::string text = {};  // or arguments
    json::array logprobs = {};
    std::string call_id = {};
    std::string name = {};
    std::string_view status = "in_progress";
  };
  static constexpr size_t kNone = SIZE_MAX;
  using Events = std::vector<std::string>*;

  static json::object part_of(Kind kind, std::string_view text, const json::array& logprobs = {});
  static json::object object_of(const Item& item);
  void tell(Events events, std::string_view type, json::object members);
  void tell_response(Events events, std::string_view type) { tell(events, type, {{"response", object()}}); }
  void begin(Events events);
  size_t open(Kind kind, const ToolCallDelta* call, Events events);
  void append(size_t index, std::string_view text, json::array logprobs, Events events);
  void add_text(Kind kind, std::string_view text, Events events);
  void close(size_t& index, std::string_view status, Events events);
  void end(std::string_view status, Events events);

  const AnswerShape shape_;
  AnswerReader reader_;
  const bool has_logprobs_;
  TextLogprobs logprobs_;
  const int64_t prompt_tokens_;
  int64_t cached_tokens_ = 0;
  std::vector<Item> items_;
  size_t text_ = kNone;  // the open item of text, and the open call
  size_t call_ = kNone;
  int32_t calls_ = 0;  // that have begun
  int64_t sequence_ = 0;
  bool began_ = false;
  std::string_view status_ = "in_progress";
  std::optional<OpenAiError> error_;
};

json::object Response::part_of(Kind kind, std::string_view text, const json::array& logprobs) {
  if (kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"}, {"text", text}, {"annotations", json::array()}, {"logprobs", logprobs}};
}

// An item that has only begun has no content yet.
json::object Response::object_of(const Item& item) {
  json::object made{{"id", item.id}, {"status", item.status}};
  const auto content = [&] {
    return item.status == "in_progress" ? json::array() : json::array{part_of(item.kind, item.text, item.logprobs)};
  };
  switch (item.kind) {
    case Kind::kReasoning:
      made["type"] = "reasoning";
      made["summary"] = json::array();
      made["content"] = content();
      break;
    case Kind::kMessage:
      made["type"] = "message";
      made["role"] = "assistant";
      made["content"] = content();
      break;
    case Kind::kCall:
      made["type"] = "function_call";
      made["call_id"] = item.call_id;
      made["name"] = item.name;
      made["arguments"] = item.status == "in_progress" ? "" : item.text;
  }
  return made;
}

json::object Response::object() const {
  json::object made = json::parse(shape_.repeated).get_object();
  made["id"] = "resp_" + shape_.id;
  made["object"] = "response";
  made["created_at"] = shape_.created;
  made["completed_at"] = status_ == "completed" ? json::value(unix_seconds()) : json::value();
  made["status"] = status_;
  made["model"] = shape_.model;
  made["error"] = nullptr;
  if (error_) {
    made["error"] =
        json::object{{"code", error_->status >= 500 ? "server_error" : "invalid_prompt"}, {"message", error_->message}};
  }
  made["incomplete_details"] = nullptr;
  if (status_ == "incomplete") made["incomplete_details"] = json::object{{"reason", "max_output_tokens"}};
  json::array output;
  if (complete()) {
    for (const Item& item : items_) output.emplace_back(object_of(item));
  }
  made["output"] = std::move(output);
  made["usage"] = nullptr;
  if (complete()) {
    const OpenAiUsage used = usage();
    made["usage"] = json::object{
        {"input_tokens", used.prompt_tokens},
        {"input_tokens_details", json::object{{"cached_tokens", used.cached_tokens}, {"cache_write_tokens", 0}}},
        {"output_tokens", used.completion_tokens},
        {"output_tokens_details", json::object{{"reasoning_tokens", used.reasoning_tokens}}},
        {"total_tokens", used.prompt_tokens + used.completion_tokens}};
  }
  return made;
}

void Response::tell(Events events, std::string_view type, json::object members) {
  if (events == nullptr) return;
  members["type"] = type;
  members["sequence_number"] = sequence_++;
  events->push_back(fmt::format("event: {}\ndata: {}\n\n", type, json_text(members)));
}

void Response::begin(Events events) {
  if (std::exchange(began_, true) || events == nullptr) return;
  tell_response(events, "response.created");
  tell_response(events, "response.in_progress");
}

size_t Response::open(Kind kind, const ToolCallDelta* call, Events events) {
  close(text_, "completed", events);
  if (kind == Kind::kCall) close(call_, "completed", events);
  const size_t index = items_.size();
  const std::string_view prefix = kind == Kind::kReasoning ? "rs" : kind == Kind::kMessage ? "msg" : "fc";
  Item& item = items_.emplace_back(Item{.kind = kind, .id = fmt::format("{}_{}_{}", prefix, shape_.id, index)});
  if (call != nullptr) {
    item.call_id = call->id;
    item.name = call->name;
  }
  tell(events, "response.output_item.added", {{"output_index", index}, {"item", object_of(item)}});
  if (kind == Kind::kCall) return index;
  tell(events, "response.content_part.added",
       {{"item_id", item.id}, {"output_index", index}, {"content_index", 0}, {"part", part_of(kind, "")}});
  return index;
}

void Response::append(size_t index, std::string_view text, json::array logprobs, Events events) {
  Item& item = items_[index];
  item.text += text;
  const std::string told = logprobs.empty() ? "[]" : json_text(logprobs);
  item.logprobs.insert(item.logprobs.end(), std::make_move_iterator(logprobs.begin()),
                       std::make_move_iterator(logprobs.end()));
  if (events == nullptr || text.empty()) return;
  // As tell() would, without what a token should not cost.
  const std::string_view type = item.kind == Kind::kReasoning ? "response.reasoning_text.delta"
                                : item.kind == Kind::kMessage ? "response.output_text.delta"
                                                              : "response.function_call_arguments.delta";
  const std::string more = item.kind == Kind::kReasoning ? R"("content_index":0,)"
                           : item.kind == Kind::kMessage ? fmt::format(R"("content_index":0,"logprobs":{},)", told)
                                                         : "";
  events->push_back(
      fmt::format("event: {0}\ndata: {{\"type\":\"{0}\",\"item_id\":{1},\"output_index\":{2},{3}\"delta\":{4},"
                  "\"sequence_number\":{5}}}\n\n",
                  type, in_quotes(item.id), index, more, in_quotes(text), sequence_++));
}

void Response::add_text(Kind kind, std::string_view text, Events events) {
  if (text.empty()) return;
  json::array logprobs;
  if (has_logprobs_) logprobs = logprobs_.take(text);
  if (kind == Kind::kReasoning) logprobs.clear();
  if (text_ == kNone || items_[text_].kind != kind) text_ = open(kind, nullptr, events);
  append(text_, text, std::move(logprobs), events);
}

void Response::close(size_t& index, std::string_view status, Events events) {
  const size_t at = std::exchange(index, kNone);
  if (at == kNone) return;
  Item& item = items_[at];
  item.status = status;
  const json::object place{{"item_id", item.id}, {"output_index", at}};
  json::object done = place;
  if (item.kind == Kind::kCall) {
    done["name"] = item.name;
    done["arguments"] = item.text;
    tell(events, "response.function_call_arguments.done", std::move(done));
  } else {
    done["content_index"] = 0;
    json::object part = done;
    done["text"] = item.text;
    if (item.kind == Kind::kMessage) done["logprobs"] = item.logprobs;
    tell(events, item.kind == Kind::kReasoning ? "response.reasoning_text.done" : "response.output_text.done",
         std::move(done));
    part["part"] = part_of(item.kind, item.text, item.logprobs);
    tell(events, "response.content_part.done", std::move(part));
  }
  tell(events, "response.output_item.done", {{"output_index", at}, {"item", object_of(item)}});
}

void Response::add(const Output& output, Events events) {
  if (complete()) return;
  if (std::optional<OpenAiError> error = error_of(output.end_reason, output.error); output.ended() && error)
    return fail(*error, events);
  if (output.ended()) cached_tokens_ = output.cached_tokens;
  if (has_logprobs_) logprobs_.add(output.tokens, output.logprobs);
  const OutputDelta delta = reader_.push(output);
  begin(events);
  // What belongs to the call that has begun stands before the text behind it.
  for (const ToolCallDelta& call : delta.tool_calls) {
    if (call.index < calls_ && call_ != kNone) append(call_, call.arguments, {}, events);
  }
  add_text(Kind::kReasoning, delta.reasoning, events);
  add_text(Kind::kMessage, delta.content, events);
  if (!delta.tool_calls.empty()) logprobs_.drop();
  for (const ToolCallDelta& call : delta.tool_calls) {
    if (call.index < calls_) continue;
    calls_ = call.index + 1;
    call_ = open(Kind::kCall, &call, events);
    append(call_, call.arguments, {}, events);
  }
  if (output.ended()) end(output.end_reason == EndReason::kLength ? "incomplete" : "completed", events);
}

void Response::end(std::string_view status, Events events) {
  if (items_.empty()) text_ = open(Kind::kMessage, nullptr, events);
  close(text_, status, events);
  close(call_, status, events);
  status_ = status;
  tell_response(events, status == "completed" ? "response.completed" : "response.incomplete");
}

void Response::fail(const OpenAiError& error, Events events) {
  if (complete()) return;
  begin(events);
  error_ = error;
  close(text_, "incomplete", nullptr);
  close(call_, "incomplete", nullptr);
  status_ = "failed";
  tell_response(events, "response.failed");
}

class ResponseStream final : public AnswerStream {
 public:
  ResponseStream(const OpenAiRequest& request, const Tokenizer& tokenizer, const AnswerShape& shape)
      : response_(request, tokenizer, shape) {}

  void add(size_t /*prompt*/, Output&& output, std::vector<std::string>& events) override {
    response_.add(output, &events);
  }
  void add_error(const OpenAiError& error, std::vector<std::string>& events) override {
    response_.fail(error, &events);
  }
  bool complete() const override { return response_.complete(); }
  OpenAiUsage usage() const override { return response_.usage(); }
  std::string_view outcome() const override { return response_.outcome(); }

 private:
  Response response_;
};

class WholeResponse final : public WholeAnswer {
 public:
  WholeResponse(const OpenAiRequest& request, const Tokenizer& tokenizer, const AnswerShape& shape)
      : response_(request, tokenizer, shape) {}

  void add(size_t /*prompt*/, const Output& output) override { response_.add(output, nullptr); }
  bool complete() const override { return response_.complete(); }
  OpenAiUsage usage() const override { return response_.usage(); }
  std::string_view outcome() const override { return response_.outcome(); }
  std::variant<std::string, OpenAiError> body() const override {
    if (response_.error()) return *response_.error();
    return json_text(response_.object());
  }

 private:
  Response response_;
};

}  // namespace

std::unique_ptr<AnswerStream> make_response_stream(const OpenAiRequest& request, const Tokenizer& tokenizer,
                                                   const AnswerShape& shape) {
  return std::make_unique<ResponseStream>(request, tokenizer, shape);
}

std::unique_ptr<WholeAnswer> make_whole_response(const OpenAiRequest& request, const Tokenizer& tokenizer,
                                                 const AnswerShape& shape) {
  return std::make_unique<WholeResponse>(request, tokenizer, shape);
}

}  // namespace lantern
