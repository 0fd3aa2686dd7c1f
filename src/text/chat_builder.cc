#include "text/chat_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

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

void append_json_chars(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<uint8_t>(c)));
        } else {
          out += c;
        }
    }
  }
}

namespace {

void dump_string(std::string_view text, std::string& out) {
  out += '"';
  append_json_chars(text, out);
  out += '"';
}

// Python's repr of a float: the shortest digits that read back, scientific below 1e-4 and from 1e16 on.
void dump_double(double value, std::string& out) {
  char buffer[64];
  const double size = std::fabs(value);
  const bool fixed = value == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  out += text;
  if (fixed && text.find('.') == std::string_view::npos) out += ".0";
}

void dump(const json::value& value, const JsonStyle& style, std::string& out) {
  switch (value.kind()) {
    case json::kind::null: out += "null"; return;
    case json::kind::bool_: out += value.get_bool() ? "true" : "false"; return;
    case json::kind::int64: out += fmt::format("{}", value.get_int64()); return;
    case json::kind::uint64: out += fmt::format("{}", value.get_uint64()); return;
    case json::kind::double_: dump_double(value.get_double(), out); return;
    case json::kind::string: dump_string({value.get_string().data(), value.get_string().size()}, out); return;
    case json::kind::array: {
      out += '[';
      std::string_view separator;
      for (const json::value& item : value.get_array()) {
        out += separator;
        dump(item, style, out);
        separator = style.item_separator;
      }
      out += ']';
      return;
    }
    case json::kind::object: {
      std::vector<const json::key_value_pair*> members;
      for (const auto& member : value.get_object()) members.push_back(&member);
      // By bytes of UTF-8, which is the order of code points, as Python's is.
      if (style.sort_keys) std::ranges::sort(members, {}, [](const auto* m) { return std::string_view(m->key()); });
      out += '{';
      std::string_view separator;
      for (const json::key_value_pair* member : members) {
        out += separator;
        dump_string({member->key().data(), member->key().size()}, out);
        out += style.key_separator;
        dump(member->value(), style, out);
        separator = style.item_separator;
      }
      out += '}';
      return;
    }
  }
}

}  // namespace

std::string dump_json(const json::value& value, const JsonStyle& style) {
  std::string out;
  dump(value, style, out);
  return out;
}

std::string as_python_json(std::string_view text) {
  const auto document = parse_json(text, 64);
  return document.ok() ? dump_json(*document) : std::string(text);
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
