// Logits processing and filters against transformers' processors (data/logits.json, made by
// tools/make_goldens/make_logits.py). They anchor the reference in double that the operators' own tests use as well.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <fstream>
#include <iterator>

#include "golden/golden_case.h"
#include "ops/sampler_test_support.h"

namespace lantern::golden {
namespace {

namespace json = boost::json;

struct LogitsCase {
  SlotText text;
  std::vector<float> logits;
  std::vector<double> processed, probabilities;
};

float real(const json::object& object, const char* name) { return object.at(name).to_number<float>(); }
Tokens tokens(const json::value& value) { return json::value_to<Tokens>(value); }

LogitsCase read_case(const json::object& object) {
  LogitsCase c;
  c.text.sampling = {.temperature = real(object, "temperature"),
                     .top_p = real(object, "top_p"),
                     .top_k = object.at("top_k").to_number<int32_t>(),
                     .min_p = real(object, "min_p"),
                     .repetition_penalty = real(object, "repetition_penalty")};
  for (const json::value& entry : object.at("logit_bias").as_array()) {
    const json::array& pair = entry.as_array();
    c.text.logit_bias.push_back({pair[0].to_number<int32_t>(), pair[1].to_number<float>()});
  }
  for (const json::value& word : object.at("bad_words").as_array()) c.text.bad_words.push_back(tokens(word));
  c.text.stop_token_ids = tokens(object.at("stop_token_ids"));
  c.text.min_tokens = object.at("min_tokens").to_number<int32_t>();
  c.text.prompt = tokens(object.at("prompt"));
  c.text.output = tokens(object.at("output"));
  for (const json::value& x : object.at("logits").as_array()) c.logits.push_back(x.to_number<float>());
  for (const json::value& x : object.at("processed").as_array()) {
    c.processed.push_back(x.is_null() ? -HUGE_VAL : x.to_number<double>());
  }
  for (const json::value& x : object.at("probabilities").as_array()) c.probabilities.push_back(x.to_number<double>());
  return c;
}

std::vector<LogitsCase> read_cases() {
  std::ifstream in(golden_data_dir() / "logits.json");
  EXPECT_TRUE(in.good());
  const json::value document = json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  std::vector<LogitsCase> cases;
  for (const json::value& entry : document.at("cases").as_array()) cases.push_back(read_case(entry.as_object()));
  EXPECT_GE(cases.size(), 16u);
  return cases;
}

TEST(LogitsGolden, TheReferenceOfTheTestsEqualsTransformers) {
  for (const LogitsCase& c : read_cases()) {
    const auto processed = reference_logits(c.logits, c.text, 0);
    const auto probabilities = reference_distribution(processed, c.text.sampling);
    for (size_t i = 0; i < processed.size(); ++i) {
      if (std::isinf(c.processed[i])) {
        EXPECT_EQ(processed[i], c.processed[i]);
      } else {
        EXPECT_NEAR(processed[i], c.processed[i], 1e-12);
      }
      // Temperature and thresholds are floats here: 6e-8 of the exponent, whose logits lie within 20.
      EXPECT_NEAR(probabilities[i], c.probabilities[i], 2e-6);
      EXPECT_EQ(probabilities[i] == 0, c.probabilities[i] == 0) << "token " << i;
    }
  }
}

TEST(LogitsGolden, TheOperatorsEqualTransformers) {
  const std::vector<LogitsCase> cases = read_cases();
  const auto count = static_cast<int32_t>(cases.size());
  const auto vocab = static_cast<int32_t>(cases[0].logits.size());
  TestSlots slots(count, vocab, 16, 1);
  std::vector<TestStep::Row> requests;
  std::vector<float> logits;
  for (int32_t slot = 0; slot < count; ++slot) {
    const LogitsCase& c = cases[static_cast<size_t>(slot)];
    slots.set(slot, c.text);
    requests.push_back({slot, 1});
    logits.insert(logits.end(), c.logits.begin(), c.logits.end());
  }
  HostOps ops(2);
  TestStep step(requests);
  step.expand(ops, slots);
  Tokens status(static_cast<size_t>(count), -1);
  std::vector<std::byte> scratch(
      static_cast<size_t>(std::max(process_logits_scratch_bytes(count, vocab), sample_scratch_bytes(count, vocab))));
  process_logits(ops.stream, {.slots = slots.view(),
                              .logits = Fixed<const float>(fixed(logits)),
                              .processed = fixed(logits),
                              .status = fixed(status),
                              .row_slots = Fixed<const int32_t>(fixed(step.row_slots)),
                              .drafts_before = Fixed<const int32_t>(fixed(step.drafts_before)),
                              .rows = count,
                              .scratch = fixed(scratch),
                              .scratch_bytes = static_cast<int64_t>(scratch.size())});
  EXPECT_EQ(status, Tokens(static_cast<size_t>(count), 0));
  for (size_t i = 0; i < logits.size(); ++i) {
    const double expected = cases[i / static_cast<size_t>(vocab)].processed[i % static_cast<size_t>(vocab)];
    if (std::isinf(expected)) {
      EXPECT_EQ(double{logits[i]}, expected);
    } else {
      // Logits within 16, at most three roundings to float.
      EXPECT_NEAR(double{logits[i]}, expected, 3e-6);
    }
  }

  // Draws: nothing that transformers filters out, and its probabilities at five sigma.
  constexpr int32_t kDraws = 4000;
  std::vector<std::vector<int64_t>> counts(cases.size(), std::vector<int64_t>(static_cast<size_t>(vocab), 0));
  Tokens samples(static_cast<size_t>(count));
  for (int32_t draw = 0; draw < kDraws; ++draw) {
    for (int64_t& position : step.output_positions) position = draw;
    sample(ops.stream, {.logits = Fixed<const float>(fixed(logits)),
                        .settings = Fixed<const SamplingSettings>(fixed(step.settings)),
                        .output_positions = Fixed<const int64_t>(fixed(step.output_positions)),
                        .tokens = fixed(samples),
                        .rows = count,
                        .vocab = vocab,
                        .scratch = fixed(scratch),
                        .scratch_bytes = static_cast<int64_t>(scratch.size())});
    for (size_t c = 0; c < cases.size(); ++c) ++counts[c][static_cast<size_t>(samples[c])];
  }
  for (size_t c = 0; c < cases.size(); ++c) {
    EXPECT_LT(chi_square_deviate(counts[c], cases[c].probabilities), 5.0) << "case " << c;
  }
}

}  // namespace
}  // namespace lantern::golden
