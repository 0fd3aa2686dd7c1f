// The public interfaces, through the shared library and on the shipped model.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "lantern/engine.h"

extern "C" uint32_t lantern_engine_header_is_c(void);

namespace {

const std::string kModel = LANTERN_SOURCE_DIR "/models/tiny";
const std::string kQuestion =
    "Question: Tom has 12 apples. He buys 3 bags with 5 apples each. How many apples does he have now?";

// One for all tests: loading is not what they are about.
lantern::Engine& engine() {
  static lantern::Result<lantern::Engine> made = lantern::Engine::create(
      {.model_dir = kModel, .max_num_seqs = 8, .max_num_batched_tokens = 128, .kv_cache_bytes = int64_t{64} << 20});
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *made;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::string text;
  lantern::Output last;
};
std::vector<Answer> read_all(lantern::TokenStream& stream, size_t n = 1) {
  std::vector<Answer> answers(n);
  while (const auto output = stream.next()) {
    Answer& answer = answers.at(static_cast<size_t>(output->choice));
    answer.tokens.insert(answer.tokens.end(), output->tokens.begin(), output->tokens.end());
    answer.text += output->text;
    answer.last = *output;
  }
  EXPECT_TRUE(stream.ended());
  return answers;
}
Answer ask(const lantern::Request& request) {
  auto stream = engine().submit(request);
  if (!stream.ok()) {
    ADD_FAILURE() << stream.error().message;
    return {};
  }
  return read_all(*stream)[0];
}
std::string refusal(const lantern::Request& request) {
  const auto stream = engine().submit(request);
  return stream.ok() ? "accepted" : stream.error().message;
}

TEST(PublicApi, AnswersAlikeAloneAndTogether) {
  const Answer alone = ask({.prompt = kQuestion, .max_tokens = 64});
  EXPECT_NE(alone.text.find("27"), std::string::npos) << alone.text;
  EXPECT_EQ(alone.last.end_reason, LANTERN_END_STOP);
  EXPECT_GT(alone.last.prompt_tokens, 10);
  std::array<Answer, 6> answers;
  std::vector<std::thread> threads;
  threads.reserve(answers.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    threads.emplace_back([&, i] {
      answers[i] = i % 2 == 0 ? ask({.prompt = kQuestion, .max_tokens = 64})
                              : ask({.prompt = "Copy: a b c", .max_tokens = 20 + static_cast<int32_t>(i)});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < answers.size(); i += 2) EXPECT_EQ(answers[i].text, alone.text);
  const lantern_engine_stats stats = engine().stats();
  EXPECT_GE(stats.num_ended, 7);
  EXPECT_GT(stats.steps, 0);
  EXPECT_EQ(stats.max_model_len, 2048);
  EXPECT_GE(stats.step_seconds, stats.executor_seconds);
}

TEST(PublicApi, TokensTextAndConversationsAreThreeWaysToAsk) {
  const Answer text = ask({.prompt = "Copy: a b c", .max_tokens = 16, .ignore_eos = true});
  EXPECT_EQ(text.tokens.size(), 16u);
  const Answer chat =
      ask({.messages = {{"system", "Answer briefly."}, {"user", "What is 6 times 7?"}}, .max_tokens = 64});
  EXPECT_NE(chat.text, "");
  const Answer ids = ask({.prompt_tokens = {0, 50, 60, 70}, .max_tokens = 5, .ignore_eos = true});
  EXPECT_EQ(ids.tokens.size(), 5u);
  EXPECT_EQ(ids.last.end_reason, LANTERN_END_LENGTH);
}

TEST(PublicApi, ChoicesStopStringsAndSeeds) {
  auto stream = engine().submit(
      {.prompt = kQuestion, .max_tokens = 24, .n = 3, .temperature = 20.0f, .seed = 9, .ignore_eos = true});
  ASSERT_TRUE(stream.ok()) << stream.error().message;
  const std::vector<Answer> choices = read_all(*stream, 3);
  EXPECT_NE(choices[0].tokens, choices[1].tokens);
  EXPECT_NE(choices[1].tokens, choices[2].tokens);
  const Answer again =
      ask({.prompt = kQuestion, .max_tokens = 24, .temperature = 20.0f, .seed = 9, .ignore_eos = true});
  EXPECT_EQ(again.tokens, choices[0].tokens);

  const Answer whole = ask({.prompt = kQuestion, .max_tokens = 40});
  const std::string stop = whole.text.substr(whole.text.size() / 2, 4);
  const Answer cut = ask({.prompt = kQuestion, .max_tokens = 40, .stop = {stop}});
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_EQ(cut.last.stop_string, stop);
  EXPECT_EQ(cut.last.end_reason, LANTERN_END_STOP);
}

TEST(PublicApi, BiasesAndBadWordsKeepTokensAway) {
  const Answer free = ask({.prompt = kQuestion, .max_tokens = 24, .ignore_eos = true});
  const int32_t first = free.tokens[0];
  const Answer biased =
      ask({.prompt = kQuestion, .max_tokens = 24, .ignore_eos = true, .logit_bias = {{first, -100.0f}}});
  EXPECT_EQ(std::ranges::count(biased.tokens, first), 0);
  const Answer kept = ask({.prompt = kQuestion, .max_tokens = 24, .ignore_eos = true, .bad_words = {"15"}});
  EXPECT_NE(free.text.find("15"), std::string::npos) << free.text;
  EXPECT_EQ(kept.text.find("15"), std::string::npos) << kept.text;
  const Answer penalised = ask({.prompt = kQuestion, .max_tokens = 24, .ignore_eos = true, .repetition_penalty = 5.0f});
  EXPECT_NE(penalised.tokens, free.tokens);
  EXPECT_NE(refusal({.prompt = "x", .presence_penalty = 3}).find("presence_penalty"), std::string::npos);
  EXPECT_EQ(refusal({.prompt = "x", .bad_words = {" "}}), "the bad word ' ' has no text; give at least one character");
}

TEST(PublicApi, LogprobsOfOutputsAndPrompts) {
  auto stream = engine().submit({.prompt = kQuestion, .max_tokens = 12, .n = 2, .logprobs = 3, .prompt_logprobs = 1});
  ASSERT_TRUE(stream.ok()) << stream.error().message;
  std::vector<std::vector<lantern::TokenLogprob>> of_output(2);
  std::vector<lantern::TokenLogprob> of_prompt;
  std::vector<std::vector<int32_t>> tokens(2);
  int32_t prompt_tokens = 0;
  while (const auto output = stream->next()) {
    const auto choice = static_cast<size_t>(output->choice);
    EXPECT_EQ(output->logprobs.size(), output->tokens.size());
    tokens[choice].insert(tokens[choice].end(), output->tokens.begin(), output->tokens.end());
    of_output[choice].insert(of_output[choice].end(), output->logprobs.begin(), output->logprobs.end());
    of_prompt.insert(of_prompt.end(), output->prompt_logprobs.begin(), output->prompt_logprobs.end());
    prompt_tokens = output->prompt_tokens;
  }
  EXPECT_EQ(of_prompt.size(), static_cast<size_t>(prompt_tokens) - 1);
  for (const lantern::TokenLogprob& token : of_prompt) {
    ASSERT_EQ(token.top.size(), 1u);
    EXPECT_LE(token.logprob, token.top[0].second);
    EXPECT_EQ(token.rank == 1, token.logprob == token.top[0].second);
  }
  for (size_t choice = 0; choice < 2; ++choice) {
    ASSERT_EQ(of_output[choice].size(), 12u);
    for (size_t t = 0; t < 12; ++t) {  // greedy
      const lantern::TokenLogprob& token = of_output[choice][t];
      ASSERT_EQ(token.top.size(), 3u);
      EXPECT_EQ(token.rank, 1);
      EXPECT_EQ(token.top[0], std::pair(tokens[choice][t], token.logprob));
      EXPECT_GE(token.top[0].second, token.top[1].second);
      EXPECT_GE(token.top[1].second, token.top[2].second);
    }
  }
  const Answer plain = ask({.prompt = kQuestion, .max_tokens = 12});
  EXPECT_EQ(plain.tokens, tokens[0]);
  EXPECT_TRUE(plain.last.logprobs.empty());
  EXPECT_EQ(refusal({.prompt = "x", .logprobs = 21}), "logprobs is 21; between 0 and 20 alternatives can be listed");
  EXPECT_EQ(refusal({.prompt = "x", .prompt_logprobs = -1}),
            "lantern_request.top_prompt_logprobs is -1; give 0 or more");
}

TEST(PublicApi, AllowedTokensConstrainTheText) {
  const Answer free = ask({.prompt = kQuestion, .max_tokens = 12, .ignore_eos = true});
  const std::vector<int32_t> list = {free.tokens[0], free.tokens[1], 300, 301};
  const auto some = [&](lantern::NextToken& next) {
    // Each token of the list in turn from the second one on.
    if (next.num_tokens() == 0) {
      for (const int32_t token : list) next.allow(token);
    } else {
      next.allow(list[next.num_tokens() % list.size()]);
    }
    next.allow(-1);
    next.allow(1 << 30);
  };
  const Answer kept = ask({.prompt = kQuestion, .max_tokens = 7, .ignore_eos = true, .allowed_tokens = some});
  ASSERT_EQ(kept.tokens.size(), 7u);
  EXPECT_EQ(kept.tokens[0], free.tokens[0]) << "the likeliest of those that may come";
  for (size_t t = 1; t < 7; ++t) EXPECT_EQ(kept.tokens[t], list[t % list.size()]);
  const Answer all = ask({.prompt = kQuestion, .max_tokens = 12, .ignore_eos = true, .allowed_tokens = [](auto& next) {
                            next.allow_all();
                          }});
  EXPECT_EQ(all.tokens, free.tokens);

  const Answer thrown = ask({.prompt = kQuestion, .max_tokens = 12, .allowed_tokens = [](lantern::NextToken& next) {
                               if (next.num_tokens() == 3) throw std::runtime_error("no way on");
                               next.allow_all();
                             }});
  EXPECT_EQ(thrown.last.end_reason, LANTERN_END_FAILED);
  EXPECT_EQ(thrown.last.error, "what says which tokens are allowed has failed: no way on");
  EXPECT_EQ(thrown.tokens, std::vector<int32_t>(free.tokens.begin(), free.tokens.begin() + 3));
  const Answer none = ask({.prompt = kQuestion, .max_tokens = 12, .allowed_tokens = [](lantern::NextToken&) {}});
  EXPECT_EQ(none.last.end_reason, LANTERN_END_FAILED);
  EXPECT_EQ(none.last.error,
            "no token may follow: the request's mask, logit_bias, bad_words and min_tokens forbid all");
  EXPECT_TRUE(none.tokens.empty());
}

TEST(PublicApi, CancellingWaitingAndTimeouts) {
  auto stream = engine().submit({.prompt = kQuestion, .ignore_eos = true});
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE(stream->next());
  stream->cancel();
  EXPECT_EQ(read_all(*stream)[0].last.end_reason, LANTERN_END_CANCELLED);
  // Where nothing can come, a moment that has passed is not waited for; for ever would be until the hook gives up.
  std::atomic<bool> may_go_on{false};
  auto held = engine().submit({.prompt = kQuestion, .max_tokens = 1, .allowed_tokens = [&](lantern::NextToken& next) {
                                 for (int i = 0; i < 5000 && !may_go_on; ++i)
                                   std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                 next.allow_all();
                               }});
  ASSERT_TRUE(held.ok());
  EXPECT_FALSE(held->next_for(std::chrono::milliseconds(-1)));
  EXPECT_FALSE(held->ended());
  may_go_on = true;
  EXPECT_EQ(read_all(*held)[0].tokens.size(), 1u);
  const Answer late = ask({.prompt = kQuestion, .ignore_eos = true, .timeout = std::chrono::milliseconds(30)});
  EXPECT_EQ(late.last.end_reason, LANTERN_END_TIMEOUT);
  {
    const auto dropped = engine().submit({.prompt = kQuestion, .ignore_eos = true});
  }
}

TEST(PublicApi, WhatMakesNoSenseIsRefusedWithOneSentence) {
  EXPECT_EQ(refusal({}),
            "a lantern_request has exactly one of prompt_tokens, prompt and message_roles, but 0 were given");
  EXPECT_EQ(refusal({.prompt_tokens = {1}, .prompt = "x"}),
            "a lantern_request has exactly one of prompt_tokens, prompt and message_roles, but 2 were given");
  EXPECT_EQ(refusal({.messages = {{"robot", "x"}}}),
            "'robot' is no role; use system, developer, user, assistant or tool");
  EXPECT_EQ(refusal({.prompt_tokens = {99999}}),
            "the prompt has token id 99999, which is outside the vocabulary of 2048");
  EXPECT_EQ(refusal({.prompt = "x", .max_tokens = -1}), "max_tokens is -1; ask for at least 1");
  EXPECT_NE(refusal({.prompt = "x", .temperature = -1}).find("temperature"), std::string::npos);
  EXPECT_NE(refusal({.prompt = "x", .top_p = 2}).find("top_p"), std::string::npos);
  EXPECT_EQ(refusal({.prompt_tokens = std::vector<int32_t>(2048, 5)}),
            "the prompt has 2048 tokens and the context holds 2048; shorten it or raise max_model_len");
}

TEST(PublicApi, WrongModelsAndSettings) {
  const auto error_of = [](const lantern::EngineConfig& config) {
    const auto made = lantern::Engine::create(config);
    return made.ok() ? lantern::Error{} : made.error();
  };
  EXPECT_EQ(error_of({.model_dir = "/nonexistent"}).status, LANTERN_NOT_FOUND);
  EXPECT_NE(error_of({.model_dir = "/nonexistent"}).message.find("/nonexistent"), std::string::npos);
  EXPECT_EQ(error_of({.model_dir = kModel, .max_num_seqs = -1}).message, "max_num_seqs is -1; set it to at least 1");
  EXPECT_EQ(error_of({.model_dir = kModel, .max_queued = 2147483647}).message,
            "max_queued is 2147483647; set it to at most 1000000");
  EXPECT_EQ(error_of({.model_dir = kModel, .max_model_len = 100000}).message,
            "max_model_len 100000 is outside [1, 2048], the context that the model's config gives");
  const lantern::Error small = error_of({.model_dir = kModel, .kv_cache_bytes = 1000});
  EXPECT_EQ(small.status, LANTERN_OUT_OF_MEMORY);
  EXPECT_NE(small.message.find("raise kv_cache_bytes"), std::string::npos) << small.message;
  EXPECT_EQ(error_of({.model_dir = kModel, .num_draft_tokens = 1, .drafter = "oracle"}).message,
            "drafter 'oracle' is not known; use auto, mtp or ngram");
  EXPECT_EQ(error_of({.model_dir = kModel, .graphs = "some"}).message,
            "graphs 'some' are not known; use auto, none, piecewise, full, full_and_piecewise or verify");
  EXPECT_NE(error_of({.model_dir = kModel, .device = "abacus"}).message.find("abacus"), std::string::npos);
  EXPECT_NE(error_of({.model_dir = kModel, .max_num_seqs = 64, .max_num_batched_tokens = 32})
                .message.find("max_num_batched_tokens is 32"),
            std::string::npos);
}

TEST(PublicApi, DraftsDoNotChangeTheText) {
  const Answer plain = ask({.prompt = kQuestion, .max_tokens = 48, .ignore_eos = true});
  for (const std::string drafter : {"auto", "mtp", "ngram"}) {
    auto own = lantern::Engine::create({.model_dir = kModel,
                                        .max_num_seqs = 2,
                                        .num_draft_tokens = 3,
                                        .kv_cache_bytes = int64_t{64} << 20,
                                        .drafter = drafter});
    ASSERT_TRUE(own.ok()) << own.error().message;
    auto stream = own->submit({.prompt = kQuestion, .max_tokens = 48, .ignore_eos = true});
    ASSERT_TRUE(stream.ok()) << stream.error().message;
    EXPECT_EQ(read_all(*stream)[0].tokens, plain.tokens) << drafter;
  }
}

TEST(PublicApi, GraphsDoNotChangeTheText) {
  const Answer plain = ask({.prompt = kQuestion, .max_tokens = 48, .ignore_eos = true});
  for (const std::string graphs : {"none", "piecewise", "full", "full_and_piecewise", "verify"}) {
    auto own = lantern::Engine::create({.model_dir = kModel,
                                        .max_num_seqs = 2,
                                        .num_draft_tokens = 2,
                                        .kv_cache_bytes = int64_t{64} << 20,
                                        .graphs = graphs});
    ASSERT_TRUE(own.ok()) << own.error().message;
    auto stream = own->submit({.prompt = kQuestion, .max_tokens = 48, .ignore_eos = true});
    ASSERT_TRUE(stream.ok()) << stream.error().message;
    EXPECT_EQ(read_all(*stream)[0].tokens, plain.tokens) << graphs;
  }
}

TEST(PublicApi, AStreamOutlivesItsEngine) {
  auto own = lantern::Engine::create({.model_dir = kModel, .max_num_seqs = 2, .kv_cache_bytes = int64_t{64} << 20});
  ASSERT_TRUE(own.ok()) << own.error().message;
  auto stream = own->submit({.prompt = kQuestion, .ignore_eos = true});
  auto unread = own->submit({.prompt = kQuestion, .max_tokens = 3, .ignore_eos = true});
  ASSERT_TRUE(stream.ok() && unread.ok());
  ASSERT_TRUE(stream->next());
  EXPECT_FALSE(own->drain(std::chrono::milliseconds(1)));
  EXPECT_EQ(own->submit({.prompt = "x"}).error().status, LANTERN_UNSUPPORTED);
  {
    const lantern::Engine gone = std::move(*own);
  }
  EXPECT_EQ(read_all(*stream)[0].last.end_reason, LANTERN_END_CANCELLED);
  (void)read_all(*unread);
}

TEST(PublicApi, RanksAnswerAlike) {
  const lantern::Request request = {.prompt = kQuestion, .max_tokens = 64};
  const Answer alone = ask(request);
  auto ranks = lantern::Engine::create({.model_dir = kModel,
                                        .max_num_seqs = 4,
                                        .max_num_batched_tokens = 128,
                                        .num_draft_tokens = 2,
                                        .kv_cache_bytes = int64_t{64} << 20,
                                        .data_parallel_size = 2});
  ASSERT_TRUE(ranks.ok()) << ranks.error().message;
  std::vector<lantern::TokenStream> streams;
  streams.reserve(4);
  for (int i = 0; i < 4; ++i) {
    lantern::Request salted = request;
    salted.cache_salt = std::to_string(i);  // no prefix draws them to one rank
    auto stream = ranks->submit(salted);
    ASSERT_TRUE(stream.ok()) << stream.error().message;
    streams.push_back(std::move(*stream));
  }
  for (lantern::TokenStream& stream : streams) EXPECT_EQ(read_all(stream)[0].text, alone.text);
  EXPECT_TRUE(ranks->drain());
  const lantern_engine_stats all = ranks->stats();
  EXPECT_EQ(all.num_ranks, 2);
  EXPECT_EQ(all.num_submitted, 4);
  EXPECT_EQ(ranks->rank_stats(0).num_submitted, 2);
  EXPECT_EQ(ranks->rank_stats(1).num_submitted, 2);
  EXPECT_EQ(ranks->rank_stats(2).num_ranks, 0);
}

TEST(CAbi, TheHeaderIsC) {
  EXPECT_EQ(lantern_engine_header_is_c(), LANTERN_ENGINE_ABI_VERSION);
  EXPECT_EQ(lantern_engine_abi_version(), LANTERN_ENGINE_ABI_VERSION);
}

TEST(CAbi, StructsOfOtherVersions) {
  lantern_engine_config config{};
  lantern_engine* made = nullptr;
  EXPECT_EQ(lantern_engine_create(&config, &made), LANTERN_INVALID_ARGUMENT);
  EXPECT_NE(std::string(lantern_last_error()).find("lantern_engine_config.struct_size is 0"), std::string::npos);
  EXPECT_EQ(lantern_engine_create(nullptr, &made), LANTERN_INVALID_ARGUMENT);
  EXPECT_STREQ(lantern_last_error(), "lantern_engine_config is NULL");
  config.struct_size = sizeof(config);
  EXPECT_EQ(lantern_engine_create(&config, nullptr), LANTERN_INVALID_ARGUMENT);
  EXPECT_EQ(lantern_engine_create(&config, &made), LANTERN_INVALID_ARGUMENT);
  EXPECT_STREQ(lantern_last_error(), "lantern_engine_config.model_dir is NULL; name the model's folder");
  // A caller from before `drafter`, whose bytes behind its own struct are anything.
  const std::string nowhere = "/nonexistent";
  const std::string garbage = "no drafter";
  config.model_dir = nowhere.c_str();
  config.drafter = garbage.c_str();
  EXPECT_EQ(lantern_engine_create(&config, &made), LANTERN_INVALID_ARGUMENT);
  EXPECT_NE(std::string(lantern_last_error()).find("no drafter"), std::string::npos) << lantern_last_error();
  config.struct_size = offsetof(lantern_engine_config, drafter);
  EXPECT_EQ(lantern_engine_create(&config, &made), LANTERN_NOT_FOUND) << lantern_last_error();
  struct Newer {
    lantern_engine_config known;
    int32_t more;
  } newer{};
  newer.known.struct_size = sizeof(newer);
  newer.more = 1;
  EXPECT_EQ(lantern_engine_create(&newer.known, &made), LANTERN_INVALID_ARGUMENT);
  EXPECT_NE(std::string(lantern_last_error()).find("fields beyond"), std::string::npos);
  EXPECT_EQ(made, nullptr);
}

// A program that was built with the structs of version 1.
TEST(CAbi, StructsOfVersionOneAreServed) {
  lantern_engine_config config;
  std::memset(&config, 0xff, sizeof(config));
  std::memset(&config, 0, offsetof(lantern_engine_config, max_logprobs));
  config.struct_size = offsetof(lantern_engine_config, max_logprobs);
  config.model_dir = kModel.c_str();
  config.max_num_seqs = 2;
  config.kv_cache_bytes = int64_t{64} << 20;
  lantern_engine* made = nullptr;
  ASSERT_EQ(lantern_engine_create(&config, &made), LANTERN_OK) << lantern_last_error();
  lantern_request request;
  std::memset(&request, 0xff, sizeof(request));
  std::memset(&request, 0, offsetof(lantern_request, logprobs));
  request.struct_size = offsetof(lantern_request, logprobs);
  request.prompt = "Copy: a b c";
  request.max_tokens = 4;
  lantern_stream* stream = nullptr;
  ASSERT_EQ(lantern_engine_submit(made, &request, &stream), LANTERN_OK) << lantern_last_error();
  lantern_output output;
  std::memset(&output, 0x5a, sizeof(output));
  output.struct_size = offsetof(lantern_output, logprobs);
  size_t tokens = 0;
  while (lantern_stream_next(stream, -1, &output) == LANTERN_OK) tokens += output.num_tokens;
  EXPECT_EQ(tokens, 4u);
  EXPECT_EQ(output.logprobs.num_tokens, size_t{0x5a5a5a5a5a5a5a5a}) << "written beyond the caller's struct";
  lantern_stream_destroy(stream);

  request = {};
  request.struct_size = sizeof(request);
  request.prompt = "x";
  request.top_logprobs = 2;
  EXPECT_EQ(lantern_engine_submit(made, &request, &stream), LANTERN_INVALID_ARGUMENT);
  EXPECT_STREQ(lantern_last_error(), "lantern_request.top_logprobs is 2, but logprobs is 0; set that to 1 as well");
  lantern_engine_destroy(made);
}

// Likewise, of the stats.
TEST(CAbi, StatsOfVersionOneAreServed) {
  lantern_engine_config config{};
  config.struct_size = sizeof(config);
  config.model_dir = kModel.c_str();
  config.max_model_len = 256;
  config.max_num_seqs = 2;
  lantern_engine* engine = nullptr;
  ASSERT_EQ(lantern_engine_create(&config, &engine), LANTERN_OK) << lantern_last_error();
  lantern_engine_stats stats{};
  stats.struct_size = offsetof(lantern_engine_stats, num_ranks);
  stats.num_ranks = 77;
  ASSERT_EQ(lantern_engine_get_stats(engine, &stats), LANTERN_OK);
  EXPECT_GT(stats.num_blocks, 0);
  EXPECT_EQ(stats.num_ranks, 77) << "what the caller does not have is not written";
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(lantern_engine_get_stats(engine, &stats), LANTERN_OK);
  EXPECT_EQ(stats.num_ranks, 1);
  lantern_engine_destroy(engine);
}

TEST(CAbi, RanksAreNumbered) {
  lantern_engine_config config{};
  config.struct_size = sizeof(config);
  config.model_dir = kModel.c_str();
  config.max_model_len = 256;
  config.max_num_seqs = 2;
  config.data_parallel_size = 2;
  lantern_engine* engine = nullptr;
  ASSERT_EQ(lantern_engine_create(&config, &engine), LANTERN_OK) << lantern_last_error();
  lantern_engine_stats all{};
  lantern_engine_stats one{};
  all.struct_size = one.struct_size = sizeof(all);
  ASSERT_EQ(lantern_engine_get_stats(engine, &all), LANTERN_OK);
  ASSERT_EQ(lantern_engine_get_rank_stats(engine, 1, &one), LANTERN_OK);
  EXPECT_EQ(all.num_ranks, 2);
  EXPECT_EQ(one.num_ranks, 1);
  EXPECT_EQ(all.num_blocks, 2 * one.num_blocks);
  EXPECT_EQ(lantern_engine_get_rank_stats(engine, 2, &one), LANTERN_INVALID_ARGUMENT);
  EXPECT_STREQ(lantern_last_error(), "rank 2 is outside [0, 2), the ranks of this engine");
  EXPECT_EQ(lantern_engine_get_rank_stats(engine, -1, &one), LANTERN_INVALID_ARGUMENT);
  lantern_engine_destroy(engine);

  config.data_parallel_size = -1;
  EXPECT_EQ(lantern_engine_create(&config, &engine), LANTERN_INVALID_ARGUMENT);
  EXPECT_STREQ(lantern_last_error(), "data_parallel_size is -1; set it to 1 up to 64");
}

struct Watched {
  std::atomic<int32_t> calls{0};
  std::atomic<int32_t> releases{0};
};
int32_t fail_at_two(void* context, const lantern_allowed_tokens_call* call) {
  ++static_cast<Watched*>(context)->calls;
  if (call->num_tokens == 2) return 7;
  std::memset(call->mask, 0xff, call->mask_words * sizeof(uint32_t));
  return 0;
}
void release(void* context) { ++static_cast<Watched*>(context)->releases; }

TEST(CAbi, ACallbackIsReleasedOnceWhereItsRequestWasAccepted) {
  lantern_engine_config config{};
  config.struct_size = sizeof(config);
  config.model_dir = kModel.c_str();
  config.max_num_seqs = 2;
  config.kv_cache_bytes = int64_t{64} << 20;
  config.num_draft_tokens = 2;
  lantern_engine* made = nullptr;
  ASSERT_EQ(lantern_engine_create(&config, &made), LANTERN_OK) << lantern_last_error();
  Watched watched;
  lantern_request request{};
  request.struct_size = sizeof(request);
  request.prompt = "Copy: a b c";
  request.max_tokens = 9;
  request.ignore_eos = 1;
  request.allowed_tokens = &fail_at_two;
  request.allowed_tokens_context = &watched;
  request.release_allowed_tokens_context = &release;
  request.n = 1000;
  lantern_stream* stream = nullptr;
  EXPECT_EQ(lantern_engine_submit(made, &request, &stream), LANTERN_INVALID_ARGUMENT);
  EXPECT_EQ(watched.releases, 0) << "what was refused stays the caller's";
  request.n = 1;
  ASSERT_EQ(lantern_engine_submit(made, &request, &stream), LANTERN_OK) << lantern_last_error();
  lantern_output output{};
  output.struct_size = sizeof(output);
  size_t tokens = 0;
  while (lantern_stream_next(stream, -1, &output) == LANTERN_OK) {
    tokens += output.num_tokens;
    if (output.end_reason == LANTERN_NOT_ENDED) continue;
    EXPECT_EQ(output.end_reason, LANTERN_END_FAILED);
    EXPECT_STREQ(output.error,
                 "what says which tokens are allowed has failed: lantern_request.allowed_tokens returned 7");
  }
  EXPECT_EQ(tokens, 2u);
  EXPECT_EQ(watched.calls, 3);
  lantern_stream_destroy(stream);
  lantern_engine_destroy(made);
  EXPECT_EQ(watched.releases, 1);
}

TEST(CAbi, NullIsRefusedOrNothing) {
  lantern_stream* stream = nullptr;
  lantern_request request{};
  request.struct_size = sizeof(request);
  EXPECT_EQ(lantern_engine_submit(nullptr, &request, &stream), LANTERN_INVALID_ARGUMENT);
  EXPECT_STREQ(lantern_last_error(), "engine is NULL");
  lantern_output output{};
  output.struct_size = sizeof(output);
  EXPECT_EQ(lantern_stream_next(nullptr, 0, &output), LANTERN_INVALID_ARGUMENT);
  EXPECT_EQ(lantern_engine_drain(nullptr, 0), LANTERN_INVALID_ARGUMENT);
  EXPECT_EQ(lantern_engine_get_stats(nullptr, nullptr), LANTERN_INVALID_ARGUMENT);
  lantern_engine_destroy(nullptr);
  lantern_stream_destroy(nullptr);
  lantern_stream_cancel(nullptr);
}

}  // namespace
