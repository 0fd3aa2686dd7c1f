#include "cli/json_writer.h"

#include <fmt/format.h>

#include <cmath>

#include "text/utf8.h"

namespace lantern::cli {

void JsonWriter::separate() {
  if (need_comma_) text_ += ", ";
  need_comma_ = true;
}

JsonWriter& JsonWriter::raw(std::string_view text) {
  separate();
  text_ += text;
  return *this;
}

JsonWriter& JsonWriter::begin_object() {
  raw("{");
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::begin_array() {
  raw("[");
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end_object() {
  text_ += '}';
  need_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::end_array() {
  text_ += ']';
  need_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  value(name);
  text_ += ": ";
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  std::string escaped = "\"";
  for (char c : replace_invalid_utf8(text)) {
    switch (c) {
      case '"': escaped += "\\\""; break;
      case '\\': escaped += "\\\\"; break;
      case '\n': escaped += "\\n"; break;
      case '\r': escaped += "\\r"; break;
      case '\t': escaped += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          escaped += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          escaped += c;
        }
    }
  }
  return raw(escaped + '"');
}

JsonWriter& JsonWriter::value(bool truth) { return raw(truth ? "true" : "false"); }
JsonWriter& JsonWriter::value(double number) { return std::isfinite(number) ? raw(fmt::format("{}", number)) : null(); }
JsonWriter& JsonWriter::value(float number) { return std::isfinite(number) ? raw(fmt::format("{}", number)) : null(); }
JsonWriter& JsonWriter::null() { return raw("null"); }

}  // namespace lantern::cli
