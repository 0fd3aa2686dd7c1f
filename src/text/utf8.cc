#include "text/utf8.h"

namespace lantern {

Utf8Step decode_utf8(std::string_view text, size_t offset) {
  Utf8Step step;
  if (offset >= text.size()) return step;
  step.value = 0xFFFD;
  step.size = 1;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[offset + i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true, false};

  // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
  size_t length = 0;
  uint8_t low = 0x80, high = 0xBF;
  char32_t value = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    value = lead & 0x1Fu;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    value = lead & 0x0Fu;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    value = lead & 0x07u;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return step;
  }
  for (size_t i = 1; i < length; ++i) {
    if (offset + i >= text.size()) {
      step.size = i;
      step.incomplete = true;
      return step;
    }
    const uint8_t next = byte(i);
    if (next < low || next > high) {
      step.size = i;
      return step;
    }
    value = (value << 6) | (next & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {value, length, true, false};
}

void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(static_cast<uint8_t>(byte))); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    if (!step.valid) return false;
    i += step.size;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  append_valid_utf8(out, text);
  return out;
}

void append_valid_utf8(std::string& to, std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    if (step.valid) {
      to.append(text.substr(i, step.size));
    } else {
      append_utf8(to, 0xFFFD);
    }
    i += step.size;
  }
}

size_t incomplete_utf8_tail(std::string_view text) {
  // A code point has at most four bytes, so only a lead byte among the last three can be incomplete.
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // continuation byte: look further left
    const Utf8Step step = decode_utf8(text, text.size() - back);
    return step.incomplete && step.size == back ? back : 0;
  }
  return 0;
}

}  // namespace lantern
