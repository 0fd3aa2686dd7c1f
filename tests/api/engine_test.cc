// The threaded engine over the fake executor, whose every token is known in advance.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "api_requests.h"
#include "engine/engine.h"
#include "fake_executor.h"
#include "gated_executor.h"
#include "null_executor.h"
#include "process_time.h"
#include "thread_allocations.h"

namespace lantern {
namespace {

using std::chrono::milliseconds;

EngineSettings small_settings() {
  EngineSettings settings;
  settings.limits.block_size = 16;
  settings.limits.max_requests = 8;
  settings.limits.max_query_len = 3;
  settings.limits.max_tokens = 64;
  settings.limits.max_model_len = 512;
  settings.limits.max_blocks_per_request = 32;
  settings.limits.num_blocks = 100;
  return settings;
}

std::shared_ptr<const Tokenizer> tiny_tokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer =
      std::make_shared<const Tokenizer>(Tokenizer::load(LANTERN_SOURCE_DIR "/models/tiny").value());
  return tokenizer;
}

struct TestEngine {
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  std::unique_ptr<Engine> engine;

  explicit TestEngine(const EngineSettings& settings = small_settings(),
                      FakeExecutor::Options options = {.vocab = kVocab},
                      std::shared_ptr<const Tokenizer> tokenizer = nullptr) {
    Engine::Parts parts;
    parts.settings = settings;
    parts.executor = std::make_unique<GatedExecutor>(
        std::make_unique<FakeExecutor>(EngineSettings::checked(settings).value(), options), gate);
    parts.tokenizer = std::move(tokenizer);
    parts.vocab_size = kVocab;
    engine = Engine::create(std::move(parts)).value();
  }
};

// `count` requests, the prompt of each `first` and its number.
std::vector<TokenStream> submit_many(Engine& engine, int32_t count, int32_t first, int32_t max_tokens) {
  std::vector<TokenStream> streams;
  streams.reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) streams.push_back(engine.submit(request_of({first, i}, max_tokens)).value());
  return streams;
}

struct Collected {
  std::vector<int32_t> tokens;
  std::string text;
  Output last;
  int32_t ends = 0;
};
std::vector<Collected> collect(TokenStream& stream, int32_t n = 1) {
  std::vector<Collected> all(static_cast<size_t>(n));
  Output output;
  while (stream.next(output)) {
    Collected& of = all.at(static_cast<size_t>(output.choice));
    EXPECT_EQ(of.ends, 0) << "an output after the last one";
    of.tokens.insert(of.tokens.end(), output.tokens.begin(), output.tokens.end());
    of.text += output.text;
    of.ends += output.ended() ? 1 : 0;
    of.last = output;
  }
  return all;
}

void expect_all_blocks_back(const Engine& engine) {
  // The report is that of the last step; what ended in it gives its blocks back when no step knows it any more.
  for (int32_t i = 0; i < 2000; ++i) {
    const EngineReport report = engine.report();
    if (report.num_running == 0 && report.num_waiting == 0) break;
    std::this_thread::sleep_for(milliseconds(1));
  }
  const EngineReport report = engine.report();
  EXPECT_EQ(report.num_running, 0);
  EXPECT_EQ(report.num_waiting, 0);
  EXPECT_EQ(report.num_free_blocks + report.num_cached_blocks, report.num_blocks);
}

TEST(EngineTest, ManyThreadsGetTheirOwnTokens) {
  TestEngine test;
  constexpr int32_t kThreads = 4;
  constexpr int32_t kRequests = 60;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::atomic<int32_t> wrong{0};
  for (int32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int32_t i = 0; i < kRequests; ++i) {
        std::vector<int32_t> prompt;
        prompt.reserve(100);
        for (int32_t p = 0; p < 1 + (i * 7 + t) % 90; ++p) prompt.push_back((p * 3 + i % 5) % kVocab);
        const int32_t length = 1 + (i * 13) % 70;
        EngineRequest request = request_of(prompt, length, static_cast<uint64_t>(i));
        const int32_t n = request.request.n = 1 + i % 3;
        Result<TokenStream> stream = test.engine->submit(std::move(request));
        if (!stream.ok()) {
          ++wrong;
          continue;
        }
        const std::vector<Collected> all = collect(*stream, n);
        if (all[0].tokens != expected_tokens(prompt, length, static_cast<uint64_t>(i), kVocab)) ++wrong;
        for (const Collected& choice : all) {
          if (choice.ends != 1 || choice.last.end_reason != EndReason::kLength ||
              choice.tokens.size() != static_cast<size_t>(length))
            ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  expect_all_blocks_back(*test.engine);
  const EngineReport report = test.engine->report();
  EXPECT_EQ(report.choices_ended[static_cast<size_t>(EndReason::kLength)], report.choices_submitted);
  EXPECT_EQ(report.choices_submitted, kThreads * kRequests * 2);
  EXPECT_GT(report.drafts_checked[0], report.drafts_checked[1]);
  EXPECT_GT(report.drafts_checked[1], 0);
  EXPECT_NEAR(report.acceptance(), 0.6, 0.15) << "the fake drafter is right in six of ten";
  EXPECT_GT(report.prompt_tokens_cached, 0);
  EXPECT_GT(report.steps, 0);
  EXPECT_GE(report.step_seconds, report.executor_seconds);
}

TEST(EngineTest, StopStringsAreFoundAcrossTokens) {
  const auto tokenizer = tiny_tokenizer();
  TestEngine test(small_settings(), {.vocab = kVocab}, tokenizer);
  const std::vector<int32_t> prompt = {5, 6, 7};
  const std::vector<int32_t> tokens = expected_tokens(prompt, 60, 1, kVocab);
  const std::string whole = tokenizer->decode(tokens, true);
  int32_t tried = 0;
  for (size_t at = 5; at + 4 < whole.size(); at += 3) {
    const std::string stop = whole.substr(at, 4);
    if (static_cast<unsigned char>(stop[0]) >= 0x80 || tokenizer->decode(std::span(tokens), true) != whole) continue;
    const size_t begin = whole.find(stop);
    EngineRequest request = request_of(prompt, 60);
    request.stop = {"never in here", "", stop};
    TokenStream stream = test.engine->submit(request).value();
    const Collected got = collect(stream)[0];
    EXPECT_EQ(got.text, whole.substr(0, begin)) << "stop string '" << stop << "'";
    EXPECT_EQ(got.last.end_reason, EndReason::kStop);
    EXPECT_EQ(got.last.stop_string, stop);
    // As few tokens as have the string in their text.
    size_t needed = 1;
    while (tokenizer->decode(std::span(tokens).first(needed), true).find(stop) == std::string::npos) ++needed;
    EXPECT_EQ(got.tokens, std::vector<int32_t>(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(needed)));

    request.include_stop = true;
    TokenStream inclusive = test.engine->submit(request).value();
    EXPECT_EQ(collect(inclusive)[0].text, whole.substr(0, begin) + stop);
    ++tried;
  }
  EXPECT_GT(tried, 10);
  expect_all_blocks_back(*test.engine);
}

TEST(EngineTest, StopTokensEndWithoutText) {
  const auto tokenizer = tiny_tokenizer();
  TestEngine test(small_settings(), {.vocab = kVocab}, tokenizer);
  const std::vector<int32_t> prompt = {9, 9, 4};
  const std::vector<int32_t> tokens = expected_tokens(prompt, 40, 3, kVocab);
  EngineRequest request = request_of(prompt, 40, 3);
  request.request.stop_token_ids = {tokens[20]};
  const auto first = std::ranges::find(tokens, tokens[20]) - tokens.begin();
  TokenStream stream = test.engine->submit(request).value();
  const Collected got = collect(stream)[0];
  EXPECT_EQ(got.tokens, std::vector<int32_t>(tokens.begin(), tokens.begin() + first + 1));
  EXPECT_EQ(got.text, tokenizer->decode(std::span(tokens).first(static_cast<size_t>(first)), true));
  EXPECT_EQ(got.last.end_reason, EndReason::kStop);
  EXPECT_EQ(got.last.stop_token, tokens[20]);

  request.request.min_tokens = 30;  // neither the token nor a string ends it before
  request.stop = {tokenizer->decode(std::span(tokens).subspan(2, 2), true)};
  TokenStream longer = test.engine->submit(request).value();
  EXPECT_GE(collect(longer)[0].tokens.size(), 30u);
}

TEST(EngineTest, CancellingAndLeavingStreamsFreesEverything) {
  TestEngine test;
  test.gate->delay_us = 200;
  {
    TokenStream stream = test.engine->submit(request_of({1, 2, 3}, 500)).value();
    Output output;
    ASSERT_TRUE(stream.next(output));
    stream.cancel();
    while (stream.next(output)) {
    }
    EXPECT_EQ(output.end_reason, EndReason::kCancelled);
    stream.cancel();  // nothing happens
  }
  for (int32_t i = 0; i < 40; ++i) {
    EngineRequest request = request_of({i, 2, 3}, 500);
    request.request.n = 1 + i % 4;
    TokenStream left = test.engine->submit(std::move(request)).value();
    Output output;
    if (i % 3 == 0) left.next(output);
    if (i % 5 == 0) left = test.engine->submit(request_of({7, i}, 3)).value();
  }
  expect_all_blocks_back(*test.engine);
  EXPECT_EQ(test.engine->report().choices_ended[static_cast<size_t>(EndReason::kFailed)], 0);
}

TEST(EngineTest, AReaderWhoDoesNotReadHoldsUpNobody) {
  TestEngine test;
  TokenStream unread = test.engine->submit(request_of({1, 2, 3}, 400)).value();
  for (int32_t i = 0; i < 20; ++i) {
    TokenStream stream = test.engine->submit(request_of({4, 5, i}, 50)).value();
    EXPECT_EQ(collect(stream)[0].tokens.size(), 50u);
  }
  EXPECT_TRUE(test.engine->drain(milliseconds(20000)));
  Output all;
  ASSERT_TRUE(unread.next(all)) << "what came meanwhile is joined";
  EXPECT_EQ(all.tokens, expected_tokens({1, 2, 3}, 400, 1, kVocab));
  EXPECT_EQ(all.end_reason, EndReason::kLength);
  EXPECT_FALSE(unread.next(all));
}

TEST(EngineTest, StreamsOutliveTheEngine) {
  auto test = std::make_unique<TestEngine>();
  test->gate->delay_us = 500;
  std::vector<TokenStream> streams = submit_many(*test->engine, 30, 1, 400);
  Output output;
  ASSERT_TRUE(streams[0].next(output));
  std::thread reader([&] {
    while (streams[1].next(output)) {
    }
  });
  test.reset();
  reader.join();
  EXPECT_EQ(output.end_reason, EndReason::kCancelled);
  for (size_t i = 2; i < streams.size(); ++i) {
    EXPECT_EQ(collect(streams[i])[0].last.end_reason, EndReason::kCancelled);
    streams[i].cancel();
  }
}

TEST(EngineTest, DrainServesWhatIsInAndTakesNoMore) {
  TestEngine test;
  test.gate->set_open(false);
  TokenStream stream = test.engine->submit(request_of({1, 2, 3}, 20)).value();
  EXPECT_FALSE(test.engine->drain(milliseconds(20)));
  const Result<TokenStream> late = test.engine->submit(request_of({1}, 2));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().message(), "the engine is shutting down and takes no more requests");
  test.gate->set_open(true);
  EXPECT_TRUE(test.engine->drain());
  EXPECT_EQ(collect(stream)[0].tokens.size(), 20u);
}

// Before a request's first step, and in its midst.
TEST(EngineTest, NothingRunsWhileItIsPaused) {
  TestEngine test;
  test.engine->pause();
  TokenStream first = test.engine->submit(request_of({1, 2, 3}, 20)).value();
  TokenStream leaves = test.engine->submit(request_of({4}, 20)).value();
  Output output;
  EXPECT_EQ(first.next_for(output, milliseconds(30)), TokenStream::Wait::kTimeout);
  leaves.cancel();
  EXPECT_EQ(collect(leaves)[0].last.end_reason, EndReason::kCancelled);
  EXPECT_EQ(test.engine->report().steps, 0);
  test.engine->resume();
  EXPECT_EQ(collect(first)[0].tokens, expected_tokens({1, 2, 3}, 20, 1, kVocab));

  test.gate->delay_us = 500;
  TokenStream stream = test.engine->submit(request_of({5, 6}, 300)).value();
  ASSERT_TRUE(stream.next(output));
  std::vector<int32_t> tokens = output.tokens;
  test.engine->pause();
  // What is in flight ends.
  while (stream.next_for(output, milliseconds(100)) == TokenStream::Wait::kOutput)
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
  EXPECT_LT(tokens.size(), 300u);
  const EngineReport held = test.engine->report();
  EXPECT_EQ(held.num_running, 1);
  const double cpu = process_cpu_seconds();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(test.engine->report().steps, held.steps);
  EXPECT_LT(process_cpu_seconds() - cpu, 0.1) << "it sleeps";
  test.engine->resume();
  const Collected rest = collect(stream)[0];
  tokens.insert(tokens.end(), rest.tokens.begin(), rest.tokens.end());
  EXPECT_EQ(tokens, expected_tokens({5, 6}, 300, 1, kVocab));
  expect_all_blocks_back(*test.engine);
}

TEST(EngineTest, AnEngineThatIsPausedCanBeDestroyed) {
  TestEngine test;
  test.engine->pause();
  TokenStream stream = test.engine->submit(request_of({1, 2, 3}, 20)).value();
  test.engine.reset();
  EXPECT_EQ(collect(stream)[0].last.end_reason, EndReason::kCancelled);
}

TEST(EngineTest, AProfileHasEveryStep) {
  TestEngine test;
  EXPECT_FALSE(test.engine->stop_profile());
  const auto run = [&] {
    TokenStream stream = test.engine->submit(request_of({1, 2, 3}, 20)).value();
    collect(stream);
    expect_all_blocks_back(*test.engine);
  };
  run();
  const EngineReport before = test.engine->report();
  const auto begin = std::chrono::steady_clock::now();
  test.engine->start_profile();
  test.gate->delay_us = 200;
  run();
  const std::optional<EngineProfile> profile = test.engine->stop_profile();
  const EngineReport after = test.engine->report();
  run();
  EXPECT_FALSE(test.engine->stop_profile()) << "it has ended";
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->steps_lost, 0);
  ASSERT_EQ(static_cast<int64_t>(profile->steps.size()), after.steps - before.steps);
  int64_t tokens = 0;
  int32_t prefills = 0;
  auto last = begin;
  for (const ProfiledStep& of : profile->steps) {
    EXPECT_GE(of.submitted, last);
    last = of.submitted;
    const double seconds = std::chrono::duration<double>(of.ended - of.submitted).count();
    EXPECT_GE(of.executor_seconds, 200e-6);
    EXPECT_LE(of.executor_seconds, seconds + 1e-6);
    tokens += of.step.tokens;
    prefills += of.step.prefills;
  }
  EXPECT_EQ(tokens, after.step_tokens - before.step_tokens);
  EXPECT_EQ(prefills, 1);
  const auto up_to = [&](int32_t most) {
    return std::ranges::count_if(profile->steps, [&](const ProfiledStep& of) { return of.step.tokens <= most; });
  };
  EXPECT_GT(up_to(1), 0);
  EXPECT_EQ(after.steps_by_tokens[0] - before.steps_by_tokens[0], up_to(1));
  EXPECT_EQ(after.steps_by_tokens[1] - before.steps_by_tokens[1], up_to(8) - up_to(1));
}

TEST(EngineTest, ATimeoutEndsTheRequest) {
  TestEngine test;
  test.gate->delay_us = 2000;
  EngineRequest request = request_of({1, 2, 3}, 500);
  request.timeout = milliseconds(30);
  TokenStream stream = test.engine->submit(std::move(request)).value();
  const Collected got = collect(stream)[0];
  EXPECT_EQ(got.last.end_reason, EndReason::kDeadline);
  EXPECT_LT(got.tokens.size(), 100u);
  EXPECT_GT(got.tokens.size(), 0u);
}

TEST(EngineTest, WaitingHasALimit) {
  TestEngine test;
  test.gate->set_open(false);
  TokenStream stream = test.engine->submit(request_of({1, 2, 3}, 20)).value();
  Output output;
  EXPECT_EQ(stream.next_for(output, milliseconds(10)), TokenStream::Wait::kTimeout);
  test.gate->set_open(true);
  EXPECT_EQ(stream.next_for(output, milliseconds(20000)), TokenStream::Wait::kOutput);
  while (stream.next(output)) {
  }
  EXPECT_EQ(stream.next_for(output, milliseconds(10)), TokenStream::Wait::kEnd);
}

TEST(EngineTest, ARefusedStepIsTriedAgain) {
  TestEngine test;
  test.gate->refusals = 5;
  TokenStream stream = test.engine->submit(request_of({1, 2, 3}, 20)).value();
  EXPECT_EQ(collect(stream)[0].tokens, expected_tokens({1, 2, 3}, 20, 1, kVocab));
  EXPECT_EQ(test.engine->report().steps_refused, 5);
}

TEST(EngineTest, ALostDeviceEndsAllAndSaysSo) {
  TestEngine test;
  test.gate->set_open(false);
  std::vector<TokenStream> streams = submit_many(*test.engine, 12, 1, 100);
  test.gate->lost = true;
  test.gate->set_open(true);
  for (TokenStream& stream : streams) {
    const Collected got = collect(stream)[0];
    EXPECT_EQ(got.last.end_reason, EndReason::kFailed);
    EXPECT_EQ(got.last.error, "the engine has lost its device (the cable was pulled); make a new engine");
  }
  EXPECT_TRUE(test.engine->lost());
  const Result<TokenStream> next = test.engine->submit(request_of({1}, 2));
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().message(), "the engine has lost its device (the cable was pulled); make a new engine");
}

TEST(EngineTest, BrokenLogitsFailTheirRequestAlone) {
  TestEngine test(small_settings(), {.vocab = kVocab, .not_finite = 0.02});
  std::vector<TokenStream> streams = submit_many(*test.engine, 40, 3, 30);
  int32_t failed = 0;
  for (int32_t i = 0; i < 40; ++i) {
    const Collected got = collect(streams[static_cast<size_t>(i)])[0];
    if (got.last.end_reason == EndReason::kFailed) {
      ++failed;
      EXPECT_EQ(got.last.error, "the model's logits for this request are not finite numbers");
    } else {
      EXPECT_EQ(got.tokens, expected_tokens({3, i}, 30, 1, kVocab));
    }
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 40);
}

// Through the queues to the reader, joined for one who is slow.
TEST(EngineTest, LogprobsComeWithTheirTokens) {
  EngineSettings settings = small_settings();
  settings.max_logprobs = 4;
  TestEngine test(settings);
  std::vector<TokenStream> streams;
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 24; ++i) {
    std::vector<int32_t> prompt(static_cast<size_t>(1 + i * 9));
    for (size_t p = 0; p < prompt.size(); ++p) prompt[p] = (static_cast<int32_t>(p) * 7 + i / 2) % kVocab;
    EngineRequest request = request_of(prompt, 1 + i % 9 * 4);
    request.request.n = 1 + i % 3;
    if (i % 4 != 0) request.request.logprobs = i % 5;
    if (i % 3 != 0) request.request.prompt_logprobs = (i + 2) % 5;
    streams.push_back(test.engine->submit(std::move(request)).value());
    prompts.push_back(std::move(prompt));
  }
  for (int32_t i = 0; i < 24; ++i) {
    const auto n = static_cast<size_t>(1 + i % 3);
    std::vector<std::vector<int32_t>> tokens(n);
    std::vector<Logprobs> logprobs(n);
    Logprobs of_prompt;
    Output output;
    while (streams[static_cast<size_t>(i)].next(output)) {
      const auto choice = static_cast<size_t>(output.choice);
      EXPECT_EQ(output.logprobs.size(), i % 4 != 0 ? output.tokens.size() : 0);
      EXPECT_EQ(output.logprobs.top_tokens.size(),
                output.logprobs.size() * static_cast<size_t>(i % 4 != 0 ? i % 5 : 0));
      EXPECT_TRUE(output.prompt_logprobs.empty() || (output.choice == 0 && tokens[0].empty()));
      tokens[choice].insert(tokens[choice].end(), output.tokens.begin(), output.tokens.end());
      logprobs[choice].append(output.logprobs.rows(0, output.logprobs.size()));
      of_prompt.append(output.prompt_logprobs.rows(0, output.prompt_logprobs.size()));
    }
    const std::vector<int32_t>& prompt = prompts[static_cast<size_t>(i)];
    ASSERT_EQ(of_prompt.size(), i % 3 != 0 ? prompt.size() - 1 : 0);
    TextHash text = empty_text("");
    for (size_t p = 0; p < prompt.size(); ++p) {
      if (p > 0 && !of_prompt.empty()) {
        EXPECT_EQ(of_prompt.logprobs[p - 1], fake_logprob(text, prompt[p]));
      }
      text = append(text, prompt[p]);
    }
    for (size_t choice = 0; choice < n; ++choice) {
      TextHash whole = text;
      EXPECT_EQ(tokens[choice].size(), static_cast<size_t>(1 + i % 9 * 4));
      for (size_t t = 0; t < tokens[choice].size(); ++t) {
        if (i % 4 != 0) {
          EXPECT_EQ(logprobs[choice].logprobs[t], fake_logprob(whole, tokens[choice][t]));
        }
        whole = append(whole, tokens[choice][t]);
      }
    }
  }
  settings.max_logprobs = -1;
  TestEngine none(settings);
  EngineRequest request = request_of({1, 2}, 3);
  request.request.logprobs = 0;
  EXPECT_EQ(none.engine->submit(request).error().message(),
            "logprobs was asked for, and this engine gives none; raise max_logprobs");
}

// Through the queues to the reader, joined for one who is slow. The fake selection of a token is the position before
// it.
TEST(EngineTest, SelectionsComeWithTheirTokens) {
  EngineSettings settings = small_settings();
  settings.limits.index_topk = 2;
  settings.max_traced_rows = 4;
  TestEngine test(settings);
  std::vector<TokenStream> streams;
  for (int32_t i = 0; i < 24; ++i) {
    EngineRequest request = request_of(std::vector<int32_t>(static_cast<size_t>(1 + i * 9), i), 1 + i % 9 * 4);
    request.request.n = 1 + i % 3;
    request.request.trace_selections = i % 4 != 0;
    streams.push_back(test.engine->submit(std::move(request)).value());
  }
  int64_t told = 0, not_told = 0;
  for (int32_t i = 0; i < 24; ++i) {
    std::vector<int32_t> position(static_cast<size_t>(1 + i % 3), i * 9);
    Output output;
    while (streams[static_cast<size_t>(i)].next(output)) {
      ASSERT_EQ(output.selections.size(), i % 4 != 0 ? output.tokens.size() : 0);
      auto run = output.selections.runs.begin();
      for (const int32_t count : output.selections.num_runs) {
        const int32_t at = position[static_cast<size_t>(output.choice)]++;
        ++(count == SelectionTrace::kNoRoom ? not_told : told);
        if (count == SelectionTrace::kNoRoom) continue;
        ASSERT_EQ(count, 1);
        EXPECT_EQ(*run++, (SelectedRun{at, at + 1}));
      }
      EXPECT_TRUE(run == output.selections.runs.end());
    }
  }
  EXPECT_GT(told, 100);
  EXPECT_GT(not_told, 0);
}

TEST(EngineTest, AFullQueueRefuses) {
  EngineSettings settings = small_settings();
  settings.max_queued = 3;
  TestEngine test(settings);
  test.gate->set_open(false);
  std::vector<TokenStream> streams;
  std::string refusal;
  for (int32_t i = 0; i < 50 && refusal.empty(); ++i) {
    Result<TokenStream> stream = test.engine->submit(request_of({1, i}, 10));
    if (stream.ok()) {
      streams.push_back(std::move(*stream));
    } else {
      EXPECT_EQ(stream.error().code(), ErrorCode::kOutOfMemory);
      refusal = stream.error().message();
    }
  }
  EXPECT_EQ(refusal, "3 sequences wait and max_queued is 3; try again later or raise max_queued");
  test.gate->set_open(true);
  for (TokenStream& stream : streams) EXPECT_EQ(collect(stream)[0].last.end_reason, EndReason::kLength);
}

TEST(EngineTest, SenselessRequestsAreRefusedAtOnce) {
  TestEngine test;
  const auto refusal = [&](const std::function<void(EngineRequest&)>& change) {
    EngineRequest request = request_of({1, 2, 3}, 20);
    change(request);
    const Result<TokenStream> stream = test.engine->submit(std::move(request));
    return stream.ok() ? std::string("accepted") : stream.error().message();
  };
  EXPECT_EQ(refusal([](EngineRequest&) {}), "accepted");
  EXPECT_EQ(refusal([](EngineRequest& r) { r.request.prompt.clear(); }),
            "the prompt is empty; give at least one token");
  EXPECT_EQ(refusal([](EngineRequest& r) { r.request.prompt = {1, kVocab}; }),
            "the prompt has token id 2000, which is outside the vocabulary of 2000");
  EXPECT_EQ(refusal([](EngineRequest& r) { r.request.stop_token_ids = {-1}; }),
            "stop_token_ids has token id -1, which is outside the vocabulary of 2000");
  EXPECT_EQ(refusal([](EngineRequest& r) { r.stop = {"x"}; }),
            "stop strings need a tokenizer, which this engine was made without; use stop_token_ids");
  EXPECT_EQ(refusal([](EngineRequest& r) { r.request.logprobs = 21; }),
            "logprobs is 21; between 0 and 20 alternatives can be listed");
  EXPECT_EQ(refusal([](EngineRequest& r) { r.request.prompt_logprobs = -2; }),
            "prompt_logprobs is -2; between 0 and 20 alternatives can be listed");
  EXPECT_EQ(refusal([](EngineRequest& r) { r.timeout = milliseconds(0); }),
            "timeout is 0 ms; give at least 1 ms, or none");
  EXPECT_EQ(refusal([](EngineRequest& r) { r.request.n = 2000000000; }),
            "n is 2000000000 and 8 sequences run at a time; lower it or raise max_num_seqs");
}

// Neither the core nor the hand-over of outputs allocates, step after step; only where the delivery thread falls behind
// does its queue grow, by doubling.
TEST(EngineTest, StepsAllocateNothing) {
  EngineSettings settings = small_settings();
  settings.limits.max_model_len = 8192;
  settings.limits.max_blocks_per_request = 512;
  settings.limits.num_blocks = 8 * 512 + 1;
  Engine::Parts parts;
  const auto gate = std::make_shared<Gate>();
  std::vector<int64_t> seen;
  seen.reserve(100000);
  gate->delay_us = 20;  // as a real step: the delivery thread keeps up
  gate->on_step = [&] { seen.push_back(thread_allocations()); };
  parts.settings = settings;
  parts.executor = std::make_unique<GatedExecutor>(
      std::make_unique<NullExecutor>(EngineSettings::checked(settings).value(), 1), gate);
  const std::unique_ptr<Engine> engine = Engine::create(std::move(parts)).value();
  gate->set_open(false);
  std::vector<TokenStream> streams = submit_many(*engine, 8, 1, 8000);
  gate->set_open(true);
  ASSERT_TRUE(engine->drain());
  ASSERT_GT(seen.size(), 2000u);
  // Three buffers of two lists that grow, each ten times at most until it held all that there is.
  EXPECT_LE(seen.back() - seen[100], 60) << "in " << seen.size() - 100 << " steps";
}

TEST(EngineTest, CallbacksMayCancel) {
  TestEngine test;
  test.gate->delay_us = 500;
  std::mutex mutex;
  std::condition_variable ended;
  std::vector<EndReason> ends;
  std::vector<RequestHandle> handles(20);
  for (size_t i = 0; i < handles.size(); ++i) {
    const std::lock_guard lock(mutex);  // the callback waits until its handle is there
    handles[i] = test.engine
                     ->submit(request_of({1, static_cast<int32_t>(i)}, 450),
                              [&, i](Output&& output) {
                                const std::lock_guard inner(mutex);
                                if (output.ended()) {
                                  ends.push_back(output.end_reason);
                                  ended.notify_one();
                                } else {
                                  handles[i].cancel();
                                }
                              })
                     .value();
  }
  std::unique_lock lock(mutex);
  ASSERT_TRUE(ended.wait_for(lock, std::chrono::seconds(30), [&] { return ends.size() == handles.size(); }));
  EXPECT_EQ(std::ranges::count(ends, EndReason::kCancelled), static_cast<ptrdiff_t>(ends.size()));
}

}  // namespace
}  // namespace lantern
