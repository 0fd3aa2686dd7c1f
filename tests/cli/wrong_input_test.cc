// Everything that a user can get wrong ends in one sentence that names it, exit code 1, and nothing on stdout.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "process.h"

namespace lantern::test {
namespace {

// The needles must all stand in the one error line.
void expect_error(const Outcome& outcome, const std::vector<std::string>& needles, int exit_code = 1) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const std::string start = "lantern: error: ";
  const size_t at = outcome.err.find(start);
  ASSERT_NE(at, std::string::npos) << outcome.err;
  const std::string line = outcome.err.substr(at + start.size());
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_LT(line.size(), 600u) << line;
  EXPECT_GT(line.size(), 15u) << line;
  for (const std::string& needle : needles)
    EXPECT_NE(line.find(needle), std::string::npos) << needle << " not in: " << line;
}

Outcome generate(const std::string& model, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"generate", "--model", model, "--max-tokens", "1", "--temperature", "0"};
  const bool has_input = std::any_of(more.begin(), more.end(), [](const std::string& flag) {
    return flag == "--prompt" || flag == "--tokens" || flag == "--prompt-file";
  });
  if (!has_input) arguments.insert(arguments.end(), {"--prompt", "Question: What is 1 plus 1?"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_lantern(arguments);
}

TEST(WrongInputTest, AnUntouchedCopyWorks) {
  const ModelCopy model;
  const Outcome outcome = generate(model.path());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out, "");
}

TEST(WrongInputTest, ATruncatedShardIsNamed) {
  for (const size_t keep_thousandths : {0u, 1u, 500u, 999u}) {
    ModelCopy model;
    const std::string shard = model.shards().back();
    model.edit(shard, [&](std::string& bytes) { bytes.resize(bytes.size() / 1000 * keep_thousandths); });
    expect_error(generate(model.path()), {shard});
  }
  for (const size_t keep : {1u, 7u, 8u, 9u}) {
    ModelCopy model;
    const std::string shard = model.shards().front();
    model.edit(shard, [&](std::string& bytes) { bytes.resize(keep); });
    expect_error(generate(model.path()), {shard});
  }
}

TEST(WrongInputTest, ADamagedShardHeaderIsNamed) {
  const auto damage = [](const std::function<void(std::string&)>& change) {
    ModelCopy model;
    const std::string shard = model.shards().front();
    model.edit(shard, change);
    expect_error(generate(model.path()), {shard});
  };
  damage([](std::string& bytes) { std::memset(bytes.data(), 0xff, 8); });  // a header of 2^64 - 1 bytes
  damage([](std::string& bytes) { std::memset(bytes.data(), 0, 8); });     // of none
  damage([](std::string& bytes) { bytes[8] = '['; });                      // not an object
  damage([](std::string& bytes) { bytes.replace(bytes.find("\"BF16\""), 6, "\"BF17\""); });
  damage([](std::string& bytes) {  // offsets that end beyond the file
    const size_t at = bytes.find("data_offsets\":[") + std::strlen("data_offsets\":[");
    bytes[at] = '9';
  });
}

TEST(WrongInputTest, AMissingShardIsNamed) {
  ModelCopy model;
  const std::string shard = model.shards().front();
  model.remove(shard);
  expect_error(generate(model.path()), {shard});
}

TEST(WrongInputTest, AMissingIndexIsNamed) {
  ModelCopy model;
  model.remove("model.safetensors.index.json");
  expect_error(generate(model.path()), {"model.safetensors"});
}

TEST(WrongInputTest, ADamagedIndexIsNamed) {
  ModelCopy model;
  model.edit("model.safetensors.index.json", [](std::string& text) { text.resize(text.size() / 2); });
  expect_error(generate(model.path()), {"model.safetensors.index.json"});
}

TEST(WrongInputTest, AMissingTensorIsNamed) {
  ModelCopy model;
  const std::string index = model.read("model.safetensors.index.json");
  model.replace("model.safetensors.index.json", "\"model.norm.weight\"", "\"model.other.weight\"");
  expect_error(generate(model.path()), {"model.other.weight"});
  // Not in the index at all.
  const size_t begin = index.find("\"lm_head.weight\"");
  ASSERT_NE(begin, std::string::npos);
  model.write("model.safetensors.index.json",
              index.substr(0, begin) + index.substr(index.find('"', index.find(',', begin))));
  expect_error(generate(model.path()), {"lm_head.weight"});
}

TEST(WrongInputTest, AShapeThatDisagreesWithTheConfigIsNamed) {
  const std::pair<const char*, const char*> changes[] = {
      {"\"hidden_size\": 256", "\"hidden_size\": 320"},
      {"\"kv_lora_rank\": 512", "\"kv_lora_rank\": 256"},
      {"\"moe_intermediate_size\": 128", "\"moe_intermediate_size\": 64"},
      {"\"vocab_size\": 2048", "\"vocab_size\": 4096"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 8"},
      {"\"index_n_heads\": 8", "\"index_n_heads\": 16"},
  };
  for (const auto& [from, to] : changes) {
    ModelCopy model;
    model.replace("config.json", from, to);
    expect_error(generate(model.path()), {".weight"});
  }
}

TEST(WrongInputTest, MoreLayersThanTheCheckpointHolds) {
  ModelCopy model;
  model.replace("config.json", "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 7");
  expect_error(generate(model.path()), {"layers."});
}

TEST(WrongInputTest, AnUnknownArchitectureIsNamed) {
  ModelCopy model;
  model.replace("config.json", "DeepseekV32ForCausalLM", "LlamaForCausalLM");
  model.replace("config.json", "\"deepseek_v32\"", "\"llama\"");
  expect_error(generate(model.path()), {"config.json", "LlamaForCausalLM"});
}

TEST(WrongInputTest, ConfigValuesThatMakeNoSense) {
  const std::pair<const char*, const char*> changes[] = {
      {"\"hidden_size\": 256", "\"hidden_size\": -256"},
      {"\"hidden_size\": 256", "\"hidden_size\": 999999999999"},
      {"\"hidden_size\": 256", "\"hidden_size\": \"wide\""},
      {"\"num_hidden_layers\": 5", "\"num_hidden_layers\": 0"},
      {"\"n_group\": 4", "\"n_group\": 3"},
      {"\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9"},
      {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\""},
      {"\"qk_rope_head_dim\": 64", "\"qk_rope_head_dim\": 63"},
  };
  for (const auto& [from, to] : changes) {
    ModelCopy model;
    model.replace("config.json", from, to);
    expect_error(generate(model.path()), {});
  }
}

TEST(WrongInputTest, AConfigThatIsNoJson) {
  for (const char* text : {"", "{", "[]", "null", "{\"architectures\": [", "\xff\xfe"}) {
    ModelCopy model;
    model.write("config.json", text);
    expect_error(generate(model.path()), {"config.json"});
  }
  ModelCopy model;
  model.remove("config.json");
  expect_error(generate(model.path()), {"config.json"});
}

TEST(WrongInputTest, AnUnknownFieldIsRefusedWhenStrict) {
  ModelCopy model;
  model.replace("config.json", "\"hidden_act\"", "\"surprising_field\": 1, \"hidden_act\"");
  expect_error(generate(model.path(), {"--strict-config"}), {"surprising_field"});
  const Outcome lenient = generate(model.path());
  EXPECT_EQ(lenient.exit_code, 0) << lenient.err;
  EXPECT_NE(lenient.err.find("surprising_field"), std::string::npos) << lenient.err;
}

TEST(WrongInputTest, ACorruptTokenizerIsNamed) {
  const auto damage = [](const std::function<void(std::string&)>& change) {
    ModelCopy model;
    model.edit("tokenizer.json", change);
    expect_error(generate(model.path()), {"tokenizer.json"});
    expect_error(run_lantern({"tokenize", "--model", model.path(), "--text", "x"}), {"tokenizer.json"});
  };
  damage([](std::string& text) { text.clear(); });
  damage([](std::string& text) { text.resize(text.size() / 2); });
  damage([](std::string& text) { text = "[]"; });
  damage([](std::string& text) { text = "{}"; });
  damage([](std::string& text) { text.replace(text.find("\"BPE\""), 5, "\"WPM\""); });
  ModelCopy model;
  model.remove("tokenizer.json");
  expect_error(generate(model.path()), {"tokenizer.json"});
}

TEST(WrongInputTest, AnEmptyPrompt) {
  expect_error(generate(tiny_model(), {"--prompt", ""}), {"prompt is empty"});
  expect_error(generate(tiny_model(), {"--prompt-file", "/dev/null"}), {"prompt is empty"});
  expect_error(run_lantern({"generate", "--prompt-file", "-"}), {"prompt is empty"});
  expect_error(generate(tiny_model(), {"--tokens", "[]"}), {"--tokens"});
  expect_error(run_lantern({"score", "--text", ""}), {"text is empty"});
}

TEST(WrongInputTest, APromptLongerThanTheContext) {
  std::string ids = "0";
  for (int i = 0; i < 20; ++i) ids += ",17";
  expect_error(generate(tiny_model(), {"--tokens", ids, "--max-model-len", "16"}), {"21", "16"});
  expect_error(generate(tiny_model(), {"--tokens", ids, "--max-model-len", "21"}), {"21"});
  EXPECT_EQ(generate(tiny_model(), {"--tokens", ids, "--max-model-len", "22"}).exit_code, 0);
  expect_error(run_lantern({"score", "--tokens", ids, "--max-model-len", "20"}), {"21", "20"});
  for (int i = 0; i < 2100; ++i) ids += ",17";
  expect_error(generate(tiny_model(), {"--tokens", ids}), {"2121", "2048"});
}

TEST(WrongInputTest, TokenIdsOutsideTheVocabulary) {
  expect_error(generate(tiny_model(), {"--tokens", "0,2048"}), {"2048"});
  expect_error(generate(tiny_model(), {"--tokens", "0,-1"}), {"-1"});
  expect_error(generate(tiny_model(), {"--tokens", "0,x"}), {"'x'"});
  expect_error(generate(tiny_model(), {"--tokens", "99999999999"}), {"99999999999"});
  expect_error(run_lantern({"tokenize", "--decode", "0,5000"}), {"5000"});
  expect_error(run_lantern({"score", "--tokens", "0"}), {"two"});
}

TEST(WrongInputTest, PathsThatAreNotThere) {
  expect_error(generate("/nonexistent/model"), {"/nonexistent/model"});
  expect_error(generate(tiny_model() / "config.json"), {"config.json"});
  expect_error(generate(tiny_model(), {"--prompt-file", "/nonexistent/prompt"}), {"/nonexistent/prompt"});
  expect_error(generate(tiny_model(), {"--prompt-file", "/"}), {"/"});
  expect_error(run_lantern({"eval", "/nonexistent/task.jsonl"}), {"/nonexistent/task.jsonl"});
  expect_error(run_lantern({"inspect", "/nonexistent/model"}), {"/nonexistent/model"});
  expect_error(run_lantern({"quantize", "--model", "/nonexistent/model", "--output", "/tmp/never"}),
               {"/nonexistent/model"});
}

TEST(WrongInputTest, WhatIsNotSupportedIsNotPretended) {
  expect_error(generate(tiny_model(), {"--device", "cuda"}), {"cuda"});
  expect_error(generate(tiny_model(), {"--draft-tokens", "2"}), {"--draft-tokens"});
  expect_error(run_lantern({"bench", "step", "--dummy", "gpt-9"}), {"gpt-9"});
}

TEST(WrongInputTest, BadUsageIsExitCodeTwo) {
  expect_error(run_lantern({"generate", "--promt", "x"}), {"--promt", "did you mean '--prompt'"}, 2);
  expect_error(run_lantern({"generate"}), {"--prompt"}, 2);
  expect_error(run_lantern({"no-such-command"}), {"no-such-command"}, 2);
  expect_error(generate(tiny_model(), {"--top-p", "1.5"}), {"--top-p"}, 2);
}

}  // namespace
}  // namespace lantern::test
