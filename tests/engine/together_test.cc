// Many requests in one engine give the same tokens as each of them alone, whatever the engine does meanwhile.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine_run.h"

namespace lantern {
namespace {

// Submits all, a few at a time between steps, and runs to the end.
void run_all(EngineRun& run, const std::vector<Request>& requests, int32_t prompt_tokens = 0) {
  size_t next = 0;
  do {
    for (int32_t i = 0; i < 8 && next < requests.size(); ++i) run.submit(requests[next++]);
  } while (run.step(prompt_tokens) || next < requests.size());
}

TEST(EngineTogether, SixtyFourRequestsAtOnce) {
  RunOptions options;
  const std::vector<Request> requests = mixed_requests(64, 24, 200);
  const std::vector<RunOutput> alone = outputs_alone(options, requests);
  options.settings.limits.max_query_len = 4;
  const auto run = EngineRun::create(options);
  for (const Request& request : requests) run->submit(request);
  run->run();
  EXPECT_EQ(differences(*run, alone), "");
}

// A prompt, or what is left of one, that is as long as a decode with its drafts is still a prompt.
TEST(EngineTogether, PromptsAndTailsAsLongAsADecode) {
  constexpr int32_t kDrafts = 3, kChunk = 64;
  RunOptions options;
  options.settings.limits.max_query_len = 1 + kDrafts;
  std::vector<Request> requests;
  for (const int32_t length : {1 + kDrafts, kDrafts, 2 + kDrafts, kChunk + 1 + kDrafts, 2 * kChunk + 1 + kDrafts, 1, 4,
                               kChunk, kChunk + 1, kChunk - 1}) {
    Request request;
    request.prompt = random_prompt(length, static_cast<uint64_t>(length));
    request.max_tokens = 12;
    request.sampling.temperature = 0.0f;
    requests.push_back(std::move(request));
  }
  const std::vector<RunOutput> alone = outputs_alone(options, requests);
  for (const bool together : {false, true}) {
    const auto run = EngineRun::create(options);
    for (const Request& request : requests) {
      run->submit(request);
      if (!together) run->run(kChunk);
    }
    run->run(kChunk);
    EXPECT_EQ(differences(*run, alone), "") << (together ? "together" : "one after another");
  }
}

// Too few blocks for all: sequences lose theirs and run again what they had.
TEST(EngineTogether, PreemptedSequencesGoOnWhereTheyWere) {
  for (const bool prefix_caching : {false, true}) {
    RunOptions options;
    options.mla_form = MlaForm::kAbsorbed;
    options.settings.limits.max_query_len = 3;
    options.settings.limits.block_size = 16;
    options.settings.limits.max_blocks_per_request = 128;
    options.settings.limits.num_blocks = 40;
    options.settings.prefix_caching = prefix_caching;
    const std::vector<Request> requests = mixed_requests(20, 64, 120);
    const auto run = EngineRun::create(options);
    for (const Request& request : requests) run->submit(request);
    run->run();
    EXPECT_GT(run->stats().preemptions, 3);
    EXPECT_EQ(differences(*run, outputs_alone(options, requests)), "");
  }
}

// Shared beginnings are run once, and the outputs of one request serve the next, as in a conversation.
TEST(EngineTogether, ConversationsHitThePrefixCache) {
  RunOptions options;
  options.mla_form = MlaForm::kAbsorbed;
  options.settings.limits.max_query_len = 4;
  options.settings.limits.block_size = 16;
  options.settings.limits.max_blocks_per_request = 128;
  options.settings.prefix_caching = true;
  const auto run = EngineRun::create(options);
  std::vector<Request> requests = mixed_requests(6, 40, 100);
  std::vector<Request> all;
  for (int32_t turn = 0; turn < 3; ++turn) {
    for (Request& request : requests) {
      request.stop_token_ids.clear();
      run->submit(request);
      all.push_back(request);
    }
    run->run();
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto number = static_cast<int32_t>(i + static_cast<size_t>(turn) * requests.size());
      std::vector<int32_t>& prompt = requests[i].prompt;
      const std::vector<int32_t>& output = run->output(number).tokens;
      prompt.insert(prompt.end(), output.begin(), output.end());
      prompt.push_back(static_cast<int32_t>(10 + i));
    }
  }
  EXPECT_GT(run->stats().prompt_tokens_cached, run->stats().prompt_tokens / 3);
  EXPECT_EQ(differences(*run, outputs_alone(options, all)), "");
}

// Choices share the pass over the prompt, and the block in which it ends until they write to it.
TEST(EngineTogether, ChoicesOfOnePrompt) {
  RunOptions options;
  options.mla_form = MlaForm::kAbsorbed;
  options.settings.limits.max_query_len = 3;
  std::vector<Request> requests = mixed_requests(4, 32, 150);
  std::vector<Request> single;
  const auto run = EngineRun::create(options);
  for (Request& request : requests) {
    request.n = 4;
    request.sampling.temperature = 1.0f;
    run->submit(request);
    const auto shared = std::make_shared<const Request>(request);
    for (int32_t choice = 0; choice < request.n; ++choice) {
      Sequence sequence;
      sequence.request = shared;
      sequence.choice = choice;
      Request one = request;
      one.n = 1;
      one.sampling.seed = sequence.seed();
      single.push_back(std::move(one));
    }
  }
  run->run();
  EXPECT_EQ(run->stats().forks, 12);
  const std::vector<RunOutput> alone = outputs_alone(options, single);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(run->output(static_cast<int32_t>(i) / 4, static_cast<int32_t>(i) % 4), alone[i]) << "output " << i;
  }
}

// Without the MTP layer: what followed when the last tokens came up before.
TEST(EngineTogether, DraftsFromNgrams) {
  RunOptions options;
  options.settings.limits.max_query_len = 5;
  options.executor.drafter = Drafter::kNgram;
  const std::vector<Request> requests = mixed_requests(16, 40, 120);
  const auto run = EngineRun::create(options);
  run_all(*run, requests);
  EXPECT_EQ(differences(*run, outputs_alone(options, requests)), "");
  EXPECT_GT(run->stats().drafts_accepted[0], 20);
}

// Drafts reach up to the last position that a sequence may have, and not beyond.
TEST(EngineTogether, TheEndOfTheContext) {
  RunOptions options;
  options.settings.limits.max_model_len = 100;
  options.settings.limits.max_query_len = 6;
  options.settings.limits.max_tokens = 512;
  std::vector<Request> requests;
  for (int32_t length = 88; length < 100; ++length) {
    Request request;
    request.prompt = random_prompt(length, 5);
    request.max_tokens = 1000;
    request.sampling.temperature = 0.0f;
    requests.push_back(std::move(request));
  }
  const auto run = EngineRun::create(options);
  for (const Request& request : requests) run->submit(request);
  run->run();
  EXPECT_EQ(differences(*run, outputs_alone(options, requests)), "");
  EXPECT_EQ(run->output(0).tokens.size(), 12u);
}

}  // namespace
}  // namespace lantern
