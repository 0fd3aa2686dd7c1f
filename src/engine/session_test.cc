#include "engine/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/step_buckets.h"

namespace lantern {
namespace {

// V3.2 in miniature: every branch (query compression, indexer, groups, shared expert), contexts beyond index_topk.
constexpr const char* kNanoConfig = R"({
  "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "vocab_size": 96, "hidden_size": 64,
  "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 3, "first_k_dense_replace": 1,
  "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
  "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
  "n_group": 4, "topk_group": 2, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true,
  "routed_scaling_factor": 2.5, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 16, "rms_norm_eps": 1e-6,
  "rope_theta": 10000, "max_position_embeddings": 512, "hidden_act": "silu", "attention_bias": false,
  "tie_word_embeddings": false, "eos_token_id": 1, "bos_token_id": 0, "torch_dtype": "bfloat16",
  "num_nextn_predict_layers": 0})";

// With `smooth` every expert and every key is taken, so that no choice can flip: logits are then a continuous function
// of rounding errors.
std::unique_ptr<Session> make_session(const SessionOptions& options = {}, bool smooth = false) {
  auto device = make_host_device(options.threads);
  auto config = parse_model_config(kNanoConfig, {});
  EXPECT_TRUE(config.ok()) << config.error().message();
  if (smooth) {
    config->num_expert_groups = config->topk_groups = 1;
    config->experts_per_token = config->num_routed_experts;
    config->index_topk = config->max_position_embeddings;
  }
  auto weights = make_dummy_weights(*config, DummyFormat::kBf16, 7, *device);
  EXPECT_TRUE(weights.ok()) << weights.error().message();
  auto session = Session::create(std::move(device), std::move(config).value(), std::move(weights).value(), options);
  EXPECT_TRUE(session.ok()) << session.error().message();
  return std::move(session).value();
}

std::vector<int32_t> text_of(int32_t length) {
  std::vector<int32_t> tokens(static_cast<size_t>(length));
  uint32_t state = 12345;
  for (int32_t& token : tokens) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<int32_t>((state >> 16) % 96u);
  }
  return tokens;
}

std::vector<float> logprobs_of(Session& session, const std::vector<int32_t>& tokens) {
  auto scores = session.score(tokens, 0);
  EXPECT_TRUE(scores.ok()) << scores.error().message();
  std::vector<float> values;
  for (const TokenScore& score : *scores) values.push_back(score.logprob);
  return values;
}

class SessionLayouts : public testing::TestWithParam<const char*> {};

// Scores are bit for bit the same however the prompt is cut into steps and however many threads work on it.
TEST_P(SessionLayouts, ScoresDependNeitherOnChunkNorOnThreads) {
  const std::vector<int32_t> tokens = text_of(150);
  SessionOptions options;
  options.kv_cache_dtype = GetParam();
  options.threads = 2;
  const std::vector<float> one_shot = logprobs_of(*make_session(options), tokens);
  ASSERT_EQ(one_shot.size(), tokens.size() - 1);
  for (float value : one_shot) ASSERT_TRUE(std::isfinite(value) && value <= 0.0f);
  for (int32_t chunk : {1, 7, 64, 100}) {
    for (int32_t threads : {1, 3}) {
      options.prefill_chunk = chunk;
      options.threads = threads;
      EXPECT_EQ(logprobs_of(*make_session(options), tokens), one_shot) << "chunk " << chunk << ", threads " << threads;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(CacheDtypes, SessionLayouts, testing::Values("bf16", "f32"));

// A probability distribution: the log-probabilities of the whole vocabulary sum to one.
TEST(SessionTest, AlternativesAreADistributionInOrder) {
  auto session = make_session();
  auto scores = session->score(text_of(20), 64);
  ASSERT_TRUE(scores.ok());
  for (const TokenScore& score : *scores) {
    ASSERT_EQ(score.top_logprobs.size(), 64u);
    double sum = 0;
    for (size_t i = 0; i < 64; ++i) {
      sum += std::exp(static_cast<double>(score.top_logprobs[i]));
      if (i > 0) {
        EXPECT_LE(score.top_logprobs[i], score.top_logprobs[i - 1]);
      }
    }
    EXPECT_LT(sum, 1.0 + 1e-5);
    EXPECT_GT(sum, 64.0 / 96.0);  // the likelier 64 of 96 hold at least their share
  }
}

// Decoding (absorbed attention) continues a text as prefill (expanded attention) would: the drawn token is the most
// likely one under score(), up to the rounding of two different summation orders in bf16 matrices. A flip
// between two tokens within 0.005 would be rounding; a wrong scale, position or projection in one of the forms moves
// logits by tenths.
TEST(SessionTest, GreedyDecodeAgreesWithPrefill) {
  auto session = make_session({}, true);
  GenerateRequest request;
  request.prompt = text_of(40);
  request.max_tokens = 60;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  auto generated = session->generate(request);
  ASSERT_TRUE(generated.ok());
  ASSERT_EQ(generated->tokens.size(), 60u);
  EXPECT_EQ(generated->finish_reason, FinishReason::kLength);
  std::vector<int32_t> all = request.prompt;
  all.insert(all.end(), generated->tokens.begin(), generated->tokens.end());
  auto scores = session->score(all, 1);
  ASSERT_TRUE(scores.ok());
  float worst = 0;
  for (size_t i = request.prompt.size(); i < all.size(); ++i) {
    const TokenScore& score = (*scores)[i - 1];
    worst = std::max(worst, score.top_logprobs[0] - score.logprob);
  }
  EXPECT_LE(worst, 0.005f);
}

TEST(SessionTest, SeedsDecideSampledText) {
  auto session = make_session();
  const auto run = [&](uint64_t seed) {
    GenerateRequest request;
    request.prompt = {3, 4, 5};
    request.max_tokens = 24;
    request.ignore_eos = true;
    request.sampling.seed = seed;
    return session->generate(request).value().tokens;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(SessionTest, StopsAtEndOfSequenceAndOnTheCallersWord) {
  auto session = make_session();
  GenerateRequest request;
  request.prompt = {3, 4, 5};
  request.max_tokens = 400;
  request.sampling.seed = 5;
  auto natural = session->generate(request);
  ASSERT_TRUE(natural.ok());
  EXPECT_EQ(std::count(natural->tokens.begin(), natural->tokens.end(), 1), 0);
  int32_t seen = 0;
  auto cancelled = session->generate(
      request, [&](int32_t) { return ++seen == 3 ? Session::Continue::kCancel : Session::Continue::kYes; });
  ASSERT_TRUE(cancelled.ok());
  EXPECT_EQ(cancelled->tokens.size(), 3u);
  EXPECT_EQ(cancelled->finish_reason, FinishReason::kCancelled);
}

// Whoever waits for a long prompt is told how far it is, and may leave between two steps of it.
TEST(SessionTest, TellsHowFarAPromptIsAndStopsThereOnTheCallersWord) {
  SessionOptions options;
  options.prefill_chunk = 64;
  auto session = make_session(options);
  GenerateRequest request;
  request.prompt = text_of(150);
  request.max_tokens = 2;
  request.ignore_eos = true;
  std::vector<int64_t> told;
  const auto tell = [&](int64_t done) {
    told.push_back(done);
    return true;
  };
  auto whole = session->generate(request, {}, tell);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(told, (std::vector<int64_t>{64, 128, 150}));
  EXPECT_EQ(whole->tokens.size(), 2u);
  told.clear();
  ASSERT_TRUE(session->score(request.prompt, 0, tell).ok());
  EXPECT_EQ(told, (std::vector<int64_t>{64, 128, 149})) << "the last token predicts nothing";

  const auto leave_after_two = [](int64_t done) { return done < 128; };
  auto left = session->generate(request, {}, leave_after_two);
  ASSERT_TRUE(left.ok());
  EXPECT_EQ(left->finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(left->tokens.empty());
  auto scores = session->score(request.prompt, 0, leave_after_two);
  ASSERT_TRUE(scores.ok());
  EXPECT_EQ(scores->size(), 128u);
}

TEST(SessionTest, FillsTheContextAndNoMore) {
  SessionOptions options;
  options.max_model_len = 70;  // crosses a block border
  auto session = make_session(options);
  GenerateRequest request;
  request.prompt = text_of(60);
  request.max_tokens = 1000;
  request.ignore_eos = true;
  auto result = session->generate(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->tokens.size(), 10u);
  EXPECT_EQ(result->finish_reason, FinishReason::kLength);
}

TEST(SessionTest, RecentKeysInsteadOfTheIndexerChangeTheText) {
  const std::vector<int32_t> tokens = text_of(100);
  const std::vector<float> chosen = logprobs_of(*make_session(), tokens);
  SessionOptions options;
  options.indexer = "recent";
  const std::vector<float> recent = logprobs_of(*make_session(options), tokens);
  // Up to index_topk keys there is nothing to choose; beyond, the choice matters.
  EXPECT_TRUE(std::equal(chosen.begin(), chosen.begin() + 15, recent.begin()));
  EXPECT_NE(chosen, recent);
}

TEST(SessionTest, RefusesWhatItCannotDo) {
  auto session = make_session();
  const auto message = [&](const GenerateRequest& request) {
    auto result = session->generate(request);
    EXPECT_FALSE(result.ok());
    return result.ok() ? std::string() : result.error().message();
  };
  GenerateRequest request;
  EXPECT_EQ(message(request), "the prompt is empty; give at least one token");
  request.prompt = text_of(512);
  EXPECT_NE(message(request).find("the prompt has 512 tokens, but the context holds 512"), std::string::npos);
  request.prompt = {1, 2, 96};
  EXPECT_EQ(message(request), "token id 96 at index 2 is outside the vocabulary of 96");
  request.prompt = {1, 2};
  request.sampling.temperature = std::nanf("");
  EXPECT_NE(message(request).find("temperature"), std::string::npos);
  request.sampling = {.top_p = 0.0f};
  EXPECT_NE(message(request).find("top_p 0"), std::string::npos);
  request.sampling = {.min_p = 1.5f};
  EXPECT_NE(message(request).find("min_p 1.5"), std::string::npos);
  request.sampling = {};
  request.max_tokens = 0;
  EXPECT_EQ(message(request), "max_tokens 0 must be at least 1");
  EXPECT_FALSE(session->score(text_of(1), 0).ok());
  EXPECT_FALSE(session->score(text_of(513), 0).ok());
  EXPECT_FALSE(session->score(text_of(10), 65).ok());
}

// With and without drafts the sentence says which of the request's own wishes leave nothing.
TEST(SessionTest, SaysWhyNoTokenIsLeft) {
  for (const int32_t drafts : {0, 2}) {
    SessionOptions options;
    options.draft_tokens = drafts;
    options.drafter = "ngram";
    GenerateRequest request;
    request.prompt = text_of(5);
    for (int32_t token = 0; token < 96; ++token) request.bad_words.push_back({token});
    const auto result = make_session(options)->generate(request);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message().find("bad_words"), std::string::npos) << result.error().message();
  }
}

// The first token comes from the prompt's step, the others each from a graph. In pieces the prompt's does, too.
TEST(SessionTest, GraphsGiveTheSameText) {
  GenerateRequest request;
  request.prompt = text_of(70);
  request.max_tokens = 30;
  request.ignore_eos = true;
  const auto eager = make_session();
  EXPECT_EQ(eager->graph_counts().mode, GraphMode::kNone);
  const std::vector<int32_t> expected = eager->generate(request)->tokens;
  EXPECT_EQ(eager->graph_counts().steps_replayed, 0);
  struct Case {
    const char* graphs;
    int32_t most_whole;  // buckets of decodes: of the one token of one sequence
    bool pieces;
  };
  for (const auto& [graphs, most_whole, pieces] : {Case{"full", 1, false}, Case{"piecewise", 0, true},
                                                   Case{"full_and_piecewise", 1, true}, Case{"verify", 1, true}}) {
    SessionOptions options;
    options.graphs = graphs;
    const auto session = make_session(options);
    EXPECT_EQ(session->generate(request)->tokens, expected) << graphs;
    EXPECT_EQ(to_string(session->graph_counts().mode), graphs);
    const auto sizes = static_cast<int32_t>(piece_sizes(session->model().options().limits.max_tokens).size());
    EXPECT_EQ(session->graph_counts().num_graphs,
              most_whole + (pieces ? sizes * (session->config().num_layers + 1) : 0));
    EXPECT_EQ(session->graph_counts().steps_replayed, pieces ? 30 : 29);
    EXPECT_TRUE(session->score(request.prompt, 0).ok()) << "which uses the same caches";
    EXPECT_EQ(session->generate(request)->tokens, expected) << graphs << " again";
  }
}

TEST(SessionTest, RefusesBadOptionsByName) {
  const auto message = [](const SessionOptions& options) {
    auto device = make_host_device(1);
    auto config = parse_model_config(kNanoConfig, {});
    auto weights = make_dummy_weights(*config, DummyFormat::kBf16, 7, *device);
    auto session = Session::create(std::move(device), *config, std::move(weights).value(), options);
    EXPECT_FALSE(session.ok());
    return session.ok() ? std::string() : session.error().message();
  };
  EXPECT_NE(message({.kv_cache_dtype = "int3"}).find("--kv-cache-dtype int3"), std::string::npos);
  EXPECT_NE(message({.kv_cache_dtype = "fp8"}).find("128"), std::string::npos);  // kv_lora_rank 32 has no FP8 rows
  EXPECT_NE(message({.max_model_len = 513}).find("a context of 513 tokens"), std::string::npos);
  EXPECT_NE(message({.prefill_chunk = 0}).find("--prefill-chunk 0"), std::string::npos);
  EXPECT_NE(message({.graphs = "some"}).find("graphs 'some' are not known"), std::string::npos);
  EXPECT_NE(message({.indexer = "magic"}).find("--indexer magic"), std::string::npos);
  if (const auto cuda = make_device("cuda", 1); !cuda.ok()) {
    EXPECT_TRUE(cuda.error().message().starts_with("--device cuda: ")) << cuda.error().message();
    EXPECT_EQ(make_device("auto", 1).value()->kind(), DeviceKind::kCpu);
  } else {
    EXPECT_EQ(make_device("auto", 1).value()->kind(), DeviceKind::kCuda);
  }
  EXPECT_FALSE(make_device("tpu", 1).ok());
}

}  // namespace
}  // namespace lantern
