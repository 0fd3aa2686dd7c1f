// What the chat formats are written with.
#pragma once

#include <boost/json.hpp>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat.h"

namespace lantern {

// Collects pieces. `specials` are the control tokens of the format.
class ChatBuilder {
 public:
  explicit ChatBuilder(std::span<const std::string_view> specials) : specials_(specials) {}

  // Text of the format itself: control tokens in it are recognised, the longest first.
  ChatBuilder& format(std::string_view text);
  // Text from outside: never a control token.
  ChatBuilder& text(std::string_view text);

  std::vector<ChatPiece> take() { return std::move(pieces_); }

 private:
  std::span<const std::string_view> specials_;
  std::vector<ChatPiece> pieces_;
};

struct ChatFormatInfo {
  ChatFormat format;
  std::string_view name;
  // Every control token that the format writes; the first num_required of them into each prompt.
  std::span<const std::string_view> specials;
  size_t num_required;
  // Tokens that end the assistant's turn, as far as the vocabulary has them.
  std::span<const std::string_view> stops;
  bool can_think, must_think, thinks_by_default;
  bool has_tools;         // can declare tools
  bool has_tool_results;  // has a form for calls and their results
  Status (*render)(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool thinking,
                   ChatBuilder& out);
};
const ChatFormatInfo& chat_format_info(ChatFormat format);
std::span<const ChatFormatInfo> deepseek_formats();
std::span<const ChatFormatInfo> glm_formats();
std::span<const ChatFormatInfo> kimi_formats();

Status render_deepseek_v32(const std::vector<ChatMessage>& messages, const ChatOptions& options, bool thinking,
                           ChatBuilder& out);

// A parsed tool definition: `whole` has "type" and "function", `function` is the inner object.
struct ParsedTool {
  boost::json::object whole;
  const boost::json::object& function() const { return whole.at("function").get_object(); }
};
Result<ParsedTool> parse_tool(std::string_view json);
// The arguments of a call; empty text is no arguments.
Result<boost::json::object> parse_arguments(const ChatToolCall& call);

// Strings as in Python: text from the last, or after the first, occurrence of a mark; without white space at both ends.
std::string_view after_last(std::string_view text, std::string_view mark);
std::string_view after_first(std::string_view text, std::string_view mark);
std::string_view strip(std::string_view text);
std::string_view strip_char_left(std::string_view text, char c);
std::string_view strip_char_right(std::string_view text, char c);

// -1 if there is none.
int last_user_index(const std::vector<ChatMessage>& messages, bool developer_too);

// developer stands for system where the format has no developer role.
inline bool is_system(const ChatMessage& message) {
  return message.role == ChatRole::kSystem || message.role == ChatRole::kDeveloper;
}

}  // namespace lantern
