// Everything that a user can get wrong ends in one sentence that names it, exit code 1 (2 where the command line alone
// shows it), and nothing on stdout.
#include <gtest/gtest.h>
#include <sys/stat.h>

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
  std::vector<std::string> arguments = {"generate", "--model", model, "--temperature", "0"};
  const auto has = [&](const char* flag) { return std::find(more.begin(), more.end(), flag) != more.end(); };
  if (!has("--max-tokens")) arguments.insert(arguments.end(), {"--max-tokens", "1"});
  if (!has("--prompt") && !has("--tokens") && !has("--prompt-file"))
    arguments.insert(arguments.end(), {"--prompt", "Question: What is 1 plus 1?"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_lantern(arguments);
}

// Whatever reads a checkpoint refuses it by one sentence.
void expect_refused(const ModelCopy& model, const std::vector<std::string>& needles) {
  const std::string target = model.path() + "_quantised";
  const Outcome generated = generate(model.path());
  expect_error(generated, needles);
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"score", "--model", model.path(), "--text", "1 plus 1"},
                                             {"inspect", model.path()},
                                             {"quantize", "--model", model.path(), "--output", target}}) {
    const Outcome outcome = run_lantern(arguments);
    expect_error(outcome, needles);
    EXPECT_EQ(outcome.err, generated.err) << arguments.front();
  }
  EXPECT_FALSE(std::filesystem::exists(target));
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
  expect_refused(model, {"model.safetensors.index.json is missing", model.shards().front()});
}

TEST(WrongInputTest, ADamagedIndexIsNamed) {
  ModelCopy model;
  model.edit("model.safetensors.index.json", [](std::string& text) { text.resize(text.size() / 2); });
  expect_refused(model, {"model.safetensors.index.json: not valid JSON at line ", "it ends too early"});
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
  expect_refused(model, {"lm_head.weight"});
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
    expect_refused(model, {".weight' has shape [", "but config.json calls for ["});
  }
}

TEST(WrongInputTest, MoreLayersThanTheCheckpointHolds) {
  ModelCopy model;
  model.replace("config.json", "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 7");
  expect_refused(model, {"holds no tensor 'model.layers."});
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

TEST(WrongInputTest, BrokenJsonIsNamedByFileAndPlace) {
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors.index.json", "tokenizer.json",
                           "tokenizer_config.json"}) {
    ModelCopy model;
    model.write(name, "{\n \"a\": 1,\n \"b\" 2}");
    expect_error(generate(model.path()),
                 {std::string(name) + ": not valid JSON at line 3, column 6, byte 16 of 18 (syntax error)"});
    model.write(name, "[]");
    expect_error(generate(model.path()), {name});
  }
}

TEST(WrongInputTest, AnUnknownFieldIsRefusedWhenStrict) {
  ModelCopy model;
  model.replace("config.json", "\"hidden_act\"", "\"surprising_field\": 1, \"hidden_act\"");
  expect_error(generate(model.path(), {"--strict-config"}), {"surprising_field"});
  const Outcome lenient = generate(model.path());
  EXPECT_EQ(lenient.exit_code, 0) << lenient.err;
  EXPECT_NE(lenient.err.find("surprising_field"), std::string::npos) << lenient.err;
  // A file cannot write to the terminal.
  model.replace("config.json", "surprising_field", "\\u001b[31mred");
  const Outcome red = generate(model.path());
  EXPECT_NE(red.err.find("?[31mred"), std::string::npos) << red.err;
  EXPECT_EQ(red.err.find('\x1b'), std::string::npos) << red.err;
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
  expect_error(generate(tiny_model(), {"--tokens", "[]"}), {"--tokens"}, 2);
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
  expect_error(generate(tiny_model(), {"--tokens", "0,-1"}), {"-1"}, 2);
  expect_error(generate(tiny_model(), {"--tokens", "99999999999"}), {"99999999999"}, 2);
  expect_error(run_lantern({"tokenize", "--decode", "0,5000"}), {"5000"});
  expect_error(run_lantern({"score", "--tokens", "0"}), {"two"});
}

TEST(WrongInputTest, PathsThatAreNotThere) {
  const std::string task = (tiny_model() / "eval" / "copysort.jsonl").string();
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"generate", "--prompt", "x"},
                                             {"score", "--text", "x"},
                                             {"tokenize", "--text", "x"},
                                             {"chat"},
                                             {"eval", task},
                                             {"serve", "--port", "0"},
                                             {"run-batch", "-i", task, "-o", "/dev/null"},
                                             {"bench", "step", "--quiet"},
                                             {"bench", "throughput", "--quiet"},
                                             {"bench", "latency", "--quiet"}}) {
    const auto with = [&](const std::string& model) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"--model", model});
      return run_lantern(arguments);
    };
    expect_error(with("/nonexistent/model"), {"/nonexistent/model does not exist"});
    expect_error(with(tiny_model() / "config.json"), {"config.json is a file"});
  }
  expect_error(generate(tiny_model(), {"--prompt-file", "/nonexistent/prompt"}), {"/nonexistent/prompt"});
  expect_error(generate(tiny_model(), {"--prompt-file", "/"}), {"/"});
  expect_error(run_lantern({"eval", "/nonexistent/task.jsonl"}), {"/nonexistent/task.jsonl"});
  expect_error(run_lantern({"inspect", "/nonexistent/model"}), {"/nonexistent/model"});
  expect_error(run_lantern({"inspect", "glm47flash"}), {"glm47flash does not exist", "there are", "glm47-flash"});
  expect_error(run_lantern({"quantize", "--model", "/nonexistent/model", "--output", "/tmp/never"}),
               {"/nonexistent/model"});
}

TEST(WrongInputTest, MoreTokensThanTheContextHas) {
  expect_error(generate(tiny_model(), {"--tokens", "0,17", "--max-tokens", "999999999"}),
               {"--max-tokens 999999999", "2046", "2048"});
  expect_error(generate(tiny_model(), {"--tokens", "0,17", "--max-tokens", "15", "--max-model-len", "16"}),
               {"--max-tokens 15", "14", "16"});
  EXPECT_EQ(generate(tiny_model(), {"--tokens", "0,17", "--max-tokens", "14", "--max-model-len", "16"}).exit_code, 0);
  expect_error(run_lantern({"generate", "--tokens", "0,17", "--min-tokens", "15", "--max-model-len", "16"}),
               {"--min-tokens 15", "14", "16"});
  expect_error(run_lantern({"chat", "--max-tokens", "17", "--max-model-len", "16"}), {"--max-tokens 17", "16"});
  expect_error(generate(tiny_model(), {"--tokens", "0,17", "--max-tokens", "15", "--max-model-len", "2"}),
               {"the prompt has 2 tokens"});
  // What the context cuts off is said where it is no error.
  RunOptions options;
  options.input = "Hello\n";
  const Outcome chat = run_lantern({"chat", "--temperature", "0", "--max-model-len", "12", "--quiet"}, options);
  EXPECT_NE(chat.err.find("the context is full"), std::string::npos) << chat.err;
  const Outcome task = run_lantern({"eval", (tiny_model() / "eval" / "arithmetic.jsonl").string(), "--limit", "1",
                                    "--max-model-len", "64", "--quiet"});
  EXPECT_NE(task.err.find("1 answers ended where the context of 64 tokens was full"), std::string::npos) << task.err;
}

TEST(WrongInputTest, MessagesNameTheCommandsOwnFlags) {
  const auto without = [](const Outcome& outcome, const std::vector<std::string>& foreign) {
    for (const std::string& name : foreign) EXPECT_EQ(outcome.err.find(name), std::string::npos) << outcome.err;
  };
  const Outcome context = generate(tiny_model(), {"--max-model-len", "100K"});
  expect_error(context, {"102400", "2048", "--max-model-len"});
  without(context, {"--context", "--prefill", "max_model_len"});
  const Outcome step = run_lantern({"bench", "step", "--model", tiny_model(), "--context", "100K", "--quiet"});
  expect_error(step, {"2048", "--context or --prefill"});
  without(step, {"--max-model-len", "max_model_len"});
  const Outcome cache =
      run_lantern({"bench", "throughput", "--model", tiny_model(), "--kv-cache-memory", "1", "--quiet"});
  expect_error(cache, {"lower --max-model-len or raise --kv-cache-memory"}, 3);
  without(cache, {"kv_cache_bytes", "max_model_len"});
  expect_error(run_lantern({"bench", "throughput", "--max-num-batched-tokens", "1", "--draft-tokens", "3", "--quiet"}),
               {"--max-num-batched-tokens is 1", "--max-num-seqs 64"});
}

TEST(WrongInputTest, AFileWithoutEnd) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"generate", "--prompt-file", "/dev/zero"}, {"plan", "--input", "/dev/zero"}, {"eval", "/dev/zero"}}) {
    expect_error(run_lantern(arguments), {"/dev/zero has more than"});
  }
}

TEST(WrongInputTest, APipeInPlaceOfAShard) {
  ModelCopy model;
  const std::string shard = model.shards().front();
  model.remove(shard);
  ASSERT_EQ(mkfifo((model.path() + "/" + shard).c_str(), 0600), 0);
  expect_error(generate(model.path()), {shard, "not a regular file"});
}

TEST(WrongInputTest, SizesThatNoOperatorHas) {
  ModelCopy model;
  model.replace("config.json", "\"n_routed_experts\": 8", "\"n_routed_experts\": 2048");
  expect_error(generate(model.path()), {"'n_routed_experts' is 2048; expected an integer from 0 to 1024"});
  ModelCopy wide;
  wide.replace("config.json", "\"index_head_dim\": 128", "\"index_head_dim\": 2048");
  expect_error(run_lantern({"inspect", wide.path()}), {"'index_head_dim' is 2048"});
}

TEST(WrongInputTest, AContextThatNoCacheCanNumber) {
  ModelCopy model;
  model.replace("config.json", "\"max_position_embeddings\": 2048", "\"max_position_embeddings\": 2147483647");
  expect_error(generate(model.path(), {"--max-model-len", "2147483647"}), {"--max-model-len", "2147483520"});
  expect_error(generate(model.path(), {"--max-model-len", "2147483520"}), {"GiB"}, 3);
  const Outcome bench = run_lantern({"bench", "step", "--model", tiny_model(), "--context", "2147483647", "--quiet"});
  expect_error(bench, {"2147483647", "--context", "2048"});
}

TEST(WrongInputTest, SamplingSettingsOfTheCheckpoint) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"top_k": 1e300})", "top_k"},   {R"({"top_k": 4294967297})", "top_k 4294967297"},
      {R"({"top_k": 1.5})", "top_k 1.5"}, {R"({"top_k": "many"})", "top_k"},
      {R"({"top_p": 2})", "top_p 2"},     {R"({"temperature": -1})", "temperature -1"},
  };
  for (const auto& [text, needle] : cases) {
    ModelCopy model;
    model.write("generation_config.json", text);
    expect_error(run_lantern({"generate", "--model", model.path(), "--prompt", "x", "--max-tokens", "1"}), {needle});
  }
}

TEST(WrongInputTest, AModelWhoseLogitsAreNoNumbers) {
  ModelCopy model;
  model.make_nan("model.norm.weight");
  expect_error(generate(model.path()), {"output token 0"});
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{{}, {"--json"}}) {
    std::vector<std::string> score = {"score", "--model", model.path(), "--text", "1 plus 1"};
    score.insert(score.end(), more.begin(), more.end());
    expect_error(run_lantern(score), {"no number as the log-probability of token 1"});
  }
  const Outcome task = run_lantern(
      {"eval", (tiny_model() / "eval" / "copysort.jsonl").string(), "--limit", "1", "--model", model.path()});
  expect_error(task, {"output token 0"});
}

TEST(WrongInputTest, AFullDiskIsNotPassedOver) {
  RunOptions options;
  options.output_path = "/dev/full";
  const std::string tiny = tiny_model().string();
  const std::string plan_case = LANTERN_SOURCE_DIR "/tests/plan/cases/mixed_decode.json";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"generate", "--prompt", "x", "--max-tokens", "2", "--temperature", "0"},
           {"generate", "--prompt", "x", "--max-tokens", "2", "--temperature", "0", "--json"},
           {"score", "--text", "hello", "--json"},
           {"tokenize", "--text", "hello"},
           {"inspect", tiny},
           {"eval", tiny + "/eval/copysort.jsonl", "--limit", "1"},
           {"plan", "--input", plan_case, "--device", "cpu"},
           {"help", "generate"},
           {"--help"}}) {
    expect_error(run_lantern(arguments, options), {"standard output cannot be written: No space left on device"});
  }
}

TEST(WrongInputTest, ThreadsThatTheSystemRefuses) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // they reserve more than any such limit
  GTEST_SKIP() << "a sanitizer needs more addresses than the limit leaves";
#endif
  RunOptions options;
  options.most_memory_bytes = 200u << 20;
  expect_error(run_lantern({"generate", "--prompt", "x", "--threads", "1000"}, options), {"--threads"}, 3);
}

TEST(WrongInputTest, AClosedOutputIsNoFileThatIsOpenedNext) {
  const std::string items = std::filesystem::temp_directory_path() / "lantern_closed_output.out";
  RunOptions options;
  options.close_standard_output = true;
  const Outcome task = run_lantern(
      {"eval", (tiny_model() / "eval" / "copysort.jsonl").string(), "--limit", "1", "--quiet", "--output", items},
      options);
  expect_error(task, {"standard output cannot be written"});
  const std::string written = read_file(items);
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 1) << written;
  std::filesystem::remove(items);
  expect_error(run_lantern({"help"}, options), {"standard output cannot be written"});
}

// The least and the most that a setting allows must not break what it goes into.
TEST(WrongInputTest, SizesAtTheirBounds) {
  EXPECT_EQ(run_lantern({"bench", "memory", "--size", "2Mi", "--repetitions", "1"}).exit_code, 0);
  expect_error(run_lantern({"bench", "memory", "--size", "1Mi"}), {"--size must be at least 2097152"}, 2);
  expect_error(run_lantern({"bench", "latency", "--requests", "65536", "--repetitions", "2147483647"}),
               {"--requests", "--repetitions", "10000000"}, 2);
  const char* const most = "2147483647";
  expect_error(
      run_lantern({"bench", "throughput", "--dummy", "glm47-flash", "--input-len", most, "--output-len", most}),
      {"--input-len must be at least 1 and at most 16777216"}, 2);
}

TEST(WrongInputTest, CtrlCEndsWhatNobodyWatches) {
  RunOptions options;
  options.interrupt_after_output_bytes = 0;  // once it says that it is loading
  const Outcome outcome =
      run_lantern({"bench", "step", "--model", tiny_model(), "--repetitions", "2000000000", "--prefill", "0"}, options);
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
}

TEST(WrongInputTest, WhatIsNotSupportedIsNotPretended) {
  expect_error(generate(tiny_model(), {"--device", "cuda"}), {"cuda"});
  expect_error(generate(tiny_model(), {"--draft-tokens", "9"}), {"--draft-tokens", "8"}, 2);
  expect_error(run_lantern({"bench", "step", "--dummy", "gpt-9"}), {"gpt-9"}, 2);
}

TEST(WrongInputTest, RulesForTokensSayWhatIsWrongWithThem) {
  for (const char* bias : {"17", "17=", "=1", "x=1", "17=nan", "-1=1", "17=1=2", "99999999999=1"}) {
    expect_error(generate(tiny_model(), {"--logit-bias", bias}), {"--logit-bias", bias, "17=-2.5"}, 2);
  }
  expect_error(generate(tiny_model(), {"--logit-bias", "100000000=1"}), {"--logit-bias", "100000000", "vocabulary"});
  expect_error(generate(tiny_model(), {"--stop-token-ids", "100000000"}), {"--stop-token-ids", "vocabulary"});
}

TEST(WrongInputTest, BadUsageIsExitCodeTwo) {
  expect_error(run_lantern({"generate", "--promt", "x"}), {"--promt", "did you mean '--prompt'"}, 2);
  expect_error(run_lantern({"generate"}), {"--prompt"}, 2);
  expect_error(run_lantern({"no-such-command"}), {"no-such-command"}, 2);
  expect_error(generate(tiny_model(), {"--top-p", "1.5"}), {"--top-p"}, 2);
  expect_error(generate(tiny_model(), {"--repetition-penalty", "0"}), {"--repetition-penalty must be above 0"}, 2);
  expect_error(generate(tiny_model(), {"--presence-penalty", "nan"}), {"--presence-penalty"}, 2);
  expect_error(generate(tiny_model(), {"--frequency-penalty", "-2.5"}), {"--frequency-penalty"}, 2);
}

}  // namespace
}  // namespace lantern::test
