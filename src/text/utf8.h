// UTF-8 as the tokenizer packages see it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lantern {

struct Utf8Step {
  char32_t value = 0;  // U+FFFD unless valid
  size_t size = 0;     // bytes consumed; 0 only at the end of the text
  bool valid = false;
  bool incomplete = false;  // the text ends inside a sequence that is well-formed so far
};

// Decodes one code point at `offset`. An ill-formed sequence is consumed up to its maximal well-formed prefix (at least
// one byte), as Unicode chapter 3.9 recommends and Python's errors="replace" and Rust's from_utf8_lossy do.
Utf8Step decode_utf8(std::string_view text, size_t offset);

void append_utf8(std::string& text, char32_t code_point);

bool is_valid_utf8(std::string_view text);

// Every maximal ill-formed part becomes U+FFFD.
std::string replace_invalid_utf8(std::string_view text);
void append_valid_utf8(std::string& to, std::string_view text);

// Number of bytes at the end of `text` that may still become a code point when more bytes arrive (0..3).
size_t incomplete_utf8_tail(std::string_view text);

}  // namespace lantern
