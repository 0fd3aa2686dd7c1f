#include "cli/settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "cli/command.h"

namespace lantern::cli {
namespace {

Invocation parse(std::vector<std::string> arguments) { return parse_command_line(arguments); }

TEST(SizeTest, SuffixesAreReadAsVllmReadsThem) {
  const std::pair<const char*, int64_t> cases[] = {
      {"0", 0},        {"17", 17},        {"32k", 32'000},   {"32K", 32'768},    {"32Ki", 32'768},
      {"1.5k", 1'500}, {"2m", 2'000'000}, {"2M", 2'097'152}, {"2Mi", 2'097'152}, {"1g", 1'000'000'000},
      {"1G", 1 << 30}, {"1Gi", 1 << 30},  {"0.5K", 512},
  };
  for (const auto& [text, value] : cases) {
    const Result<int64_t> size = parse_size(text);
    ASSERT_TRUE(size.ok()) << text;
    EXPECT_EQ(*size, value) << text;
  }
  for (const char* text :
       {"", "k", "-1", "1.5", "1 k", "1kk", "0x10", "1e3", "99999999999999999999", "9999999999G", "1.2.3k"}) {
    EXPECT_FALSE(parse_size(text).ok()) << text;
  }
}

TEST(RegistryTest, NamesAndAliasesAreUnique) {
  std::set<std::string> seen = {"-h"};
  for (const Setting& setting : all_settings()) {
    EXPECT_TRUE(seen.insert(std::string(setting.name)).second) << setting.name;
    EXPECT_FALSE(setting.help.empty()) << setting.name;
    EXPECT_EQ(setting.help.find('\n'), std::string_view::npos) << setting.name;
    if (!setting.default_value.empty()) {
      EXPECT_TRUE(check_value(setting, setting.name, setting.default_value).ok()) << setting.name;
    }
    for (const std::string_view alias : alias_flags(setting)) {
      EXPECT_TRUE(seen.insert(std::string(alias)).second) << alias;
    }
  }
}

TEST(RegistryTest, EveryCommandParsesItsExampleAndHelps) {
  for (const Command& command : all_commands()) {
    for (const SettingUse& use : settings_of(command)) find_setting(use.name);  // CHECKs
    const Invocation help = parse({std::string(command.name.substr(0, command.name.find(' '))),
                                   command.name.find(' ') == std::string_view::npos
                                       ? "--help"
                                       : std::string(command.name.substr(command.name.find(' ') + 1)),
                                   "--help"});
    EXPECT_EQ(help.exit_code, kSuccess);
    EXPECT_NE(help.text.find(command.summary), std::string::npos);
    EXPECT_NE(help_markdown().find(command.example), std::string::npos);
  }
}

TEST(CommandLineTest, DashesAndUnderscoresAreTheSame) {
  for (const char* flag : {"--max-tokens", "--max_tokens", "-n"}) {
    const Invocation invocation = parse({"generate", "--prompt", "x", flag, "2k"});
    ASSERT_NE(invocation.command, nullptr) << invocation.text;
    EXPECT_EQ(invocation.values.integer("max-tokens"), 2000) << flag;
  }
  for (const char* flag : {"--max-model-len=4Ki", "--max_model_len=4Ki", "--ctx-size=4Ki", "--ctx_size=4Ki"}) {
    const Invocation invocation = parse({"generate", "--prompt", "x", flag});
    ASSERT_NE(invocation.command, nullptr) << invocation.text;
    EXPECT_EQ(invocation.values.integer("max-model-len"), 4096) << flag;
  }
}

TEST(CommandLineTest, SwitchesHaveTwins) {
  const auto eos = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"generate", "--prompt", "x"});
    const Invocation invocation = parse(flags);
    EXPECT_NE(invocation.command, nullptr) << invocation.text;
    return std::pair(invocation.values.is_on("ignore-eos"), invocation.values.is_on("bos"));
  };
  EXPECT_EQ(eos({}), std::pair(false, true));
  EXPECT_EQ(eos({"--ignore-eos", "--no-bos"}), std::pair(true, false));
  EXPECT_EQ(eos({"--no_ignore_eos", "--bos"}), std::pair(false, true));
}

// A value that the setting takes.
std::string some_value(const SettingUse& use) {
  const Setting& setting = find_setting(use.name);
  const std::string_view by_default = use.default_value.value_or(setting.default_value);
  if (!by_default.empty()) return std::string(by_default);
  if (!setting.choices.empty()) return std::string(setting.choices.substr(0, setting.choices.find('|')));
  for (const char* value : {"x", "1", "1=1", "ttft:1", "glm47-flash"}) {
    if (check_value(setting, "", value).ok()) return value;
  }
  ADD_FAILURE() << "what does --" << setting.name << " take?";
  return "";
}

// Whatever a command takes and is no list is refused where it comes twice, by whatever name.
TEST(CommandLineTest, AFlagIsGivenOnce) {
  for (const Command& command : all_commands()) {
    for (const SettingUse& use : settings_of(command)) {
      const Setting& setting = find_setting(use.name);
      std::vector<std::string> arguments;
      for (std::string_view words = command.name; !words.empty();) {
        const size_t space = std::min(words.find(' '), words.size());
        arguments.emplace_back(words.substr(0, space));
        words.remove_prefix(std::min(space + 1, words.size()));
      }
      std::vector<std::string> names = {"--" + std::string(setting.name), "--" + std::string(setting.name)};
      if (setting.type == SettingType::kSwitch) names[1] = "--no-" + std::string(setting.name);
      if (!setting.aliases.empty()) names[0] = setting.aliases.substr(0, setting.aliases.find(' '));
      for (const std::string& name : names) {
        arguments.push_back(name);
        if (setting.type != SettingType::kSwitch) arguments.push_back(some_value(use));
      }
      const Invocation invocation = parse(arguments);
      const bool refused =
          invocation.text.find("--" + std::string(setting.name) + " is given 2 times") != std::string::npos;
      EXPECT_EQ(refused, !setting.repeatable) << command.name << " --" << setting.name << ": " << invocation.text;
      EXPECT_TRUE(!refused || invocation.exit_code == kBadUsage);
    }
  }
}

// A path or name that is empty is a variable of a script that was not set; only text to work on may be.
TEST(CommandLineTest, NamesAndPathsAreNotEmpty) {
  const std::set<std::string_view> text_to_work_on = {"prompt", "text", "system"};
  for (const Setting& setting : all_settings()) {
    const bool taken = check_value(setting, "--x", "").ok();
    EXPECT_EQ(taken, text_to_work_on.contains(setting.name)) << setting.name;
  }
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"generate", "--prompt", "x", "--model", ""}, "error: --model is empty"},
      {{"generate", "--prompt", "x", "--model="}, "error: --model needs a value"},
      {{"generate", "--prompt", "x", "--stop", ""}, "error: --stop is empty"},
      {{"serve", ""}, "error: MODEL is empty"},
      {{"inspect", ""}, "error: MODEL is empty"},
      {{"eval", ""}, "error: TASK.jsonl is empty"},
      {{"serve", "--served-model-name", "a", "--served-model-name", ""}, "error: --served-model-name is empty"},
      {{"serve", "--api-key", " ,"}, "error: --api-key: the list has no key"},
      {{"serve", "--config", ""}, "error: --config is empty"},
      {{"run-batch", "-i", "", "-o", "x"}, "error: --input is empty"},
      {{"run-batch", "-i", "-", "-o", "-"}, "error: --output: '-' is no file"},
  };
  for (const auto& [arguments, message] : cases) {
    const Invocation invocation = parse(arguments);
    EXPECT_EQ(invocation.command, nullptr) << message;
    EXPECT_EQ(invocation.exit_code, kBadUsage) << message;
    EXPECT_NE(invocation.text.find(message), std::string::npos) << invocation.text;
  }
}

TEST(CommandLineTest, ValuesMayLookLikeFlags) {
  const Invocation invocation =
      parse({"generate", "--prompt", "--max_tokens", "--stop", "-1", "--stop", "a,b", "--temperature", "0"});
  ASSERT_NE(invocation.command, nullptr) << invocation.text;
  EXPECT_EQ(invocation.values.text("prompt"), "--max_tokens");
  EXPECT_EQ(invocation.values.list("stop"), (std::vector<std::string>{"-1", "a,b"}));
  EXPECT_TRUE(invocation.values.given("temperature"));
  EXPECT_FALSE(invocation.values.given("top-p"));
}

TEST(CommandLineTest, AnEmptyValueIsAValue) {
  const Invocation invocation = parse({"generate", "--prompt", ""});
  ASSERT_NE(invocation.command, nullptr) << invocation.text;
  EXPECT_TRUE(invocation.values.given("prompt"));
  EXPECT_EQ(invocation.values.text("prompt"), "");
}

TEST(CommandLineTest, BadUsageSaysWhatWasMeant) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"generate", "--promt", "x"}, "unknown flag '--promt', did you mean '--prompt'?"},
      {{"generate", "--prompt", "x", "--max-token=3"}, "did you mean '--max-tokens'?"},
      {{"generate", "--prompt", "x", "--frobnicate"}, "unknown flag '--frobnicate'; see lantern generate --help"},
      {{"generate", "--prompt", "x", "extra"}, "unexpected argument 'extra'"},
      {{"generate", "--prompt", "x", "--context-lenght=5"}, "did you mean '--context-length'?"},
      {{"genrate"}, "unknown command 'genrate', did you mean 'generate'?"},
      {{"bench", "stp"}, "unknown command 'bench stp', did you mean 'bench step'?"},
      {{"--versoin"}, "unknown flag '--versoin', did you mean '--version'?"},
      {{"--serve"}, "unknown flag '--serve'; see lantern --help"},
      {{"bench"},
       "'bench' needs a second word: bench step or bench throughput or bench latency or bench serve or bench memory"},
      {{"generate"}, "needs exactly one of --prompt, --prompt-file, --tokens, and 0 were given"},
      {{"generate", "--prompt", "x", "--tokens", "1"}, "and 2 were given"},
      {{"generate", "--prompt", "x", "--top-p", "0"}, "--top-p must be above 0 and at most 1, not 0"},
      {{"generate", "--prompt", "x", "--top-p", "1e-60"}, "--top-p must be above 0 and at most 1, not 1e-60"},
      {{"generate", "--prompt", "x", "--temperature", "nan"}, "--temperature: 'nan' is not a number"},
      {{"generate", "--prompt", "x", "--temperature", "-1"}, "--temperature must be at least 0"},
      {{"generate", "--prompt", "x", "--device", "tpu"}, "--device must be one of auto|cpu|cuda, not 'tpu'"},
      {{"generate", "--prompt", "x", "--max-tokens", "12x"}, "--max-tokens: 'x' is no size suffix"},
      {{"generate", "--prompt", "x", "--max-tokens", "-5"}, "--max-tokens: '-5' is not a number of 0 or more"},
      {{"generate", "--prompt", "x", "--max-tokens", ""}, "--max-tokens: '' is not a number of 0 or more"},
      {{"generate", "--prompt"}, "error: --prompt needs a value; see"},
      {{"eval"}, "lantern eval needs TASK.jsonl"},
      {{"eval", "a", "b"}, "unexpected argument 'b'"},
      {{"quantize"}, "lantern quantize needs --output"},
      {{"generate", "--tokens", "1,,2"}, "--tokens: a token id is missing, at character 3"},
      {{"tokenize", "--decode", "[1,2"}, "--decode: the list ends without its ], at character 5"},
      {{"generate", "--prompt", "x", "--stop-token-ids", "1,two"}, "--stop-token-ids: 'two' is not a token id"},
      {{"generate", "--prompt", "x", "--logit-bias", "5=500"}, "--logit-bias: a bias is a number from -100 to 100"},
      {{"generate", "--prompt", "x", "--logit-bias", "5=1", "--logit-bias", "5=2"}, "--logit-bias has token 5 twice"},
      {{"generate", "--prompt", "x", "--bad-words", "  "}, "--bad-words: '  ' has no text"},
      {{"generate", "--prompt", "x", "--min-tokens", "9", "--max-tokens", "8"},
       "--min-tokens is 9, above --max-tokens, which is 8"},
      {{"chat", "--url", "http://x", "--model", "y"}, "--model is for a model in this process"},
      {{"chat", "--served-model-name", "x"}, "--served-model-name is for a server; name it with --url"},
      {{"chat", "--chat-format", "x"}, "--chat-format: \"x\" is no chat format"},
      {{"serve", "a", "--model", "b"}, "the model is 'a' and also --model 'b'"},
      {{"serve", "--otlp-traces-endpoint", "ftp://x"}, "--otlp-traces-endpoint: 'ftp://x' is no http URL"},
      {{"top", "--url", "http://x:99999"}, "--url: "},
      {{"run-batch", "-i", "x"}, "lantern run-batch needs --input FILE and --output FILE"},
      {{"bench", "step", "--dummy", "gpt-9"}, "--dummy: 'gpt-9' is not a built-in shape"},
      {{"bench", "step", "--dummy", "glm47-flash", "--layers", "99"}, "--layers must be at most 47"},
      {{"bench", "step", "--model", "x", "--layers", "1"}, "--layers and --weights go with --dummy only"},
      {{"bench", "step", "--model", "x", "--graphs", "verify"}, "--graphs verify runs every step several times"},
      {{"bench", "throughput", "--dummy", "glm47-flash", "--model", "x"}, "--dummy and --model both name"},
      {{"bench", "latency", "--dummy", "glm47-flash", "--prompts", "x"}, "--prompts needs a model with a tokenizer"},
      {{"bench", "throughput", "--synthetic-acceptance", "0.5"}, "goes with --draft-tokens only"},
      {{"bench", "serve", "--request-rate", "0"}, "--request-rate: '0' is not a number above 0"},
      {{"bench", "serve", "--goodput", "foo:3"}, "--goodput: 'foo:3' is none of"},
      {{"bench", "serve", "--goodput", "ttft:1", "--goodput", "ttft:2"}, "--goodput: ttft has two limits"},
      {{"bench", "serve", "--prompts", "x", "--dataset-name", "chat"}, "--prompts and --dataset-name both say"},
      {{"bench", "kernels", "--json", "--markdown"}, "--json and --markdown are two forms"},
      {{"help", "foo"}, "there is no command 'foo'"},
      {{"help", "generate", "--man"}, "give one of them"},
      {{"completion", "fish"}, "there is no completion for 'fish'"},
  };
  for (const auto& [arguments, message] : cases) {
    const Invocation invocation = parse(arguments);
    EXPECT_EQ(invocation.command, nullptr) << message;
    EXPECT_EQ(invocation.exit_code, kBadUsage) << message;
    EXPECT_NE(invocation.text.find(message), std::string::npos) << invocation.text;
    EXPECT_EQ(std::count(invocation.text.begin(), invocation.text.end(), '\n'), 1) << invocation.text;
  }
}

TEST(CommandLineTest, TheEnvironmentCountsWhereTheCommandLineIsSilent) {
  ASSERT_EQ(setenv("LANTERN_MAX_MODEL_LEN", "3k", 1), 0);
  ASSERT_EQ(setenv("LANTERN_PROMPT", "not a setting of the environment", 1), 0);
  EXPECT_EQ(parse({"generate", "--prompt", "x"}).values.integer("max-model-len"), 3000);
  EXPECT_EQ(parse({"generate", "--prompt", "x", "-c", "5"}).values.integer("max-model-len"), 5);
  EXPECT_TRUE(parse({"generate", "--prompt", "x"}).values.given("max-model-len"));
  EXPECT_EQ(parse({"generate", "--prompt", "x"}).values.origin("max-model-len"), Values::Origin::kEnvironment);
  EXPECT_EQ(parse({"generate", "--prompt", "x", "-c", "5"}).values.origin("max-model-len"),
            Values::Origin::kCommandLine);
  EXPECT_EQ(parse({"generate"}).exit_code, kBadUsage);
  ASSERT_EQ(setenv("LANTERN_MAX_MODEL_LEN", "", 1), 0);
  EXPECT_FALSE(parse({"generate", "--prompt", "x"}).values.given("max-model-len"));
  ASSERT_EQ(setenv("LANTERN_MAX_MODEL_LEN", "long", 1), 0);
  EXPECT_NE(parse({"generate", "--prompt", "x"}).text.find("LANTERN_MAX_MODEL_LEN"), std::string::npos);
  unsetenv("LANTERN_MAX_MODEL_LEN");
  unsetenv("LANTERN_PROMPT");
  // A flag wins over what the environment says of another of which one is needed.
  ASSERT_EQ(setenv("LANTERN_MODEL", "/models/x", 1), 0);
  EXPECT_NE(parse({"bench", "step", "--dummy", "glm47-flash"}).command, nullptr);
  EXPECT_NE(parse({"bench", "step"}).command, nullptr);
  unsetenv("LANTERN_MODEL");
  // A name of a model at a server is no folder.
  ASSERT_EQ(setenv("LANTERN_MODEL", "/models/x", 1), 0);
  EXPECT_EQ(parse({"generate", "--prompt", "x"}).values.text("model"), "/models/x");
  EXPECT_EQ(parse({"bench", "serve"}).values.text("model"), "");
  EXPECT_EQ(parse({"bench", "serve", "--help"}).text.find("LANTERN_MODEL"), std::string::npos);
  unsetenv("LANTERN_MODEL");
}

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest()
      : path_(std::filesystem::temp_directory_path() / ("lantern_config_" + std::to_string(getpid()) + ".yaml")) {}
  ~ConfigTest() override { std::filesystem::remove(path_); }

  Invocation serve(const std::string& text, std::vector<std::string> flags = {}) const {
    std::ofstream(path_) << text;
    flags.insert(flags.begin(), {"serve", "--config", path_.string()});
    return parse(flags);
  }

  std::filesystem::path path_;
};

TEST_F(ConfigTest, AFileSaysWhatTheCommandLineAndTheEnvironmentDoNot) {
  const std::string good = "# what this machine serves\nport: 9000\nmax_model_len: 1k  # as vLLM names it\n";
  const Invocation file = serve(good + "served-model-name:\n  - a\n  - b\naccess-log: false\nhost: '::1'\n");
  ASSERT_NE(file.command, nullptr) << file.text;
  EXPECT_EQ(file.values.integer("port"), 9000);
  EXPECT_EQ(file.values.integer("max-model-len"), 1000);
  EXPECT_EQ(file.values.list("served-model-name"), (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(file.values.is_on("access-log"));
  EXPECT_EQ(file.values.text("host"), "::1");
  EXPECT_EQ(file.values.origin("port"), Values::Origin::kConfigFile);
  EXPECT_TRUE(file.values.given("port"));

  ASSERT_EQ(setenv("LANTERN_MAX_MODEL_LEN", "3k", 1), 0);
  const Invocation all = serve(good, {"--port", "7"});
  unsetenv("LANTERN_MAX_MODEL_LEN");
  EXPECT_EQ(all.values.integer("port"), 7) << "flags win";
  EXPECT_EQ(all.values.integer("max-model-len"), 3000) << "so does the environment";
  EXPECT_EQ(all.values.origin("max-model-len"), Values::Origin::kEnvironment);
  EXPECT_EQ(serve("ctx-size: 5\n").values.integer("max-model-len"), 5) << "further names of flags";
  EXPECT_EQ(serve("\n# nothing\n").values.origin("port"), Values::Origin::kDefault);

  std::ofstream(path_) << "port: 9001\n";
  ASSERT_EQ(setenv("LANTERN_CONFIG", path_.c_str(), 1), 0);
  EXPECT_EQ(parse({"serve"}).values.integer("port"), 9001);
  unsetenv("LANTERN_CONFIG");
}

// Every setting that serve has can stand in a file by its name, with its default as the value.
TEST_F(ConfigTest, EveryFlagHasItsName) {
  for (const Command& command : all_commands()) {
    if (command.name != "serve") continue;
    std::string text;
    for (const SettingUse& use : settings_of(command)) {
      if (use.name == "config") continue;
      const Setting& setting = find_setting(use.name);
      std::string value(use.default_value.value_or(setting.default_value));
      if (setting.type == SettingType::kSwitch && value.empty()) value = "false";
      if (value.empty() && (setting.type == SettingType::kText || setting.type == SettingType::kPath)) value = "x";
      if (!setting.choices.empty()) value = setting.choices.substr(0, setting.choices.find('|'));
      if (value.empty()) value = "1";
      text += std::string(setting.name) + ": '" + value + "'\n";
    }
    const Invocation invocation = serve(text);
    ASSERT_NE(invocation.command, nullptr) << invocation.text;
    for (const SettingUse& use : settings_of(command)) {
      if (use.name != "config") {
        EXPECT_EQ(invocation.values.origin(use.name), Values::Origin::kConfigFile) << use.name;
      }
    }
  }
}

TEST_F(ConfigTest, WhatIsWrongIsNamedByItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"port: 1\nprot: 2\n", "line 2: lantern serve has no setting 'prot', did you mean 'port'?"},
      {"temperature: 1\n", "line 1: lantern serve has no setting 'temperature'"},
      {"config: other.yaml\n", "line 1: lantern serve has no setting 'config'"},
      {"port: -1\n", "line 1: port must be at least 0"},
      {"\nport: x\n", "line 2: port: 'x' is not a whole number"},
      {"quiet: yes\n", "line 1: quiet must be true or false, not 'yes'"},
      {"log-format: no\n", "line 1: log-format must be one of"},
      {"port: [1, 2]\n", "line 1: port takes one value, not a list"},
      {"served-model-name: []\n", "line 1: served-model-name is a list of nothing"},
      {"api-key: ''\n", "line 1: api-key is empty"},
      {"chat-format: gpt\n", "line 1: chat-format: \"gpt\" is no chat format"},
      {"max-model-len: 1\nctx-size: 2\n", "line 2: ctx-size is max-model-len, which is there already"},
      {"port\n", "line 1: a line is \"name: value\""},
  };
  for (const auto& [text, message] : cases) {
    const Invocation invocation = serve(text);
    EXPECT_EQ(invocation.command, nullptr) << text;
    EXPECT_EQ(invocation.exit_code, kBadUsage);
    EXPECT_NE(invocation.text.find(path_.string() + ": " + message), std::string::npos) << invocation.text;
  }
  const Invocation missing = parse({"serve", "--config", "/nowhere.yaml"});
  EXPECT_EQ(missing.command, nullptr);
  EXPECT_NE(missing.text.find("/nowhere.yaml"), std::string::npos) << missing.text;
}

}  // namespace
}  // namespace lantern::cli
