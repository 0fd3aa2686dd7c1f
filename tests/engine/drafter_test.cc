// Who drafts is a setting, and the text does not depend on it: engines and sessions as programs load them, on the
// shipped model and on one without an MTP layer.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/load_engine.h"
#include "engine/session.h"
#include "engine_run.h"

namespace lantern {
namespace {

namespace fs = std::filesystem;

// Says that it has no MTP layer. Made once for all tests of the program.
fs::path tiny_without_mtp() {
  static const ChangedModel model("lantern_tiny_without_mtp", {{"num_nextn_predict_layers", "0"}});
  return model.path();
}

EngineOptions options_of(const fs::path& model, int32_t drafts, const std::string& drafter) {
  EngineOptions options;
  options.model_dir = model;
  options.device = "cpu";
  options.threads = 2;
  options.max_num_seqs = 8;
  options.kv_cache_bytes = int64_t{64} << 20;
  options.num_draft_tokens = drafts;
  options.drafter = drafter;
  options.adaptive_drafts = false;
  options.prefix_caching = false;  // a hit may change the form of attention, and so the last bits of a draft's logits
  return options;
}

struct Answers {
  std::vector<std::vector<int32_t>> tokens;
  int64_t drafts_accepted = 0;
};

Answers answers_of(const LoadedEngine& loaded, const std::vector<Request>& requests) {
  std::vector<TokenStream> streams;
  for (const Request& request : requests) {
    EngineRequest submitted;
    submitted.request = request;
    streams.push_back(loaded.engine->submit(std::move(submitted)).value());
  }
  Answers answers;
  for (TokenStream& stream : streams) {
    std::vector<int32_t>& tokens = answers.tokens.emplace_back();
    Output output;
    while (stream.next(output)) tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
  }
  for (const int64_t accepted : loaded.engine->report().drafts_accepted) answers.drafts_accepted += accepted;
  return answers;
}

Answers answers_of(const EngineOptions& options, const std::vector<Request>& requests) {
  const Result<LoadedEngine> loaded = load_engine(options);
  EXPECT_TRUE(loaded.ok()) << loaded.error().message();
  return answers_of(*loaded, requests);
}

TEST(EngineDrafter, TheTextIsTheSameWhoeverDrafts) {
  const std::vector<Request> requests = mixed_requests(12, 40, 120);
  for (const fs::path& model : {tiny_model(), tiny_without_mtp()}) {
    const Answers plain = answers_of(options_of(model, 0, "auto"), requests);
    EXPECT_EQ(plain.drafts_accepted, 0);
    for (const std::string drafter : {"auto", "ngram", "mtp"}) {
      if (drafter == "mtp" && model != tiny_model()) continue;
      const Answers drafted = answers_of(options_of(model, 3, drafter), requests);
      EXPECT_EQ(drafted.tokens, plain.tokens) << model << ", " << drafter;
      EXPECT_GT(drafted.drafts_accepted, 15) << model << ", " << drafter;
    }
  }
}

TEST(EngineDrafter, AutoIsTheMtpLayerWhereThereIsOne) {
  const std::vector<Request> requests = mixed_requests(8, 40, 120);
  const auto accepted = [&](const fs::path& model, const std::string& drafter) {
    // One after another: where a step ends, and so how many drafts there are, then depends on no timing.
    const Result<LoadedEngine> loaded = load_engine(options_of(model, 3, drafter));
    EXPECT_TRUE(loaded.ok()) << loaded.error().message();
    int64_t count = 0;
    for (const Request& request : requests) count = answers_of(*loaded, {request}).drafts_accepted;
    return count;
  };
  EXPECT_EQ(accepted(tiny_model(), "auto"), accepted(tiny_model(), "mtp"));
  EXPECT_NE(accepted(tiny_model(), "mtp"), accepted(tiny_model(), "ngram"));
  EXPECT_EQ(accepted(tiny_without_mtp(), "auto"), accepted(tiny_model(), "ngram"));
}

TEST(EngineDrafter, WhatCannotDraftIsRefused) {
  const auto refusal = [](const fs::path& model, int32_t drafts, const std::string& drafter) {
    const Result<LoadedEngine> loaded = load_engine(options_of(model, drafts, drafter));
    return loaded.ok() ? std::string("loaded") : loaded.error().message();
  };
  EXPECT_EQ(refusal(tiny_model(), 2, "oracle"), "drafter 'oracle' is not known; use auto, mtp or ngram");
  EXPECT_EQ(refusal(tiny_without_mtp(), 2, "mtp"),
            "drafter mtp: the checkpoint holds no multi-token-prediction layer that could draft; use ngram or auto, or "
            "no draft tokens");
  EXPECT_EQ(refusal(tiny_without_mtp(), 0, "mtp"), "loaded");
}

std::unique_ptr<Session> session_of(const fs::path& model, int32_t drafts, const std::string& drafter,
                                    const std::string& graphs = "none") {
  SessionOptions options;
  options.model_dir = model;
  options.device = "cpu";
  options.threads = 2;
  options.draft_tokens = drafts;
  options.drafter = drafter;
  options.graphs = graphs;
  Result<std::unique_ptr<Session>> session = Session::load(options);
  EXPECT_TRUE(session.ok()) << session.error().message();
  return std::move(session).value();
}

// Greedy and seeded, with rules that look at the text before, at every draft length, eagerly and by graphs.
TEST(SessionDrafts, TheTextIsThatWithoutDrafts) {
  std::vector<GenerateRequest> requests;
  for (const Request& from : mixed_requests(10, 40, 200)) {
    GenerateRequest& request = requests.emplace_back();
    request.prompt = from.prompt;
    request.max_tokens = 40;
    request.sampling = from.sampling;
    request.logit_bias = from.logit_bias;
    request.bad_words = from.bad_words;
    request.min_tokens = from.min_tokens;
  }
  const auto plain = session_of(tiny_model(), 0, "auto");
  std::vector<GenerateResult> expected;
  expected.reserve(requests.size());
  for (const GenerateRequest& request : requests) expected.push_back(plain->generate(request).value());
  const auto expect_the_same = [&](const fs::path& model, int32_t drafts, const std::string& drafter,
                                   const std::string& graphs = "none") {
    const auto session = session_of(model, drafts, drafter, graphs);
    for (size_t i = 0; i < requests.size(); ++i) {
      const GenerateResult result = session->generate(requests[i]).value();
      EXPECT_EQ(result.tokens, expected[i].tokens)
          << drafts << " drafts by " << drafter << ", graphs " << graphs << ", request " << i;
      EXPECT_EQ(result.finish_reason, expected[i].finish_reason);
    }
    EXPECT_EQ(session->graph_counts().steps_replayed > 0, graphs != "none");
    if (drafts == 0) return;
    const DraftCounts counts = session->draft_counts();
    EXPECT_GT(counts.checked.at(0), counts.accepted.at(0)) << "no draft was wrong: the texts are too easy";
    EXPECT_GT(counts.accepted.at(0), 20);
  };
  for (const int32_t drafts : {1, 3, 8}) expect_the_same(tiny_model(), drafts, "mtp");
  expect_the_same(tiny_model(), 4, "ngram");
  expect_the_same(tiny_without_mtp(), 4, "auto");
  for (const char* const graphs : {"full", "verify"}) {
    expect_the_same(tiny_model(), 0, "auto", graphs);
    expect_the_same(tiny_model(), 3, "mtp", graphs);
    expect_the_same(tiny_model(), 4, "ngram", graphs);
  }
}

}  // namespace
}  // namespace lantern
