#include "text/chat.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "text/chat_builder.h"

namespace lantern {
namespace {

std::vector<ChatFormatInfo> all_formats() {
  std::vector<ChatFormatInfo> all;
  for (const auto formats : {deepseek_formats(), glm_formats(), kimi_formats()}) {
    all.insert(all.end(), formats.begin(), formats.end());
  }
  return all;
}

const std::vector<ChatFormatInfo>& formats() {
  static const std::vector<ChatFormatInfo> all = all_formats();
  return all;
}

// What no format can express, before its renderer is asked.
Status check_request(const ChatFormatInfo& info, const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  const auto unsupported = [&](std::string_view what) {
    return Error(ErrorCode::kUnsupported, fmt::format("the chat format {} {}", info.name, what));
  };
  if (messages.empty()) return Error(ErrorCode::kInvalidArgument, "a conversation needs at least one message");
  if (options.thinking.value_or(false) && !info.can_think)
    return unsupported("has no thinking mode; leave thinking off");
  if (!options.thinking.value_or(true) && info.must_think) return unsupported("always thinks; leave thinking on");
  if (!options.tools.empty() && !info.has_tools) {
    return unsupported("has no form for declaring tools; describe them in the system message");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    const auto invalid = [&](std::string_view what) {
      return Error(ErrorCode::kInvalidArgument, fmt::format("message {} ({}) {}", i, to_string(message.role), what));
    };
    if (!message.tool_calls.empty() && message.role != ChatRole::kAssistant) return invalid("cannot have tool_calls");
    const bool declares = message.role == ChatRole::kSystem || message.role == ChatRole::kDeveloper;
    if (!message.tools.empty() && !declares) return invalid("cannot declare tools");
    if (!message.tools.empty() && info.format != ChatFormat::kDeepSeekV32) {
      return unsupported("has no form for tools declared by one message; give them for the whole conversation");
    }
    if (!info.has_tool_results && (message.role == ChatRole::kTool || !message.tool_calls.empty())) {
      return unsupported("has no form for tool calls and their results");
    }
  }
  return {};
}

}  // namespace

std::string_view to_string(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem: return "system";
    case ChatRole::kDeveloper: return "developer";
    case ChatRole::kUser: return "user";
    case ChatRole::kAssistant: return "assistant";
    case ChatRole::kTool: return "tool";
  }
  return "";
}

const ChatFormatInfo& chat_format_info(ChatFormat format) {
  const auto info = std::find_if(formats().begin(), formats().end(), [&](const auto& f) { return f.format == format; });
  CHECK(info != formats().end(), "no chat format {}", static_cast<int>(format));
  return *info;
}

std::string_view to_string(ChatFormat format) { return chat_format_info(format).name; }

Result<ChatFormat> parse_chat_format(std::string_view name) {
  if (name == "glm46") return ChatFormat::kGlm45;
  if (name == "glm5") return ChatFormat::kGlm47;
  if (name == "deepseek_v3") return ChatFormat::kDeepSeekV3;
  std::string names;
  for (const ChatFormatInfo& info : formats()) {
    if (info.name == name) return info.format;
    names += names.empty() ? "" : ", ";
    names += info.name;
  }
  return Error(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is no chat format; there are {}", name, names));
}

Result<ChatFormat> detect_chat_format(std::string_view model_type, const Tokenizer& tokenizer) {
  const std::string_view chat_template = tokenizer.chat_template();
  const auto mentions = [&](std::string_view mark) { return chat_template.find(mark) != std::string_view::npos; };
  const auto has = [&](std::string_view token) { return tokenizer.added_token_id(token).has_value(); };
  const auto undecided = [&](std::string_view what) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("model_type {} has several chat formats and {}; choose one by name", model_type, what));
  };

  if (has("<|im_middle|>")) {
    if (mentions("<think>")) return ChatFormat::kKimiK2Thinking;
    if (mentions("Moonshot-AI")) return ChatFormat::kMoonlight;
    return model_type == "deepseek_v3" && chat_template.empty() ? ChatFormat::kMoonlight : ChatFormat::kKimiK2;
  }
  if (model_type == "glm4_moe_lite" || model_type == "glm_moe_dsa") {
    if (mentions("Reasoning Effort")) {
      // GLM-5.2 looks whether it shall think; GLM-5.3 always does.
      if (!mentions("enable_thinking")) {
        log_warning(
            "the checkpoint's chat template is that of GLM-5.3, which always thinks, knows a third effort and orders "
            "results of tools by their calls; conversations are written as for GLM-5.2");
      }
      return ChatFormat::kGlm52;
    }
    if (mentions("reasoning_content is defined")) {
      log_warning(
          "the checkpoint's chat template is that of GLM-5.1, which declares tools and writes empty thinking "
          "otherwise; conversations are written as for GLM-5");
    }
    return ChatFormat::kGlm47;
  }
  if (model_type == "glm4_moe") {
    if (mentions("/nothink")) return ChatFormat::kGlm45;
    if (mentions("<arg_key>")) return ChatFormat::kGlm47;
    return undecided("the checkpoint has no chat template that tells GLM-4.5 from GLM-4.7");
  }
  if (model_type == "deepseek_v32") return ChatFormat::kDeepSeekV32;
  if (model_type == "deepseek_v2") return mentions("<｜User｜>") ? ChatFormat::kDeepSeekV3 : ChatFormat::kDeepSeekV2;
  if (model_type == "deepseek_v3") {
    if (mentions("<｜Assistant｜><think>\\n")) return ChatFormat::kDeepSeekR1;
    if (mentions("thinking")) return ChatFormat::kDeepSeekV31;
    if (mentions("<｜User｜>")) return ChatFormat::kDeepSeekV3;
    if (has("｜DSML｜")) return ChatFormat::kDeepSeekV32;
    return undecided("the checkpoint has no chat template that tells V3, R1 and V3.1 apart");
  }
  return Error(ErrorCode::kUnsupported,
               fmt::format("no chat format is known for model_type \"{}\"; choose one by name", model_type));
}

Result<std::vector<ChatPiece>> render_chat(ChatFormat format, const std::vector<ChatMessage>& messages,
                                           const ChatOptions& options) {
  const ChatFormatInfo& info = chat_format_info(format);
  RETURN_IF_ERROR(check_request(info, messages, options));
  ChatBuilder builder(info.specials);
  RETURN_IF_ERROR(info.render(messages, options, options.thinking.value_or(info.thinks_by_default), builder));
  return builder.take();
}

std::string to_text(const std::vector<ChatPiece>& pieces) {
  std::string text;
  for (const ChatPiece& piece : pieces) text += piece.text;
  return text;
}

Result<ChatEncoder> ChatEncoder::create(ChatFormat format, const Tokenizer& tokenizer) {
  const ChatFormatInfo& info = chat_format_info(format);
  for (const std::string_view token : info.specials.first(info.num_required)) {
    if (!tokenizer.added_token_id(token)) {
      return Error(
          ErrorCode::kUnsupported,
          fmt::format("the chat format {} needs the token \"{}\", which the vocabulary lacks; choose another format",
                      info.name, token));
    }
  }
  ChatEncoder encoder(format, tokenizer);
  for (const std::string_view stop : info.stops) {
    if (const auto id = tokenizer.added_token_id(stop)) encoder.stop_ids_.push_back(*id);
  }
  return encoder;
}

Result<std::vector<TokenId>> ChatEncoder::encode(const std::vector<ChatMessage>& messages,
                                                 const ChatOptions& options) const {
  ASSIGN_OR_RETURN(const auto pieces, render_chat(format_, messages, options));
  std::vector<TokenId> ids;
  for (const ChatPiece& piece : pieces) {
    if (!piece.special) {
      ASSIGN_OR_RETURN(const auto text_ids,
                       tokenizer_->encode(piece.text, {.add_special = false, .parse_special = false}));
      ids.insert(ids.end(), text_ids.begin(), text_ids.end());
      continue;
    }
    const auto id = tokenizer_->added_token_id(piece.text);
    if (!id) {
      return Error(ErrorCode::kUnsupported,
                   fmt::format("this conversation in the chat format {} needs the token \"{}\", "
                               "which the vocabulary lacks; choose another format",
                               to_string(format_), piece.text));
    }
    ids.push_back(*id);
  }
  return ids;
}

bool ChatEncoder::starts_thinking(const std::vector<ChatPiece>& pieces) const {
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    if (piece->special) return piece->text == "<think>";
    // R1 has a line break behind the tag.
    if (piece->text != "\n") return false;
  }
  return false;
}

}  // namespace lantern
