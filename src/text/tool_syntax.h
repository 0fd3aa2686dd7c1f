// How each chat format writes an assistant's tool calls. Sources: as the formats' encoders (chat_*.cc) name them.
#pragma once

#include <string_view>

#include "text/chat.h"

namespace lantern {

// A call is call_begin, its name, and then either one JSON text up to call_end (key_begin is empty), or parameters:
//   key_begin KEY key_end [value_begin] VALUE value_end
// Empty: the format has no such tag.
struct ToolSyntax {
  std::string_view section_begin = {}, section_end = {};  // around all calls of a turn
  std::string_view call_begin = {}, call_end = {};
  std::string_view other_call_end = {};  // means the same
  std::string_view name_end = {};        // empty: the name ends where a parameter or the call's end begins
  std::string_view name_after = {};      // what stands before this in the name is not part of it
  bool name_is_id = false;               // Kimi: "functions.NAME:INDEX"
  bool section_ends_thinking = false;

  std::string_view key_begin = {};
  std::string_view key_end = {};  // followed by value_begin
  std::string_view value_begin = {};
  std::string_view key_end_text = {}, key_end_json = {},
                   key_end_untyped = {};  // instead of key_end: what kind of value follows
  std::string_view value_end = {};
};

// Null: the format has no tool calls.
const ToolSyntax* tool_syntax(ChatFormat format);

}  // namespace lantern
