// A token whose embedding is no number: requests that have it fail, each alone, and whatever shared a step, a batch of
// experts or a block of the caches with them is as if they had not been there.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "engine/load_engine.h"
#include "engine_run.h"
#include "model/safetensors.h"

namespace lantern {
namespace {

constexpr int32_t kPoison = 1987;  // neither in a prompt of the test nor in an output

// models/tiny with a row of NaN in its table of embeddings; made once for all tests of the program.
std::filesystem::path poisoned_model() {
  static const struct Folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("lantern_poisoned_{}", getpid());
    Folder() {
      std::filesystem::copy(tiny_model(), path, std::filesystem::copy_options::recursive);
      for (const auto& entry : std::filesystem::directory_iterator(path)) {
        if (entry.path().extension() == ".safetensors") poison(entry.path());
      }
    }
    ~Folder() { std::filesystem::remove_all(path); }

    static void poison(const std::filesystem::path& shard) {
      uint64_t row = 0;
      uint64_t bytes = 0;
      {
        const auto file = SafetensorsFile::open(shard).value();
        const TensorInfo* table = file->find("model.embed_tokens.weight");
        if (table == nullptr) return;
        bytes = static_cast<uint64_t>(table->shape[1]) * 2;  // bf16
        row = static_cast<uint64_t>(file->data(*table).data() - file->mapping().data()) + kPoison * bytes;
      }
      std::filesystem::permissions(shard, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
      std::fstream stream(shard, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(static_cast<std::streamoff>(row));
      for (uint64_t i = 0; i < bytes; i += 2) stream.write("\xc0\x7f", 2);  // a quiet NaN
    }
  } folder;
  return folder.path;
}

// Every third request has the token: first, last, or in between.
std::vector<Request> poison(std::vector<Request> requests) {
  for (size_t i = 0; i < requests.size(); i += 3) {
    std::vector<int32_t>& prompt = requests[i].prompt;
    prompt[std::array<size_t, 3>{0, prompt.size() / 2, prompt.size() - 1}[i / 3 % 3]] = kPoison;
  }
  return requests;
}

TEST(EnginePoison, RequestsWithoutNumbersFailAlone) {
  for (const auto& [prefix_caching, prompt_tokens] : {std::pair(false, 24), std::pair(true, 0)}) {
    RunOptions options;
    options.mla_form = prefix_caching ? MlaForm::kAbsorbed : MlaForm::kAuto;
    options.settings.limits.max_query_len = 3;
    options.settings.limits.max_requests = 8;
    // Few blocks: those of who failed go to others.
    options.settings.limits.block_size = 16;
    options.settings.limits.max_blocks_per_request = 128;
    options.settings.limits.num_blocks = 129;
    options.settings.prefix_caching = prefix_caching;
    const std::vector<Request> clean = mixed_requests(24, 24, 150);
    const std::vector<Request> requests = poison(clean);
    const std::vector<RunOutput> alone = outputs_alone(options, clean);
    for (size_t i = 0; i < clean.size(); ++i) {
      ASSERT_EQ(std::ranges::count(clean[i].prompt, kPoison) + std::ranges::count(alone[i].tokens, kPoison), 0);
    }
    options.model_dir = poisoned_model();
    const auto run = EngineRun::create(options);
    for (int32_t round = 0; round < 2; ++round) {
      std::vector<int32_t> numbers;
      numbers.reserve(requests.size());
      for (const Request& request : requests) numbers.push_back(run->submit(request));
      run->run(prompt_tokens);
      for (size_t i = 0; i < requests.size(); ++i) {
        const RunOutput& output = run->output(numbers[i]);
        if (i % 3 != 0) {
          EXPECT_EQ(output, alone[i]) << "request " << i << ", round " << round << ", beside requests that fail";
        } else {
          EXPECT_EQ(output.reason, EndReason::kFailed) << "request " << i;
          EXPECT_TRUE(output.tokens.empty()) << "request " << i;
        }
      }
    }
  }
}

TEST(EnginePoison, ThePublicEngineSaysWhy) {
  EngineOptions options;
  options.model_dir = poisoned_model();
  options.device = "cpu";
  options.threads = 2;
  options.max_num_seqs = 4;
  options.kv_cache_bytes = int64_t{64} << 20;
  options.num_draft_tokens = 1;
  options.mla_form = MlaForm::kAbsorbed;  // the expanded form weighs later keys by 0, which leaves NaN what it is
  const LoadedEngine loaded = load_engine(options).value();
  const auto ask = [&](std::vector<int32_t> prompt, int32_t prompt_logprobs) {
    EngineRequest request;
    request.request.prompt_logprobs = prompt_logprobs;
    request.request.prompt = std::move(prompt);
    request.request.max_tokens = 4;
    request.request.logprobs = 2;
    request.ignore_eos = true;
    TokenStream stream = loaded.engine->submit(std::move(request)).value();
    Output output;
    std::vector<Output> all;
    while (stream.next(output)) all.push_back(output);
    return all.back();
  };
  const Output failed = ask({0, 50, kPoison, 60}, -1);
  EXPECT_EQ(failed.end_reason, EndReason::kFailed);
  EXPECT_EQ(failed.error, "the model's logits for this request are not finite numbers");
  EXPECT_TRUE(failed.logprobs.empty());
  EXPECT_EQ(ask({0, 50, 70, 60}, 2).end_reason, EndReason::kLength);
  // Of a prompt's log-probabilities the first that is none is named, and none is given.
  const Output scored = ask({0, 50, kPoison, 60, 70}, 2);
  EXPECT_EQ(scored.end_reason, EndReason::kFailed);
  EXPECT_EQ(scored.error, "the model gives no number as the log-probability of prompt token 3");
  EXPECT_TRUE(scored.prompt_logprobs.empty());
}

}  // namespace
}  // namespace lantern
