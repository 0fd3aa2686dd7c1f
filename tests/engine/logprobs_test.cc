// Log-probabilities that the engine gives are those of `lantern score` for the same text, which the goldens compare
// with an independent implementation: bit by bit where attention runs in the absorbed form, whatever the engine did.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine_run.h"

namespace lantern {
namespace {

std::vector<TokenScore> scores_of(Session& session, const std::vector<int32_t>& tokens, int32_t top) {
  Result<std::vector<TokenScore>> scores = session.score(tokens, top);
  EXPECT_TRUE(scores.ok()) << scores.error().message();
  return std::move(scores).value();
}

std::unique_ptr<Session> session_of(const RunOptions& options) {
  SessionOptions session;
  session.model_dir = options.model_dir;
  session.device = test_device();
  session.threads = options.threads;
  session.kv_cache_dtype = options.kv_cache_dtype;
  session.mla_form = options.mla_form;
  session.max_model_len = options.settings.limits.max_model_len;
  return Session::load(session).value();
}

// What is wrong with the rows of the tokens `first`, first + 1, ... of a text whose scores are known from token 1 on.
// `tolerance` is for values near 0, and grows with them; 0: the same bits.
std::string differences(const Logprobs& rows, const std::vector<TokenScore>& scores, const std::vector<int32_t>& text,
                        size_t first, float tolerance = 0) {
  const auto differ = [&](float a, float b) { return !(std::abs(a - b) <= tolerance * (1 + std::abs(b))); };
  for (size_t r = 0; r < rows.size(); ++r) {
    const TokenScore& score = scores.at(first + r - 1);
    const int32_t token = text.at(first + r);
    if (differ(rows.logprobs[r], score.logprob))
      return fmt::format("token {}: {} instead of {}", first + r, rows.logprobs[r], score.logprob);
    for (int32_t k = 0; k < rows.width; ++k) {
      const size_t at = r * static_cast<size_t>(rows.width) + static_cast<size_t>(k);
      const auto place = static_cast<size_t>(k);
      if (differ(rows.top_logprobs[at], score.top_logprobs[place]))
        return fmt::format("token {}, place {}: {} instead of {}", first + r, k, rows.top_logprobs[at],
                           score.top_logprobs[place]);
      if (tolerance == 0 && rows.top_tokens[at] != score.top_tokens[place])
        return fmt::format("token {}, place {}: token {}", first + r, k, rows.top_tokens[at]);
      if (rows.top_tokens[at] == token && rows.ranks[r] > k + 1)
        return fmt::format("token {} is in place {} and of rank {}", first + r, k, rows.ranks[r]);
    }
    if (rows.width > 0 && rows.ranks[r] <= rows.width &&
        rows.top_logprobs[r * static_cast<size_t>(rows.width) + static_cast<size_t>(rows.ranks[r]) - 1] !=
            rows.logprobs[r]) {
      return fmt::format("token {} is of rank {}, and another is there", first + r, rows.ranks[r]);
    }
  }
  return "";
}

// All sorts of wishes: most requests want something.
std::vector<Request> requests_with_logprobs(int32_t count, int32_t max_tokens, int32_t longest_prompt) {
  std::vector<Request> requests = mixed_requests(count, max_tokens, longest_prompt);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 4 != 3) requests[i].logprobs = static_cast<int32_t>(i * 5 % 21);
    if (i % 3 != 1) requests[i].prompt_logprobs = static_cast<int32_t>(i * 3 % 7);
  }
  return requests;
}

void expect_as_scored(const EngineRun& run, Session& session, const std::vector<Request>& requests,
                      const std::string& what, float prompt_tolerance = 0, float tolerance = 0) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    const auto number = static_cast<int32_t>(i);
    const std::vector<int32_t>& output = run.output(number).tokens;
    std::vector<int32_t> text = request.prompt;
    text.insert(text.end(), output.begin(), output.end());
    const std::vector<TokenScore> scores =
        scores_of(session, text, std::max({request.logprobs, request.prompt_logprobs, 0}));
    if (request.logprobs >= 0) {
      ASSERT_EQ(run.logprobs(number).size(), output.size()) << what << ", request " << i;
      EXPECT_EQ(differences(run.logprobs(number), scores, text, request.prompt.size(), tolerance), "")
          << what << ", request " << i;
    }
    if (request.prompt_logprobs >= 0 && request.prompt.size() > 1) {
      ASSERT_EQ(run.prompt_logprobs(number).size(), request.prompt.size() - 1) << what << ", request " << i;
      EXPECT_EQ(differences(run.prompt_logprobs(number), scores, text, 1, prompt_tolerance), "")
          << what << ", prompt of request " << i;
    }
  }
}

RunOptions absorbed(int32_t drafts) {
  RunOptions options;
  options.mla_form = MlaForm::kAbsorbed;
  options.settings.limits.max_query_len = 1 + drafts;
  return options;
}

TEST(EngineLogprobs, AsScoredForEveryDraftLengthAndChunk) {
  const std::vector<Request> requests = requests_with_logprobs(16, 16, 150);
  const auto session = session_of(absorbed(0));
  struct Case {
    int32_t drafts, prompt_tokens;
    bool prefix_caching;
    int32_t steps_in_flight;
  };
  for (const Case& c : {Case{0, 512, false, 1}, Case{0, 7, true, 2}, Case{1, 64, true, 2}, Case{2, 1, false, 2},
                        Case{3, 7, false, 1}, Case{3, 512, true, 2}}) {
    RunOptions options = absorbed(c.drafts);
    options.settings.prefix_caching = c.prefix_caching;
    options.settings.max_steps_in_flight = c.steps_in_flight;
    const auto run = EngineRun::create(options);
    for (const Request& request : requests) run->submit(request);
    run->run(c.prompt_tokens);
    EXPECT_EQ(run->stats().drafts_accepted[0] > 0, c.drafts > 0);
    expect_as_scored(*run, *session, requests, fmt::format("{} drafts, chunks of {}", c.drafts, c.prompt_tokens));
  }
}

// The form of attention that is chosen by itself: prompts are the same bits as in a session, and tokens that were
// decoded differ from the same positions in a prompt by the rounding of bf16 operands in another order (0.0053 of
// 1 + |value| at most as of writing; another token or position is off by whole units).
TEST(EngineLogprobs, AsScoredInTheUsualForm) {
  RunOptions options;
  options.settings.limits.max_query_len = 3;
  const std::vector<Request> requests = requests_with_logprobs(16, 24, 200);
  const auto run = EngineRun::create(options);
  for (const Request& request : requests) run->submit(request);
  run->run();
  expect_as_scored(*run, *session_of(options), requests, "usual form", 0, 0.02f);
}

// Blocks for a few only: sequences start over, some in the middle of a prompt, and nothing comes twice or not at all.
TEST(EngineLogprobs, PreemptedSequencesLoseNone) {
  for (const bool prefix_caching : {false, true}) {
    RunOptions options = absorbed(2);
    options.settings.limits.block_size = 16;
    options.settings.limits.max_blocks_per_request = 128;
    options.settings.limits.num_blocks = 32;
    options.settings.prefix_caching = prefix_caching;
    const std::vector<Request> requests = requests_with_logprobs(20, 64, 120);
    const auto run = EngineRun::create(options);
    for (const Request& request : requests) run->submit(request);
    run->run(48);
    EXPECT_GT(run->stats().preemptions, 3);
    expect_as_scored(*run, *session_of(options), requests, prefix_caching ? "prefix cache" : "no prefix cache");
  }
}

// A scored prompt runs whole, however much of it is cached; what it computed serves others.
TEST(EngineLogprobs, AScoredPromptTakesNoHits) {
  RunOptions options = absorbed(1);
  options.settings.limits.block_size = 16;
  options.settings.limits.max_blocks_per_request = 128;
  options.settings.prefix_caching = true;
  Request request;
  request.prompt = random_prompt(100, 3);
  request.max_tokens = 4;
  request.sampling.temperature = 0;
  request.logprobs = request.prompt_logprobs = 2;
  const auto run = EngineRun::create(options);
  const auto cached = [&] { return run->stats().prompt_tokens_cached; };
  std::vector<Request> requests(3, request);
  requests[2].prompt_logprobs = -1;
  for (const Request& each : requests) {
    EXPECT_EQ(cached(), 0);
    run->submit(each);
    run->run();
  }
  EXPECT_EQ(cached(), 96);
  expect_as_scored(*run, *session_of(options), requests, "hits");
}

// Every choice has its own, and the prompt's come once.
TEST(EngineLogprobs, ChoicesOfOnePrompt) {
  const RunOptions options = absorbed(2);
  Request request = mixed_requests(3, 24, 100).back();
  request.n = 4;
  request.sampling.temperature = 1.0f;
  request.logprobs = 3;
  request.prompt_logprobs = 0;
  const auto run = EngineRun::create(options);
  const int32_t number = run->submit(request);
  run->run();
  const auto session = session_of(options);
  for (int32_t choice = 0; choice < 4; ++choice) {
    std::vector<int32_t> text = request.prompt;
    const std::vector<int32_t>& output = run->output(number, choice).tokens;
    text.insert(text.end(), output.begin(), output.end());
    ASSERT_EQ(run->logprobs(number, choice).size(), output.size());
    EXPECT_EQ(differences(run->logprobs(number, choice), scores_of(*session, text, 3), text, request.prompt.size()),
              "");
  }
  EXPECT_EQ(run->prompt_logprobs(number).size(), request.prompt.size() - 1);
}

}  // namespace
}  // namespace lantern
