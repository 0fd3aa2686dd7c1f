#include "server/openai_parts.h"

#include <algorithm>

namespace lantern {

namespace json = boost::json;

namespace {

json::value text_or_null(const std::string& text) { return text.empty() ? json::value() : json::value(text); }

}  // namespace

json::object usage_json(const OpenAiUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", json::object{{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", json::object{{"reasoning_tokens", usage.reasoning_tokens}}}};
}

std::string_view finish_reason(EndReason reason, bool has_calls) {
  if (reason == EndReason::kLength) return "length";
  return has_calls ? "tool_calls" : "stop";
}

json::value stop_reason(const std::string& stop_string, int32_t stop_token, const std::vector<int32_t>& named) {
  if (!stop_string.empty()) return json::value(stop_string);
  const bool is_named = std::ranges::find(named, stop_token) != named.end();
  return is_named ? json::value(stop_token) : json::value();
}

json::array selections_json(const SelectionTrace& trace) {
  json::array lists;
  auto run = trace.runs.begin();
  for (const int32_t count : trace.num_runs) {
    if (count == SelectionTrace::kNoRoom) {
      lists.emplace_back(nullptr);
      continue;
    }
    json::array list;
    list.reserve(2 * static_cast<size_t>(count));
    int32_t at = 0;
    for (const auto end = run + count; run != end; ++run) {
      list.emplace_back(run->begin - at);
      list.emplace_back(run->end - run->begin);
      at = run->end;
    }
    lists.emplace_back(std::move(list));
  }
  return lists;
}

std::optional<OpenAiError> error_of(EndReason reason, const std::string& why) {
  switch (reason) {
    case EndReason::kStop:
    case EndReason::kLength: return std::nullopt;
    case EndReason::kDeadline:
      return OpenAiError{
          .status = 504, .message = "the request's time is over", .type = "timeout_error", .code = "timeout"};
    case EndReason::kCancelled:
      return OpenAiError{
          .status = 503, .message = "the request was cancelled", .type = "unavailable_error", .code = "cancelled"};
    default: return OpenAiError{.status = 500, .message = why, .type = "server_error", .code = "failed"};
  }
}

json::object error_json(const OpenAiError& error) {
  return {{"error", json::object{{"message", error.message},
                                 {"type", error.type},
                                 {"param", text_or_null(error.param)},
                                 {"code", text_or_null(error.code)}}}};
}

}  // namespace lantern
