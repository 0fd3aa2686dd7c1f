#include "cli/answer_events.h"

#include <gtest/gtest.h>

namespace lantern::cli {
namespace {

struct Read {
  std::vector<OutputDelta> pieces;
  std::string fault;
  AnswerUsage usage;
  std::string finish_reason;
};

Read read(int32_t status, std::string_view body, const Status& outcome = {}) {
  Read made;
  AnswerEvents events([&](OutputDelta piece) { made.pieces.push_back(std::move(piece)); });
  events.head(status);
  for (const char byte : body) events.data({&byte, 1});
  made.fault = events.end(outcome);
  made.usage = events.usage();
  made.finish_reason = events.finish_reason();
  return made;
}

TEST(AnswerEventsTest, AChatIsTakenApart) {
  const Read chat = read(200,
                         R"(data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":null}

data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}

: ping

data: {"choices":[{"index":0,"delta":{"reasoning":"so"}}]}

data: {"choices":[{"index":0,"delta":{"content":"yes"}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":3}}}

data: [DONE]

)");
  EXPECT_EQ(chat.fault, "");
  ASSERT_EQ(chat.pieces.size(), 4u) << "the role alone and the end alone bring no token";
  EXPECT_EQ(chat.pieces[0].reasoning + chat.pieces[1].reasoning, "hmso");
  EXPECT_EQ(chat.pieces[2].content, "yes");
  ASSERT_EQ(chat.pieces[3].tool_calls.size(), 1u);
  EXPECT_EQ(chat.pieces[3].tool_calls[0].index, 1);
  EXPECT_EQ(chat.pieces[3].tool_calls[0].name, "f");
  EXPECT_EQ(chat.pieces[3].tool_calls[0].arguments, "{}");
  EXPECT_EQ(chat.finish_reason, "tool_calls");
  EXPECT_EQ(chat.usage.prompt_tokens, 7);
  EXPECT_EQ(chat.usage.cached_tokens, 3);
  EXPECT_EQ(chat.usage.completion_tokens, 5);
}

TEST(AnswerEventsTest, EveryPieceOfACompletionBringsTokens) {
  const Read completion =
      read(200,
           "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[{\"text\":\"\"}]}\n\n"
           "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n");
  EXPECT_EQ(completion.fault, "");
  ASSERT_EQ(completion.pieces.size(), 3u);
  EXPECT_EQ(completion.pieces[2].content, "b");
  EXPECT_EQ(completion.finish_reason, "length");
}

TEST(AnswerEventsTest, WhatIsWrongIsOneSentence) {
  EXPECT_EQ(read(503, R"({"error":{"message":"too many wait"}})").fault, "503: too many wait");
  EXPECT_EQ(read(504, "<html>").fault, "504 Gateway Timeout: <html>");
  EXPECT_EQ(read(200, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n").fault, "the stream ended without [DONE]");
  EXPECT_EQ(read(200, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n").fault, "the stream brought no token");
  EXPECT_EQ(read(200, "data: {\"error\":{\"message\":\"it stops\"}}\n\ndata: [DONE]\n\n").fault, "it stops");
  EXPECT_EQ(read(200, "data: {\"error\":\"odd\"}\n\ndata: [DONE]\n\n").fault, "\"odd\"");
  EXPECT_EQ(read(200, "data: nonsense\n\n").fault, "an event of the stream is no JSON object");
  EXPECT_EQ(read(200, "", Error(ErrorCode::kIo, "cut")).fault, "cut");
}

}  // namespace
}  // namespace lantern::cli
