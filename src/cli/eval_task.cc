#include "cli/eval_task.h"

#include <fmt/core.h>

#include <boost/json.hpp>

#include "base/json_text.h"
#include "cli/console.h"

namespace lantern::cli {
namespace {

Error wrong_member(std::string_view name, std::string_view expected) {
  return Error(ErrorCode::kCorrupt, fmt::format("\"{}\" must be {}", name, expected));
}

Result<std::string> text_member(const boost::json::object& object, std::string_view name) {
  const boost::json::value* found = object.if_contains(name);
  if (found == nullptr || !found->is_string()) return wrong_member(name, "a string");
  return std::string(found->get_string());
}

}  // namespace

Result<EvalItem> parse_eval_item(std::string_view line) {
  boost::system::error_code failure;
  const boost::json::value document = boost::json::parse(line, failure);
  if (failure) return Error(ErrorCode::kCorrupt, fmt::format("not JSON: {}", failure.message()));
  if (!document.is_object()) return Error(ErrorCode::kCorrupt, "not a JSON object");
  const boost::json::object& object = document.get_object();
  EvalItem item;
  if (const boost::json::value* id = object.if_contains("id"))
    item.id = id->is_string() ? std::string(id->get_string()) : json_text(*id);
  ASSIGN_OR_RETURN(item.prompt, text_member(object, "prompt"));
  ASSIGN_OR_RETURN(item.answer, text_member(object, "answer"));
  ASSIGN_OR_RETURN(item.extract, text_member(object, "extract"));
  if (item.prompt.empty()) return wrong_member("prompt", "at least one character");
  const boost::json::value* max_tokens = object.if_contains("max_tokens");
  if (max_tokens == nullptr || !max_tokens->is_int64() || max_tokens->get_int64() < 1 ||
      max_tokens->get_int64() > INT32_MAX) {
    return wrong_member("max_tokens", "a whole number of at least 1");
  }
  item.max_tokens = static_cast<int32_t>(max_tokens->get_int64());
  if (const boost::json::value* stop = object.if_contains("stop"); stop != nullptr && !stop->is_null()) {
    if (!stop->is_array()) return wrong_member("stop", "an array of strings");
    for (const boost::json::value& string : stop->get_array()) {
      if (!string.is_string()) return wrong_member("stop", "an array of strings");
      item.stop.emplace_back(string.get_string());
    }
  }
  return item;
}

Result<std::vector<EvalItem>> load_eval_task(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path.string()));
  std::vector<EvalItem> items;
  size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t length = std::min(rest.find('\n'), rest.size());
    const std::string_view line = strip(rest.substr(0, length));
    rest.remove_prefix(std::min(length + 1, rest.size()));
    ++number;
    if (line.empty()) continue;
    Result<EvalItem> item = parse_eval_item(line);
    if (!item.ok()) return std::move(item).error().within(fmt::format("{}: line {}", path.string(), number));
    items.push_back(std::move(item).value());
  }
  if (items.empty()) return Error(ErrorCode::kCorrupt, fmt::format("{}: has no items", path.string()));
  return items;
}

Result<std::string> extract_answer(const EvalItem& item, std::string_view completion) {
  if (item.extract.empty()) return std::string(strip(completion));
  ASSIGN_OR_RETURN(const AnswerPattern pattern, AnswerPattern::compile(item.extract));
  ASSIGN_OR_RETURN(const std::string match, pattern.last_match(completion));
  return std::string(strip(match));
}

std::string_view strip(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

}  // namespace lantern::cli
