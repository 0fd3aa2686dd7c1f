// Conversations in every format. The input: format, thinking, whether an answer is asked for, tools, then messages of
// role, what they have, and as many parts. Control tokens come from the format alone, whatever a user wrote.
#include "base/check.h"
#include "fuzz_input.h"
#include "text/chat.h"
#include "text/output_parser.h"

using namespace lantern;

namespace {

constexpr size_t kFormats = static_cast<size_t>(ChatFormat::kMoonlight) + 1;

// Of a vocabulary that has the format's tokens.
const Tokenizer& tokenizer_for(ChatFormat format) {
  const auto load = [](const char* name) {
    return Tokenizer::load(std::string(LANTERN_SOURCE_DIR "/tests/text/tokenizers/") + name).value();
  };
  static const Tokenizer deepseek = load("v3"), glm = load("glm"), kimi = load("kimi");
  const std::string_view name = to_string(format);
  return name.starts_with("deepseek") ? deepseek : name.starts_with("glm") ? glm : kimi;
}

ChatMessage read_message(test::FuzzInput& input) {
  ChatMessage message;
  message.role = static_cast<ChatRole>(input.below(5));
  const uint8_t has = input.byte();
  message.content = input.part();
  if ((has & 1) != 0) message.reasoning_content = std::string(input.part());
  if ((has & 2) != 0) message.tool_call_id = input.part();
  if ((has & 4) != 0) message.name = input.part();
  if ((has & 8) != 0) {
    ChatToolCall& call = message.tool_calls.emplace_back();
    call.id = input.part();
    call.name = input.part();
    call.arguments = input.part();
  }
  if ((has & 64) != 0) message.tools.emplace_back(input.part());
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  test::FuzzInput input(data, size);
  const auto format = static_cast<ChatFormat>(input.below(kFormats));
  ChatOptions options;
  if (const size_t thinking = input.below(3); thinking > 0) options.thinking = thinking == 2;
  options.add_generation_prompt = input.flag();
  for (size_t count = input.below(3); count > 0; --count) options.tools.emplace_back(input.part());
  std::vector<ChatMessage> messages;
  while (!input.empty() && messages.size() < 8) messages.push_back(read_message(input));

  const Tokenizer& tokenizer = tokenizer_for(format);
  const Result<ChatEncoder> encoder = ChatEncoder::create(format, tokenizer);
  CHECK(encoder.ok(), "{}", encoder.error().message());
  const Result<std::vector<ChatPiece>> pieces = render_chat(format, messages, options);
  const Result<std::vector<TokenId>> ids = encoder->encode(messages, options);
  CHECK(ids.ok() == pieces.ok(), "one of two readings of a conversation is refused");
  if (!ids.ok()) {
    CHECK(!pieces.error().message().empty(), "a refusal says nothing");
    return 0;
  }
  size_t control_pieces = 0;
  size_t control_tokens = 0;
  for (const ChatPiece& piece : *pieces) control_pieces += piece.special ? 1 : 0;
  for (const TokenId id : *ids) control_tokens += tokenizer.is_added(id) ? 1 : 0;
  CHECK(control_tokens == control_pieces, "{} control tokens where the format has {}", control_tokens, control_pieces);
  return 0;
}
