#include "cli/conversation.h"

#include <gtest/gtest.h>

namespace lantern::cli {
namespace {

using Kind = ChatCommand::Kind;

TEST(ConversationTest, LinesAreMessagesOrCommands) {
  const std::tuple<const char*, Kind, const char*> cases[] = {
      {"hello", Kind::kMessage, "hello"},
      {"", Kind::kMessage, ""},
      {"//etc", Kind::kMessage, "/etc"},
      {"/help", Kind::kHelp, ""},
      {"/system  Be brief. ", Kind::kSystem, "Be brief."},
      {"/system", Kind::kSystem, ""},
      {"/save a b.json", Kind::kSave, "a b.json"},
      {"/think off", Kind::kThink, "off"},
      {"/clear ", Kind::kClear, ""},
      {"/quit", Kind::kQuit, ""},
  };
  for (const auto& [line, kind, argument] : cases) {
    const Result<ChatCommand> command = parse_chat_line(line);
    ASSERT_TRUE(command.ok()) << line;
    EXPECT_EQ(command->kind, kind) << line;
    EXPECT_EQ(command->argument, argument) << line;
  }
  EXPECT_NE(parse_chat_line("/sav x").error().message().find("did you mean /save"), std::string::npos);
  for (const char* line : {"/", "/save", "/think maybe", "/think", "/clear all", "/nonsense"}) {
    EXPECT_FALSE(parse_chat_line(line).ok()) << line;
  }
}

TEST(ConversationTest, TheSystemMessageStaysWhenTheRestIsForgotten) {
  Conversation conversation;
  conversation.set_system("first");
  ChatMessage user;
  user.content = "hi";
  ChatMessage assistant;
  assistant.role = ChatRole::kAssistant;
  assistant.content = "ho";
  assistant.reasoning_content = "hm";
  conversation.messages = {conversation.messages.front(), user, assistant};
  conversation.set_system("second");
  EXPECT_EQ(conversation.as_json(), R"([{"role": "system", "content": "second"}, {"role": "user", "content": "hi"}, )"
                                    R"({"role": "assistant", "content": "ho", "reasoning_content": "hm"}])");
  conversation.clear();
  EXPECT_EQ(conversation.as_json(), R"([{"role": "system", "content": "second"}])");
  conversation.set_system("");
  EXPECT_EQ(conversation.as_json(), "[]");
}

}  // namespace
}  // namespace lantern::cli
