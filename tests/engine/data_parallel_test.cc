// Ranks in step on a real model: the text of a request does not depend on how many ranks there are, nor on what the
// others do.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "engine/model_setup.h"
#include "engine_run.h"
#include "model/model.h"

namespace lantern {
namespace {

template <class T>
T value_of(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message());
  return std::move(result).value();
}

EngineSettings rank_settings(int32_t drafts) {
  EngineSettings settings = RunOptions::small_settings();
  settings.limits.max_query_len = 1 + drafts;
  settings.limits.max_requests = 8;
  settings.limits.max_tokens = 64;
  settings.limits.block_size = 16;
  settings.limits.max_model_len = 512;
  settings.limits.max_blocks_per_request = 32;
  settings.limits.num_blocks = 129;
  settings.adaptive_drafts = true;
  return settings;
}

// As load_engine() makes one, but with the ranks' caches in reach.
struct RankedModel {
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Model>> models;
  std::unique_ptr<Engine> engine;

  RankedModel(int32_t ranks, const EngineSettings& unchecked, GraphMode graphs = GraphMode::kNone) {
    const EngineSettings settings = value_of(EngineSettings::checked(unchecked));
    devices.reserve(static_cast<size_t>(ranks));
    for (int32_t rank = 0; rank < ranks; ++rank) devices.push_back(make_host_device(1));
    const ModelConfig config = value_of(load_model_config(tiny_model()));
    const std::shared_ptr<const WeightStore> weights = value_of(load_weights(tiny_model(), config, *devices.front()));
    for (size_t rank = 1; rank < devices.size(); ++rank) register_weights_of(*devices.front(), *devices[rank]);
    const ModelOptions options = model_options_for(settings, value_of(parse_kv_cache_dtype("bf16", config)));
    std::vector<Engine::Parts> parts(static_cast<size_t>(ranks));
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      models.push_back(value_of(Model::create(*devices[rank], config, weights, options)));
      parts[rank].settings = settings;
      parts[rank].executor =
          value_of(make_model_executor(*devices[rank], *models.back(), settings, {.graphs = graphs}));
      devices[rank]->seal();
    }
    engine = value_of(Engine::create(std::move(parts)));
  }
};

TokenStream submit(Engine& engine, const Request& request) {
  EngineRequest submitted;
  submitted.request = request;
  return value_of(engine.submit(std::move(submitted)));
}

RunOutput read_all(TokenStream& stream) {
  RunOutput all;
  Output output;
  while (stream.next(output)) {
    all.tokens.insert(all.tokens.end(), output.tokens.begin(), output.tokens.end());
    if (output.ended()) all.reason = output.end_reason;
  }
  return all;
}

std::vector<RunOutput> run_all(Engine& engine, const std::vector<Request>& requests) {
  std::vector<TokenStream> streams;
  streams.reserve(requests.size());
  for (const Request& request : requests) streams.push_back(submit(engine, request));
  std::vector<RunOutput> outputs;
  outputs.reserve(requests.size());
  for (TokenStream& stream : streams) outputs.push_back(read_all(stream));
  return outputs;
}

RunOptions alone_options(const EngineSettings& settings) {
  RunOptions options;
  options.settings = settings;
  return options;
}

void expect_equal(const std::vector<RunOutput>& outputs, const std::vector<RunOutput>& expected, const char* what) {
  ASSERT_EQ(outputs.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(outputs[i] == expected[i]) << what << ", request " << i;
}

class DataParallel : public testing::TestWithParam<std::tuple<int32_t, int32_t, GraphMode>> {};
TEST_P(DataParallel, TextAsAlone) {
  const auto [ranks, drafts, graphs] = GetParam();
  const EngineSettings settings = rank_settings(drafts);
  const std::vector<Request> requests = mixed_requests(14, 20, 120);
  const RankedModel model(ranks, settings, graphs);
  expect_equal(run_all(*model.engine, requests), outputs_alone(alone_options(settings), requests), "mixed");
  int64_t with_requests = 0;
  for (const EngineReport& report : model.engine->rank_reports()) with_requests += report.choices_submitted > 0 ? 1 : 0;
  EXPECT_EQ(with_requests, ranks);
  const EngineReport report = model.engine->report();
  EXPECT_EQ(report.drafts_checked[0] > 0, drafts > 0);
  // The texts are of different lengths, so ranks end at different steps.
  EXPECT_EQ(report.dummy_steps > 0, ranks > 1);
  // A step that has a prompt on one rank runs on all eagerly, or in pieces; the others are replayed on all. How many
  // these are depends on when the prompts come.
  EXPECT_EQ(report.steps_replayed > 0, graphs != GraphMode::kNone);
}
INSTANTIATE_TEST_SUITE_P(RanksAndDrafts, DataParallel,
                         testing::Combine(testing::Values(1, 2, 4), testing::Values(0, 3),
                                          testing::Values(GraphMode::kNone)));
// Ranks of different loads replay the graph of the largest, by which the others' rows are padded.
INSTANTIATE_TEST_SUITE_P(Graphs, DataParallel,
                         testing::Combine(testing::Values(2, 4), testing::Values(0, 3),
                                          testing::Values(GraphMode::kPiecewise, GraphMode::kFull,
                                                          GraphMode::kFullAndPiecewise, GraphMode::kVerify)));

// One rank serves, and the other runs dummies in whatever shape that takes: prompts, decodes, drafts. What its last own
// batch left behind must not find its way into its caches, nor into what it serves next.
void expect_no_writes_of_an_idle_rank(GraphMode graphs) {
  const EngineSettings settings = rank_settings(3);
  const RankedModel model(2, settings, graphs);
  const std::vector<Request> requests = mixed_requests(8, 24, 150);
  const std::vector<RunOutput> alone = outputs_alone(alone_options(settings), requests);
  expect_equal(run_all(*model.engine, requests), alone, "both ranks");

  const std::vector<std::byte> before = cache_bytes(*model.models[1]);
  const std::vector<EngineReport> served = model.engine->rank_reports();
  ASSERT_GT(served[1].output_tokens, 0);
  // One at a time they all go to rank 0.
  for (size_t i = 0; i < requests.size(); ++i) {
    TokenStream stream = submit(*model.engine, requests[i]);
    EXPECT_TRUE(read_all(stream) == alone[i]) << "request " << i;
  }
  const std::vector<EngineReport> after = model.engine->rank_reports();
  EXPECT_EQ(after[1].choices_submitted, served[1].choices_submitted);
  EXPECT_GT(after[1].dummy_steps, served[1].dummy_steps + 20);
  // The dummy is replayed as the other rank's rows are, in the same pieces.
  EXPECT_EQ(after[1].steps_replayed - served[1].steps_replayed, after[0].steps_replayed - served[0].steps_replayed);
  EXPECT_EQ(after[1].steps_replayed > served[1].steps_replayed + 20, graphs != GraphMode::kNone);
  EXPECT_TRUE(cache_bytes(*model.models[1]) == before);
  expect_equal(run_all(*model.engine, requests), alone, "both ranks again");
}
TEST(DataParallel, AnIdleRankWritesNoCache) { expect_no_writes_of_an_idle_rank(GraphMode::kNone); }
TEST(DataParallel, AnIdleRankWritesNoCacheInReplays) { expect_no_writes_of_an_idle_rank(GraphMode::kFull); }
TEST(DataParallel, AnIdleRankWritesNoCacheInPieces) { expect_no_writes_of_an_idle_rank(GraphMode::kFullAndPiecewise); }
TEST(DataParallel, AnIdleRankWritesNoCacheInVerifiedReplays) { expect_no_writes_of_an_idle_rank(GraphMode::kVerify); }

// At the last positions of its context a rank has use for fewer drafts than the other, which goes on.
TEST(DataParallel, TheEndOfTheContextOnOneRank) {
  EngineSettings settings = rank_settings(3);
  settings.limits.max_model_len = 64;
  settings.adaptive_drafts = false;
  std::vector<Request> requests(2);
  requests[0].prompt = random_prompt(50, 5);
  requests[0].max_tokens = 1000;
  requests[1].prompt = random_prompt(9, 6);
  requests[1].max_tokens = 50;
  for (Request& request : requests) request.sampling.temperature = 0.0f;
  const std::vector<RunOutput> alone = outputs_alone(alone_options(settings), requests);
  for (const GraphMode graphs : {GraphMode::kNone, GraphMode::kFull, GraphMode::kVerify}) {
    const RankedModel model(2, settings, graphs);
    const std::vector<RunOutput> outputs = run_all(*model.engine, requests);
    expect_equal(outputs, alone, "two ranks");
    EXPECT_EQ(outputs[0].tokens.size(), 14u);
    EXPECT_EQ(outputs[0].reason, EndReason::kLength);
    for (const EngineReport& report : model.engine->rank_reports()) EXPECT_EQ(report.choices_submitted, 1);
  }
}

}  // namespace
}  // namespace lantern
