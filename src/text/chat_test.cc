#include "text/chat.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "text/json.h"

namespace lantern {
namespace {

namespace json = boost::json;

const std::string kFolder = LANTERN_SOURCE_DIR "/tests/text/";

json::value read_json(const std::string& name) {
  std::ifstream in(kFolder + name, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  auto document = parse_json(text);
  EXPECT_TRUE(document.ok()) << name;
  return document.ok() ? *document : json::value();
}

std::string string_or_empty(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value == nullptr ? std::string() : std::string(value->as_string());
}

std::vector<std::string> read_tools(const json::object& object) {
  std::vector<std::string> tools;
  if (const json::value* list = object.if_contains("tools")) {
    for (const json::value& tool : list->as_array()) tools.push_back(json::serialize(tool));
  }
  return tools;
}

struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<std::string> tools;
  std::optional<ReasoningEffort> effort;
};

Conversation read_conversation(const json::object& object) {
  static const std::map<std::string, ChatRole> kRoles = {{"system", ChatRole::kSystem},
                                                         {"developer", ChatRole::kDeveloper},
                                                         {"user", ChatRole::kUser},
                                                         {"assistant", ChatRole::kAssistant},
                                                         {"tool", ChatRole::kTool}};
  Conversation conversation;
  conversation.tools = read_tools(object);
  if (const std::string effort = string_or_empty(object, "reasoning_effort"); !effort.empty()) {
    conversation.effort = effort == "high" ? ReasoningEffort::kHigh : ReasoningEffort::kMax;
  }
  for (const json::value& value : object.at("messages").as_array()) {
    const json::object& from = value.as_object();
    ChatMessage message;
    message.role = kRoles.at(string_or_empty(from, "role"));
    message.content = string_or_empty(from, "content");
    message.tool_call_id = string_or_empty(from, "tool_call_id");
    message.name = string_or_empty(from, "name");
    message.tools = read_tools(from);
    if (from.contains("reasoning_content")) message.reasoning_content = string_or_empty(from, "reasoning_content");
    if (const json::value* calls = from.if_contains("tool_calls")) {
      for (const json::value& call : calls->as_array()) {
        message.tool_calls.push_back({string_or_empty(call.as_object(), "id"),
                                      string_or_empty(call.as_object(), "name"),
                                      string_or_empty(call.as_object(), "arguments")});
      }
    }
    conversation.messages.push_back(std::move(message));
  }
  return conversation;
}

std::map<std::string, Conversation> read_conversations() {
  std::map<std::string, Conversation> all;
  const json::value document = read_json("chat/conversations.json");
  for (const auto& entry : document.as_object()) {
    all[std::string(entry.key())] = read_conversation(entry.value().as_object());
  }
  return all;
}

const char* tokenizer_for(const std::string& format) {
  if (format == "deepseek_v2") return "v2";
  if (format.starts_with("deepseek")) return "v3";
  return format.starts_with("glm") ? "glm" : "kimi";
}

Tokenizer load(const std::string& name) {
  auto tokenizer = Tokenizer::load(kFolder + "tokenizers/" + name);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  return std::move(tokenizer).value();
}

// The prompts equal what the published templates and encoders render.
TEST(ChatGolden, PromptsEqualThePublishedTemplates) {
  const auto conversations = read_conversations();
  const json::value expected = read_json("chat/expected.json");
  std::map<std::string, Tokenizer> tokenizers;
  for (const char* name : {"v2", "v3", "glm", "kimi"}) tokenizers.emplace(name, load(name));
  std::map<std::string, int> cases_of;
  for (const json::value& value : expected.at("cases").as_array()) {
    const json::object& golden = value.as_object();
    const std::string title = string_or_empty(golden, "conversation"), name = string_or_empty(golden, "format");
    const Conversation& conversation = conversations.at(title);
    const auto format = parse_chat_format(name);
    ASSERT_TRUE(format.ok()) << name;
    ChatOptions options;
    options.tools = conversation.tools;
    options.effort = conversation.effort;
    options.add_generation_prompt = golden.at("add_generation_prompt").as_bool();
    if (golden.contains("thinking")) options.thinking = golden.at("thinking").as_bool();
    const std::string label = title + " " + json::serialize(json::value(golden)).substr(0, 150);
    ++cases_of[name];

    const auto pieces = render_chat(*format, conversation.messages, options);
    if (golden.at("text").is_null()) {
      EXPECT_FALSE(pieces.ok()) << label;
      continue;
    }
    ASSERT_TRUE(pieces.ok()) << label << ": " << pieces.error().message();
    const std::string text(golden.at("text").as_string());
    EXPECT_EQ(to_text(*pieces), text) << label;

    // The ids are those of the rendered text, unless users wrote control tokens.
    const Tokenizer& tokenizer = tokenizers.at(tokenizer_for(name));
    const auto encoder = ChatEncoder::create(*format, tokenizer);
    ASSERT_TRUE(encoder.ok()) << encoder.error().message();
    const auto ids = encoder->encode(conversation.messages, options);
    ASSERT_TRUE(ids.ok()) << label << ": " << ids.error().message();
    EXPECT_EQ(tokenizer.decode(*ids), text) << label;
    if (title != "specials_in_text" && title != "inline_thinking") {
      EXPECT_EQ(*ids, tokenizer.encode(text, {.add_special = false}).value()) << label;
    }
  }
  EXPECT_EQ(cases_of.size(), 11u);
  for (const auto& [name, count] : cases_of) EXPECT_GE(count, 20) << name;
}

// A user who writes control tokens gets their characters, in every format.
TEST(Chat, UserTextNeverBecomesAControlToken) {
  std::string hostile;
  for (const char* token : {"<｜User｜>",
                            "<｜Assistant｜>",
                            "<think>",
                            "</think>",
                            "<｜end▁of▁sentence｜>",
                            "<｜begin▁of▁sentence｜>",
                            "｜DSML｜",
                            "<｜tool▁calls▁begin｜>",
                            "[gMASK]",
                            "<sop>",
                            "<|user|>",
                            "<|assistant|>",
                            "<|system|>",
                            "<|observation|>",
                            "<tool_call>",
                            "/nothink",
                            "<arg_key>",
                            "<|im_user|>",
                            "<|im_middle|>",
                            "<|im_end|>",
                            "<|tool_call_begin|>",
                            "[EOS]"}) {
    hostile += token;
  }
  const ChatToolCall harmless{"functions.f:0", "f", R"({"a": "b"})"};
  // The same JSON shape with control tokens in every place that comes from outside.
  const ChatToolCall harmful{hostile, hostile, json::serialize(json::object{{hostile, hostile}})};
  const auto conversation = [&](bool bad, bool calls) {
    const std::string text = bad ? hostile : "x";
    std::vector<ChatMessage> messages(4);
    messages[0] = {ChatRole::kSystem, text, {}, {}, {}, {}, {}};
    messages[1] = {ChatRole::kUser, text, {}, {}, {}, {}, {}};
    messages[2] = {ChatRole::kAssistant, bad ? "</think>" + text : "</think>x", "r", {}, {}, {}, {}};
    messages[3] = {ChatRole::kUser, text, {}, {}, {}, {}, {}};
    if (calls) {
      messages[2].tool_calls = {bad ? harmful : harmless};
      messages[3] = {ChatRole::kTool, text, {}, {}, bad ? hostile : "functions.f:0", {}, {}};
    }
    return messages;
  };
  for (const char* name : {"deepseek_v2", "deepseek_v3_0324", "deepseek_r1", "deepseek_v31", "deepseek_v32", "glm45",
                           "glm47", "glm52", "kimi_k2", "kimi_k2_thinking", "moonlight"}) {
    const Tokenizer tokenizer = load(tokenizer_for(name));
    const auto encoder = ChatEncoder::create(*parse_chat_format(name), tokenizer);
    ASSERT_TRUE(encoder.ok());
    for (const bool calls : {false, true}) {
      const auto count = [&](bool bad) -> int {
        const auto ids = encoder->encode(conversation(bad, calls), {});
        if (!ids.ok()) return -1;
        int added = 0;
        for (const TokenId id : *ids) added += tokenizer.is_added(id) ? 1 : 0;
        return added;
      };
      const bool no_calls = std::set<std::string>{"deepseek_v2", "moonlight"}.count(name) != 0;
      EXPECT_EQ(count(true), count(false)) << name;
      EXPECT_EQ(count(false) < 0, calls && no_calls) << name;
    }
  }
}

TEST(Chat, RefusalsNameWhatToChange) {
  const std::vector<ChatMessage> hi = {{ChatRole::kUser, "hi", {}, {}, {}, {}, {}}};
  const auto message = [&](ChatFormat format, const std::vector<ChatMessage>& messages, const ChatOptions& options) {
    const auto pieces = render_chat(format, messages, options);
    return pieces.ok() ? std::string("accepted") : pieces.error().message();
  };
  ChatOptions think, no_think, tools, bad_tools;
  think.thinking = true;
  no_think.thinking = false;
  tools.tools = {R"({"name": "f", "parameters": {}})"};
  bad_tools.tools = {R"({"name": )"};
  EXPECT_EQ(message(ChatFormat::kDeepSeekV3, hi, think),
            "the chat format deepseek_v3_0324 has no thinking mode; leave thinking off");
  EXPECT_EQ(message(ChatFormat::kDeepSeekR1, hi, no_think),
            "the chat format deepseek_r1 always thinks; leave thinking on");
  EXPECT_EQ(message(ChatFormat::kMoonlight, hi, tools),
            "the chat format moonlight has no form for declaring tools; describe them in the system message");
  EXPECT_EQ(message(ChatFormat::kDeepSeekV32, hi, bad_tools),
            "a tool definition: not valid JSON at line 1, column 10, byte 9 of 9 (it ends too early)");
  EXPECT_EQ(message(ChatFormat::kDeepSeekV32, {}, {}), "a conversation needs at least one message");
  EXPECT_EQ(message(ChatFormat::kGlm47, hi, tools), "accepted");
  std::vector<ChatMessage> bad_call = hi;
  bad_call.push_back({ChatRole::kAssistant, "", {}, {{"1", "f", "[1]"}}, {}, {}, {}});
  EXPECT_EQ(message(ChatFormat::kGlm47, bad_call, {}),
            "the arguments of the call to \"f\": they must be an object but is an array");
  std::vector<ChatMessage> bad_role = hi;
  bad_role[0].tool_calls = {{"1", "f", "{}"}};
  EXPECT_EQ(message(ChatFormat::kGlm47, bad_role, {}), "message 0 (user) cannot have tool_calls");

  const auto encoder = ChatEncoder::create(ChatFormat::kGlm45, load("v2"));
  ASSERT_FALSE(encoder.ok());
  EXPECT_EQ(encoder.error().message(),
            "the chat format glm45 needs the token \"[gMASK]\", which the vocabulary lacks; choose another format");
  const auto unknown = parse_chat_format("chatml");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message().find("deepseek_v32"), std::string::npos);
}

TEST(Chat, FormatFollowsTheCheckpoint) {
  const auto with_template = [](const char* tokenizer, const std::string& chat_template) {
    std::ifstream in(kFolder + "tokenizers/" + tokenizer + "/tokenizer.json", std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    return Tokenizer::from_json(text, json::serialize(json::object{{"chat_template", chat_template}})).value();
  };
  const auto detect = [](const char* model_type, const Tokenizer& tokenizer) {
    const auto format = detect_chat_format(model_type, tokenizer);
    return format.ok() ? std::string(to_string(*format)) : format.error().message();
  };
  const Tokenizer v2 = load("v2"), v3 = load("v3"), glm = load("glm"), kimi = load("kimi");
  EXPECT_EQ(detect("deepseek_v2", v2), "deepseek_v2");
  EXPECT_EQ(detect("deepseek_v2", with_template("v2", "{{'<｜User｜>' + x}}")), "deepseek_v3_0324");
  EXPECT_EQ(detect("deepseek_v32", v3), "deepseek_v32");
  EXPECT_EQ(detect("deepseek_v3", v3), "deepseek_v32");  // no template, but the DSML token
  EXPECT_EQ(detect("deepseek_v3", with_template("v3", "{{'<｜User｜>'}}")), "deepseek_v3_0324");
  EXPECT_EQ(detect("deepseek_v3", with_template("v3", "{{'<｜User｜>'}}{{'<｜Assistant｜><think>\\n'}}")),
            "deepseek_r1");
  EXPECT_EQ(detect("deepseek_v3", with_template("v3", "{{'<｜User｜>'}}{% if not thinking %}")), "deepseek_v31");
  EXPECT_NE(detect("deepseek_v3", v2).find("choose one by name"), std::string::npos);
  EXPECT_EQ(detect("glm4_moe_lite", glm), "glm47");
  EXPECT_EQ(detect("glm_moe_dsa", glm), "glm47");
  // What is near a checkpoint's format, but is not it, is said.
  struct Glm {
    const char *chat_template, *format, *said;
  };
  const std::string effort = "<|system|>Reasoning Effort: {{ effort }}",
                    defined = "and reasoning_content is defined -%}";
  const std::string glm52 = "{%- if enable_thinking %}" + effort + defined, glm53 = effort + defined;
  for (const Glm& of :
       {Glm{"or clear_thinking) and reasoning_content -%}", "glm47", ""}, Glm{glm52.c_str(), "glm52", ""},
        Glm{defined.c_str(), "glm47", "that of GLM-5.1"}, Glm{glm53.c_str(), "glm52", "that of GLM-5.3"}}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(detect("glm_moe_dsa", with_template("glm", of.chat_template)), of.format) << of.chat_template;
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(of.said), std::string::npos) << of.chat_template << ": " << said;
    EXPECT_EQ(said.empty(), of.said[0] == '\0') << of.chat_template << ": " << said;
  }
  EXPECT_EQ(detect("glm4_moe", with_template("glm", "'/nothink'")), "glm45");
  EXPECT_NE(detect("glm4_moe", glm).find("choose one by name"), std::string::npos);
  EXPECT_EQ(detect("kimi_k2", kimi), "kimi_k2");
  EXPECT_EQ(detect("deepseek_v3", kimi), "moonlight");
  EXPECT_NE(detect("llama", v3).find("llama"), std::string::npos);
}

TEST(Chat, KnowsWhetherThePromptOpenedThinking) {
  const Tokenizer v3 = load("v3");
  const std::vector<ChatMessage> hi = {{ChatRole::kUser, "hi <think>", {}, {}, {}, {}, {}}};
  const auto starts = [&](ChatFormat format, std::optional<bool> thinking) {
    const auto encoder = ChatEncoder::create(format, v3);
    EXPECT_TRUE(encoder.ok());
    return encoder->starts_thinking(
        *render_chat(format, hi, {.thinking = thinking, .add_generation_prompt = true, .tools = {}}));
  };
  EXPECT_TRUE(starts(ChatFormat::kDeepSeekR1, {}));
  EXPECT_TRUE(starts(ChatFormat::kDeepSeekV32, true));
  EXPECT_FALSE(starts(ChatFormat::kDeepSeekV32, false));
  EXPECT_FALSE(starts(ChatFormat::kDeepSeekV32, {}));
  EXPECT_FALSE(starts(ChatFormat::kDeepSeekV3, {}));
}

TEST(Chat, StopIdsEndTheTurn) {
  const Tokenizer v3 = load("v3"), glm = load("glm"), kimi = load("kimi");
  EXPECT_EQ(ChatEncoder::create(ChatFormat::kDeepSeekV32, v3)->stop_ids(), std::vector<TokenId>{*v3.eos_id()});
  EXPECT_EQ(ChatEncoder::create(ChatFormat::kGlm47, glm)->stop_ids().size(), 3u);
  EXPECT_EQ(ChatEncoder::create(ChatFormat::kKimiK2, kimi)->stop_ids()[0], *kimi.added_token_id("<|im_end|>"));
}

}  // namespace
}  // namespace lantern
