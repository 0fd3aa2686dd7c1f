#include "base/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <charconv>
#include <cmath>
#include <vector>

namespace lantern {
namespace {

namespace json = boost::json;

void write(std::string_view text, std::string& out) {
  out += '"';
  append_json_chars(text, out);
  out += '"';
}

// Scientific below 1e-4 and from 1e16 on.
void write(double value, std::string& out) {
  if (std::isnan(value)) {
    out += "null";
    return;
  }
  if (std::isinf(value)) {
    out += value < 0 ? "-1e99999" : "1e99999";
    return;
  }
  char buffer[64];
  const double size = std::fabs(value);
  const bool fixed = value == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  out += text;
  if (fixed && text.find('.') == std::string_view::npos) out += ".0";
}

void write(const json::value& value, const JsonStyle& style, std::string& out);

void write(const json::array& array, const JsonStyle& style, std::string& out) {
  out += '[';
  std::string_view separator;
  for (const json::value& item : array) {
    out += separator;
    write(item, style, out);
    separator = style.item_separator;
  }
  out += ']';
}

void write(const json::object& object, const JsonStyle& style, std::string& out) {
  std::string_view separator;
  const auto member = [&](const json::key_value_pair& of) {
    out += separator;
    separator = style.item_separator;
    write(std::string_view(of.key()), out);
    out += style.key_separator;
    write(of.value(), style, out);
  };
  out += '{';
  if (style.sort_keys) {
    std::vector<const json::key_value_pair*> members;
    members.reserve(object.size());
    for (const json::key_value_pair& of : object) members.push_back(&of);
    // By bytes of UTF-8, which is the order of code points, as Python's is.
    std::ranges::sort(members, {}, [](const auto* of) { return std::string_view(of->key()); });
    for (const json::key_value_pair* of : members) member(*of);
  } else {
    for (const json::key_value_pair& of : object) member(of);
  }
  out += '}';
}

void write(const json::value& value, const JsonStyle& style, std::string& out) {
  switch (value.kind()) {
    case json::kind::null: out += "null"; return;
    case json::kind::bool_: out += value.get_bool() ? "true" : "false"; return;
    case json::kind::int64: fmt::format_to(std::back_inserter(out), "{}", value.get_int64()); return;
    case json::kind::uint64: fmt::format_to(std::back_inserter(out), "{}", value.get_uint64()); return;
    case json::kind::double_: write(value.get_double(), out); return;
    case json::kind::string: write(std::string_view(value.get_string()), out); return;
    case json::kind::array: write(value.get_array(), style, out); return;
    case json::kind::object: write(value.get_object(), style, out); return;
  }
}

}  // namespace

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

std::string json_text(const json::value& value, const JsonStyle& style) {
  std::string out;
  write(value, style, out);
  return out;
}

std::string json_text(const json::object& object, const JsonStyle& style) {
  std::string out;
  write(object, style, out);
  return out;
}

std::string json_text(const json::array& array, const JsonStyle& style) {
  std::string out;
  write(array, style, out);
  return out;
}

}  // namespace lantern
