#include "text/chat_builder.h"

#include <fmt/format.h>

#include "text/json.h"
#include "text/unicode_classes.h"

namespace lantern {
namespace json = boost::json;

ChatBuilder& ChatBuilder::text(std::string_view text) {
  if (text.empty()) return *this;
  if (pieces_.empty() || pieces_.back().special) pieces_.push_back({});
  pieces_.back().text += text;
  return *this;
}

ChatBuilder& ChatBuilder::format(std::string_view chunk) {
  size_t plain = 0;
  for (size_t i = 0; i < chunk.size();) {
    std::string_view found;
    for (const std::string_view special : specials_) {
      if (special.size() > found.size() && chunk.substr(i).starts_with(special)) found = special;
    }
    if (found.empty()) {
      ++i;
      continue;
    }
    text(chunk.substr(plain, i - plain));
    pieces_.push_back({std::string(found), true});
    i += found.size();
    plain = i;
  }
  return text(chunk.substr(plain));
}

Result<ParsedTool> parse_tool(std::string_view text) {
  const auto fail = [](const Error& error) {
    return Error(ErrorCode::kInvalidArgument, "a tool definition: " + error.message());
  };
  auto document = parse_json(text);
  if (!document.ok()) return fail(document.error());
  const auto object = json_object(*document, "it");
  if (!object.ok()) return fail(object.error());
  ParsedTool tool;
  if ((*object)->if_contains("function") != nullptr) {
    tool.whole = **object;
  } else {
    tool.whole["type"] = "function";
    tool.whole["function"] = **object;
  }
  const auto function = json_object(tool.whole.at("function"), "\"function\"");
  if (!function.ok()) return fail(function.error());
  const auto name = json_member(**function, "name", "\"function\"");
  if (!name.ok()) return fail(name.error());
  const auto name_text = json_string(**name, "\"name\"");
  if (!name_text.ok()) return fail(name_text.error());
  return tool;
}

Result<json::object> parse_arguments(const ChatToolCall& call) {
  const auto fail = [&](const Error& error) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the arguments of the call to \"{}\": {}", call.name, error.message()));
  };
  if (call.arguments.empty()) return json::object();
  auto document = parse_json(call.arguments);
  if (!document.ok()) return fail(document.error());
  const auto object = json_object(*document, "they");
  if (!object.ok()) return fail(object.error());
  return **object;
}

std::string_view after_last(std::string_view text, std::string_view mark) {
  const size_t at = text.rfind(mark);
  return at == std::string_view::npos ? text : text.substr(at + mark.size());
}

std::string_view after_first(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  return at == std::string_view::npos ? text : text.substr(at + mark.size());
}

std::string_view strip(std::string_view text) {
  // Python's str.strip takes the four separators U+001C..1F too.
  const auto space = [](const Char& c) { return c.any(kWhiteSpace) || (c.value >= 0x1C && c.value <= 0x1F); };
  size_t begin = 0;
  for (Char c = char_at(text, begin); c.size != 0 && space(c); c = char_at(text, begin)) begin += c.size;
  size_t end = begin;
  for (size_t i = begin; i < text.size();) {
    const Char c = char_at(text, i);
    i += c.size;
    if (!space(c)) end = i;
  }
  return text.substr(begin, end - begin);
}

std::string_view strip_char_left(std::string_view text, char c) {
  while (text.starts_with(c)) text.remove_prefix(1);
  return text;
}

std::string_view strip_char_right(std::string_view text, char c) {
  while (text.ends_with(c)) text.remove_suffix(1);
  return text;
}

int last_user_index(const std::vector<ChatMessage>& messages, bool developer_too) {
  for (size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role == ChatRole::kUser || (developer_too && messages[i].role == ChatRole::kDeveloper)) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace lantern
