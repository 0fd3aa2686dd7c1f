#include "cli/value_forms.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cli/command.h"
#include "cli/option_names.h"

namespace lantern::cli {
namespace {

TEST(TokenIdsTest, ListsAreReadAsDocumented) {
  const std::vector<int32_t> three = {0, 17, 42};
  for (const char* text : {"0,17,42", "0 17 42", "[0, 17, 42]", " 0 , 17,42\n", "0 17,42", "[ 0,17 ,42 ] "})
    EXPECT_EQ(*parse_token_ids(text), three) << text;
  EXPECT_EQ(*parse_token_ids("2147483647"), std::vector<int32_t>{2147483647});
}

TEST(TokenIdsTest, WhatIsNoListIsRefusedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "names no token id"},
      {"[]", "names no token id"},
      {" [ ] ", "names no token id"},
      {"1,,2", "a token id is missing, at character 3"},
      {"[1,,2]", "a token id is missing, at character 4"},
      {",1", "a token id is missing, at character 1"},
      {"1,2,", "a token id is missing, at character 5"},
      {"[1,2,]", "']' is out of place, at character 6"},
      {"[1,2", "the list ends without its ], at character 5"},
      {"[1", "the list ends without its ], at character 3"},
      {"[", "a token id is missing, at character 2"},
      {"1,2]", "']' is out of place, at character 4"},
      {"1,[2]", "'[' is out of place, at character 3"},
      {"[1 2]", "neither , nor ] follows an id, at character 4"},
      {"[1,2] 3", "something follows the list, at character 7"},
      {"0,x", "'x' is not a token id, at character 3"},
      {"0,-1", "'-1' is not a token id, at character 3"},
      {"1.5", "'1.5' is not a token id, at character 1"},
      {"2147483648", "'2147483648' is not a token id, at character 1"},
  };
  for (const auto& [text, message] : cases) {
    const Result<std::vector<int32_t>> ids = parse_token_ids(text);
    ASSERT_FALSE(ids.ok()) << text;
    EXPECT_TRUE(ids.error().message().starts_with(message)) << text << ": " << ids.error().message();
  }
  const std::string long_word = parse_token_ids(std::string(5000, 'x')).error().message();
  EXPECT_LT(long_word.size(), 200u) << "a message is one line to read";
}

TEST(ValueFormsTest, BiasesRatesAndWords) {
  const LogitBias bias = *parse_logit_bias("17=-2.5");
  EXPECT_EQ(bias.token, 17);
  EXPECT_EQ(bias.bias, -2.5f);
  EXPECT_EQ(parse_logit_bias("0=100")->bias, 100.0f);
  for (const char* text : {"", "=", "17", "17=", "=1", "x=1", "-1=1", "17=nan", "17=1=2", "17=100.5", "17=-101"})
    EXPECT_FALSE(parse_logit_bias(text).ok()) << text;
  EXPECT_EQ(*parse_request_rate("2.5"), 2.5);
  EXPECT_TRUE(std::isinf(*parse_request_rate("inf")));
  for (const char* text : {"", "0", "-1", "nan", "-inf", "infinity", "1e999", "fast"})
    EXPECT_FALSE(parse_request_rate(text).ok()) << text;
  EXPECT_TRUE(check_has_text(" x").ok());
  EXPECT_FALSE(check_has_text(" \t").ok());
  EXPECT_TRUE(check_has_key(",a").ok());
  EXPECT_FALSE(check_has_key(" , ,").ok());
  EXPECT_TRUE(check_chat_format("auto").ok());
  EXPECT_TRUE(check_chat_format("glm47").ok());
  EXPECT_FALSE(check_chat_format("glm").ok());
}

const Command& command_named(std::string_view name) {
  for (const Command& command : all_commands()) {
    if (command.name == name) return command;
  }
  ADD_FAILURE() << "no command " << name;
  return all_commands()[0];
}

TEST(OptionNamesTest, MessagesNameTheFlagsOfTheCommand) {
  const Command& generate = command_named("generate");
  const Command& serve = command_named("serve");
  EXPECT_EQ(with_flags("max_model_len 9 is too much; lower max_model_len", generate),
            "--max-model-len 9 is too much; lower --max-model-len");
  EXPECT_EQ(with_flags("raise kv_cache_bytes", serve), "raise --kv-cache-memory");
  EXPECT_EQ(with_flags("raise kv_cache_bytes", generate), "raise kv_cache_bytes") << "generate has no such flag";
  EXPECT_EQ(with_flags("lower max_model_len", command_named("bench step")), "lower --context or --prefill");
  EXPECT_EQ(with_flags("logit_bias and stop_token_ids", generate), "--logit-bias and --stop-token-ids");
  // Files, fields and other names keep theirs.
  for (const char* text : {"/tmp/max_tokens/x", "\"max_tokens\" must be", "max_tokens.json", "my_max_tokens",
                           "max_tokens_2", "--max_tokens"})
    EXPECT_EQ(with_flags(text, generate), text);
}

}  // namespace
}  // namespace lantern::cli
