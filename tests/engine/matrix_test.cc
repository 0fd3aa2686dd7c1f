// The combinations of combinations.h: many requests at once give the same tokens as each of them alone.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include <fmt/format.h>

#include "combinations.h"
#include "engine_run.h"
#include "model/quantize.h"

namespace lantern {
namespace {

// models/tiny in FP8, made once for all tests of the program.
std::filesystem::path tiny_fp8() {
  static const struct Folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("lantern_tiny_fp8_{}", getpid());
    Folder() {
      const auto summary = quantize_checkpoint(tiny_model(), path);
      EXPECT_TRUE(summary.ok()) << summary.error().message();
    }
    ~Folder() { std::filesystem::remove_all(path); }
  } folder;
  return folder.path;
}

RunOptions options_of(const Combination& c) {
  RunOptions options;
  if (c.fp8_weights) options.model_dir = tiny_fp8();
  options.kv_cache_dtype = c.fp8_cache ? "fp8" : "bf16";
  options.mla_form = c.prefix_caching ? MlaForm::kAbsorbed : MlaForm::kAuto;
  options.settings.limits.max_query_len = 1 + c.drafts;
  options.settings.limits.max_model_len = 1024;
  options.settings.limits.max_blocks_per_request = 16;
  options.settings.limits.num_blocks = 1 + 64 * 16;
  options.settings.prefix_caching = c.prefix_caching;
  options.settings.max_steps_in_flight = c.steps_in_flight;
  options.executor.graphs = c.graphs;
  return options;
}

// Mixed ones, and greedy ones whose prompts, or the last chunks of them, are as long as a decode with its drafts. Where
// a chunk is a token, prompts are short: each of their tokens is a step.
std::vector<Request> requests_of(const Combination& c, int32_t count) {
  std::vector<int32_t> lengths{1 + c.drafts, 2 + c.drafts, c.chunk + 1 + c.drafts};
  if (c.chunk < 64) lengths.push_back(2 * c.chunk + 1 + c.drafts);
  std::vector<Request> requests =
      mixed_requests(count - static_cast<int32_t>(lengths.size()), 8, c.chunk == 1 ? 8 : 40);
  for (const int32_t length : lengths) {
    Request request;
    request.prompt = random_prompt(length, static_cast<uint64_t>(length));
    request.max_tokens = 6;
    request.sampling.temperature = 0.0f;
    requests.insert(requests.begin() + static_cast<std::ptrdiff_t>(requests.size() / 2), std::move(request));
  }
  return requests;
}

// The outputs of requests alone do not depend on what an engine does: most combinations share them.
class AloneOutputs {
 public:
  const std::vector<RunOutput>& of(const Combination& c, const std::vector<Request>& requests) {
    const auto key = std::tuple(c.fp8_weights, c.fp8_cache, c.prefix_caching, c.drafts, c.chunk);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    return known_[key] = outputs_alone(options_of(c), requests);
  }

 private:
  std::map<std::tuple<bool, bool, bool, int32_t, int32_t>, std::vector<RunOutput>> known_;
};

void expect_as_alone(const Combination& c, int32_t count, AloneOutputs& alone) {
  const std::vector<Request> requests = requests_of(c, count);
  const auto run = EngineRun::create(options_of(c));
  for (const Request& request : requests) {
    run->submit(request);
    if (c.batch == 1) run->run(c.chunk);
  }
  run->run(c.chunk);
  EXPECT_EQ(differences(*run, alone.of(c, requests)), "") << to_string(c);
  EXPECT_EQ(run->stats().steps_replayed > 0, c.graphs != GraphMode::kNone) << to_string(c);
  if (captures_pieces(c.graphs)) {
    EXPECT_EQ(run->stats().steps_replayed, run->steps()) << to_string(c);
  }
}

TEST(EngineMatrix, EveryPairOfValuesAsAlone) {
  AloneOutputs alone;
  for (const Combination& c : pairwise_combinations()) expect_as_alone(c, 64, alone);
}

TEST(EngineMatrixSlow, EveryCombinationAsAlone) {
  AloneOutputs alone;
  for (const Combination& c : all_combinations()) expect_as_alone(c, 20, alone);
}

TEST(EngineMatrix, TheRowsHoldEveryPairOfValues) {
  const auto values_of = [](const Combination& c) {
    return std::vector<int32_t>{
        c.drafts,         c.chunk, c.fp8_weights,    c.fp8_cache, static_cast<int32_t>(c.graphs),
        c.prefix_caching, c.batch, c.steps_in_flight};
  };
  using Pair = std::tuple<size_t, int32_t, size_t, int32_t>;
  const auto pairs_in = [&](std::span<const Combination> rows) {
    std::set<Pair> pairs;
    for (const Combination& row : rows) {
      const std::vector<int32_t> values = values_of(row);
      for (size_t i = 0; i < values.size(); ++i) {
        for (size_t j = i + 1; j < values.size(); ++j) pairs.insert({i, values[i], j, values[j]});
      }
    }
    return pairs;
  };
  const std::vector<Combination> all = all_combinations();
  EXPECT_EQ(all.size(), 2560u);
  EXPECT_EQ(pairs_in(pairwise_combinations()), pairs_in(all));
}

TEST(EngineFeatures, ThePageSaysWhatIsTested) {
  const std::filesystem::path path = tiny_model().parent_path().parent_path() / "docs" / "features.md";
  std::ifstream file(path);
  std::stringstream page;
  page << file.rdbuf();
  if (page.str() == features_page()) return;
  const std::filesystem::path made = std::filesystem::temp_directory_path() / "lantern_features.md";
  std::ofstream(made) << features_page();
  FAIL() << "docs/features.md is not what the table of combinations says; run: cp " << made.string() << " "
         << path.string();
}

}  // namespace
}  // namespace lantern
