#include "cli/answer_events.h"

#include <boost/json.hpp>

#include "base/json_text.h"
#include "cli/server_access.h"

namespace lantern::cli {
namespace {

namespace json = boost::json;

constexpr size_t kMostOfABody = 64u << 10;

const json::value* member(const json::value* of, std::string_view name) {
  return of != nullptr && of->is_object() ? of->get_object().if_contains(name) : nullptr;
}
std::string text_member(const json::value* of, std::string_view name) {
  const json::value* text = member(of, name);
  return text != nullptr && text->is_string() ? std::string(text->get_string()) : std::string();
}
int64_t count_member(const json::value* of, std::string_view name) {
  const json::value* count = member(of, name);
  return count != nullptr && count->is_int64() ? count->get_int64() : 0;
}

OutputDelta piece_of(const json::value& delta) {
  OutputDelta piece;
  piece.content = text_member(&delta, "content");
  piece.reasoning = text_member(&delta, "reasoning_content") + text_member(&delta, "reasoning");
  const json::value* calls = member(&delta, "tool_calls");
  if (calls == nullptr || !calls->is_array()) return piece;
  for (const json::value& call : calls->get_array()) {
    const json::value* function = member(&call, "function");
    piece.tool_calls.push_back({.index = static_cast<int32_t>(count_member(&call, "index")),
                                .id = text_member(&call, "id"),
                                .name = text_member(function, "name"),
                                .arguments = text_member(function, "arguments")});
  }
  return piece;
}

}  // namespace

void AnswerEvents::data(std::string_view part) {
  if (status_ != 200) {
    if (body_.size() < kMostOfABody) body_ += part;
  } else if (!reader_.push(part, [this](std::string_view event) { on_event(event); }) && error_.empty()) {
    error_ = "an event of the stream is longer than any should be";
  }
}

std::string AnswerEvents::end(const Status& status) {
  if (!error_.empty()) return error_;
  if (!status.ok()) return status.error().message();
  if (status_ != 200) return server_fault(status_, body_);
  if (!done_) return "the stream ended without [DONE]";
  return any_ ? "" : "the stream brought no token";
}

void AnswerEvents::on_event(std::string_view event) {
  if (!error_.empty()) return;
  if (event == "[DONE]") {
    done_ = true;
    return;
  }
  json::error_code failure;
  const json::value document = json::parse(event, failure);
  if (failure || !document.is_object()) {
    error_ = "an event of the stream is no JSON object";
    return;
  }
  if (const json::value* error = member(&document, "error"); error != nullptr && !error->is_null()) {
    const std::string message = text_member(error, "message");
    error_ = message.empty() ? json_text(*error) : message;
    return;
  }
  if (const json::value* usage = member(&document, "usage"); usage != nullptr && usage->is_object()) {
    usage_ = {.prompt_tokens = count_member(usage, "prompt_tokens"),
              .cached_tokens = count_member(member(usage, "prompt_tokens_details"), "cached_tokens"),
              .completion_tokens = count_member(usage, "completion_tokens")};
  }
  const json::value* choice = document.find_pointer("/choices/0", failure);
  if (choice == nullptr) return;
  if (std::string reason = text_member(choice, "finish_reason"); !reason.empty()) finish_reason_ = std::move(reason);
  const json::value* delta = member(choice, "delta");
  OutputDelta piece = delta != nullptr ? piece_of(*delta) : OutputDelta{};
  if (delta == nullptr) piece.content = text_member(choice, "text");
  if (delta != nullptr && piece.empty()) return;
  any_ = true;
  on_piece_(std::move(piece));
}

}  // namespace lantern::cli
