#include <algorithm>
#include <cmath>

#include "conformance/conformance.h"
#include "ops/ngram_drafts.h"
#include "ops/process_logits.h"
#include "ops/sampling.h"
#include "ops/verify.h"

namespace lantern::conformance {
namespace {

constexpr int32_t kSlots = 7, kModelLen = 96, kDrafts = 3, kVocab = 1000;

// Slots with every kind of rule; slot 6 has none. Token ids are multiples of `spread`.
struct Slots {
  std::vector<SlotRules> rules = std::vector<SlotRules>(kSlots);
  std::vector<int32_t> history, history_len, prompt_len, draft_tokens, num_drafts;

  explicit Slots(Random& random, int32_t spread = 1) {
    history = integers(random, int64_t{kSlots} * kModelLen, 0, 40);  // small numbers: repetitions
    history_len = {40, 1, 94, 96, 50, 12, 33};
    prompt_len = {10, 1, 94, 5, 20, 12, 30};
    draft_tokens = integers(random, int64_t{kSlots} * kDrafts, 0, 40);
    for (int32_t& token : history) token *= spread;
    for (int32_t& token : draft_tokens) token *= spread;
    num_drafts = {3, 0, 1, 2, 3, 2, 0};
    for (int32_t s = 0; s < kSlots; ++s) {
      SamplingSettings sampling;
      sampling.seed = static_cast<uint64_t>(1000 + s);
      sampling.temperature = s % 3 == 2 ? 0.0f : 0.7f;
      const bool penalties = s == 0 || s == 3;
      sampling.repetition_penalty = penalties ? 1.3f : 1.0f;
      sampling.presence_penalty = penalties ? 0.7f : 0.0f;
      sampling.frequency_penalty = penalties ? -0.4f : 0.0f;
      std::vector<LogitBias> bias;
      std::vector<std::vector<int32_t>> words;
      std::vector<int32_t> stops;
      if (s < 5) {
        for (int32_t i = 0; i < 20; ++i)
          bias.push_back({.token = i * 7 * spread, .bias = static_cast<float>(i) - 10.0f});
        const int32_t last = history[static_cast<size_t>(s * kModelLen + history_len[static_cast<size_t>(s)] - 1)];
        words = {{5 * spread}, {last, 9 * spread}, {last + 1, 10 * spread}, {1, 2, 3}};
        stops = {17 * spread, 18 * spread};
      }
      fill_slot_rules(
          rules[static_cast<size_t>(s)], sampling,
          {.logit_bias = bias, .bad_words = words, .stop_token_ids = stops, .min_tokens = s == 4 ? 1000 : 5}, s - 1);
    }
  }
};

struct DeviceSlots {
  SamplerSlots view;
  Fixed<int32_t> history, history_len, draft_tokens, num_drafts;

  DeviceSlots(Bench& bench, const Slots& slots, int32_t vocab = kVocab)
      : history(bench.put(slots.history)),
        history_len(bench.put(slots.history_len)),
        draft_tokens(bench.put(slots.draft_tokens)),
        num_drafts(bench.put(slots.num_drafts)) {
    view = {.rules = bench.input(slots.rules),
            .history = history,
            .history_len = history_len,
            .prompt_len = bench.input(slots.prompt_len),
            .draft_tokens = Fixed<const int32_t>(draft_tokens),
            .num_drafts = Fixed<const int32_t>(num_drafts),
            .num_slots = kSlots,
            .max_model_len = kModelLen,
            .max_drafts = kDrafts,
            .vocab = vocab};
  }
};

// Requests with 0 to 4 rows, a padded one (slot -1), and entries beyond num_requests that mean nothing.
SampleRequests requests(Bench& bench) {
  return {.num_requests = bench.input<int32_t>({7}),
          .sample_start_loc = bench.input<int32_t>({0, 4, 5, 7, 7, 10, 14, 16, 99, -5}),
          .slots = bench.input<int32_t>({4, 1, 2, 0, 3, 5, -1, 77, 3}),
          .max_requests = 9};
}

std::vector<Output> process(Bench& bench, int32_t vocab, int32_t spread) {
  Random random(21);
  const Slots slots(random, spread);
  const DeviceSlots device(bench, slots, vocab);
  const int32_t rows = 40;
  const auto row_slots = bench.room<int32_t>(rows), before = bench.room<int32_t>(rows), top = bench.room<int32_t>(rows);
  const auto positions = bench.room<int64_t>(rows);
  const auto settings = bench.room<SamplingSettings>(rows);
  expand_sample_rows(bench.stream, {.slots = device.view,
                                    .requests = requests(bench),
                                    .rows = {.slots = row_slots,
                                             .drafts_before = before,
                                             .output_positions = positions,
                                             .settings = settings,
                                             .num_logprobs = top},
                                    .max_rows = rows});
  std::vector<float> logits = normal(random, int64_t{rows} * vocab, 3.0f);
  logits[size_t{6} * static_cast<size_t>(vocab) - 3] = NAN;  // a row of slot 2
  const auto words = static_cast<size_t>(vocab + 31) / 32;
  std::vector<uint32_t> masks(2 * words, 0);  // the second allows nothing
  for (size_t w = 0; w < words; ++w) masks[w] = static_cast<uint32_t>(random());
  std::vector<int32_t> row_masks(static_cast<size_t>(rows), -1);
  row_masks[0] = row_masks[8] = 0;
  row_masks[9] = 1;
  const auto processed = bench.room<float>(int64_t{rows} * vocab);
  const auto status = bench.room<int32_t>(rows);
  const int64_t bytes = std::max(process_logits_scratch_bytes(rows, vocab), sample_scratch_bytes(rows, vocab));
  const auto scratch = bench.room<std::byte>(bytes);
  process_logits(bench.stream, {.slots = device.view,
                                .logits = bench.input(logits),
                                .processed = processed,
                                .status = status,
                                .row_slots = Fixed<const int32_t>(row_slots),
                                .drafts_before = Fixed<const int32_t>(before),
                                .allowed_tokens = bench.input(masks),
                                .row_allowed_masks = bench.input(row_masks),
                                .rows = rows,
                                .scratch = scratch,
                                .scratch_bytes = bytes});
  const auto tokens = bench.room<int32_t>(rows);
  sample(bench.stream, {.logits = Fixed<const float>(processed),
                        .settings = Fixed<const SamplingSettings>(settings),
                        .output_positions = Fixed<const int64_t>(positions),
                        .row_slots = Fixed<const int32_t>(row_slots),
                        .tokens = tokens,
                        .rows = rows,
                        .vocab = vocab,
                        .scratch = scratch,
                        .scratch_bytes = bytes});
  // A row that is not finite holds nothing to draw from.
  const std::vector<int32_t> row_status = bench.get(status);
  std::vector<float> values = bench.get(processed);
  std::vector<int32_t> drawn = bench.get(tokens);
  for (size_t r = 0; r < row_status.size(); ++r) {
    if (row_status[r] != static_cast<int32_t>(RowStatus::kNotFinite)) continue;
    std::fill_n(values.begin() + static_cast<int64_t>(r) * vocab, vocab, 0.0f);
    drawn[r] = 0;
  }
  std::vector<int32_t> places;
  for (const int64_t position : bench.get(positions)) places.push_back(static_cast<int32_t>(position));
  return {{"slots of rows", bench.get(row_slots)},
          {"drafts before", bench.get(before)},
          {"output positions", places},
          {"logprobs of rows", bench.get(top)},
          {"status", row_status},
          {"processed", values},
          {"tokens", drawn}};
}

// Draws under every filter, from rows of all kinds. A draw whose noise falls within a rounding of a border may differ
// between devices; with these seeds none does.
std::vector<Output> draws(Bench& bench, int32_t vocab) {
  Random random(22);
  std::vector<SamplingSettings> settings;
  std::vector<float> logits;
  std::vector<int64_t> positions;
  std::vector<int32_t> row_slots;
  for (const float temperature : {0.0f, 0.3f, 1.0f, 5.0f}) {
    for (const int32_t top_k : {0, 1, 40, 5000}) {
      for (const float top_p : {1.0f, 0.9f, 0.01f}) {
        for (const float min_p : {0.0f, 0.05f}) {
          const auto row = static_cast<int32_t>(settings.size());
          settings.push_back({.temperature = temperature,
                              .top_p = top_p,
                              .top_k = top_k,
                              .min_p = min_p,
                              .seed = static_cast<uint64_t>(row) * 77});
          positions.push_back(row % 5);
          row_slots.push_back(row % 11 == 10 ? -1 : row);
          std::vector<float> x = normal(random, vocab, 2.0f);
          for (float& value : x) value = row % 4 == 1 ? std::round(value) : value;  // ties
          if (row % 7 == 3) x[5] = x[900] = INFINITY;
          if (row % 7 == 4) std::fill(x.begin(), x.end(), -INFINITY);
          if (row % 7 == 5) std::fill_n(x.begin(), 700, NAN);
          if (row % 7 == 6) std::fill(x.begin(), x.end(), 1.25f);
          logits.insert(logits.end(), x.begin(), x.end());
        }
      }
    }
  }
  const auto rows = static_cast<int64_t>(settings.size());
  const int64_t bytes = sample_scratch_bytes(rows, vocab);
  const auto tokens = bench.room<int32_t>(rows);
  const auto chosen = bench.room<float>(rows);
  sample(bench.stream, {.logits = bench.input(logits),
                        .settings = bench.input(settings),
                        .output_positions = bench.input(positions),
                        .row_slots = bench.input(row_slots),
                        .tokens = tokens,
                        .logprobs = chosen,
                        .rows = rows,
                        .vocab = vocab,
                        .scratch = bench.room<std::byte>(bytes),
                        .scratch_bytes = bytes});
  std::vector<int32_t> counts = integers(random, rows, -1, 20);
  const auto own = bench.room<float>(rows), values = bench.room<float>(rows * 20);
  const auto ranks = bench.room<int32_t>(rows), top = bench.room<int32_t>(rows * 20);
  logprobs(bench.stream, {.logits = bench.input(logits),
                          .tokens = Fixed<const int32_t>(tokens),
                          .counts = bench.input(counts),
                          .logprobs = own,
                          .ranks = ranks,
                          .top_tokens = top,
                          .top_logprobs = values,
                          .rows = rows,
                          .vocab = vocab,
                          .k = 20});
  // Log-probabilities are a float difference of numbers up to 20 with a logarithm in double.
  return {{"tokens", bench.get(tokens)},      {"logprobs of samples", bench.get(chosen), 1e-6},
          {"logprobs", bench.get(own), 1e-6}, {"ranks", bench.get(ranks)},
          {"top tokens", bench.get(top)},     {"top logprobs", bench.get(values), 1e-6}};
}

std::vector<Output> verify(Bench& bench, double synthetic) {
  Random random(23);
  Slots slots(random);
  std::vector<int32_t> samples = integers(random, 16, 0, 40);
  // Slot 4's drafts are all right, slot 3's first is.
  for (size_t j = 0; j < 3; ++j) samples[j] = slots.draft_tokens[4 * kDrafts + j];
  samples[7] = slots.draft_tokens[3 * kDrafts];
  std::vector<int32_t> row_status(16, 0);
  row_status[11] = static_cast<int32_t>(RowStatus::kNotFinite);
  const DeviceSlots device(bench, slots);
  const auto tokens = bench.room<int32_t>(9 * 4), count = bench.room<int32_t>(9), status = bench.room<int32_t>(9);
  verify_drafts(bench.stream, {.slots = device.view,
                               .requests = requests(bench),
                               .samples = bench.input(samples),
                               .row_status = bench.input(row_status),
                               .tokens = tokens,
                               .num_tokens = count,
                               .status = status,
                               .max_query_len = 4,
                               .synthetic_acceptance = synthetic});
  ngram_drafts(bench.stream, {.slots = device.view,
                              .requests = requests(bench),
                              .wanted = bench.input<int32_t>({3, 3, 2, 1, 3, 0, 3, 3, 3}),
                              .draft_tokens = device.draft_tokens,
                              .num_drafts = device.num_drafts,
                              .min_ngram = 1,
                              .max_ngram = 4});
  const auto targets = bench.room<int32_t>(6);
  prompt_targets(bench.stream, {.slots = device.view,
                                .row_slots = bench.input<int32_t>({0, 0, 0, 2, -1, 6}),
                                .positions = bench.input<int32_t>({0, 8, 9, 50, 3, 29}),
                                .targets = targets,
                                .rows = 6});
  return {{"tokens", bench.get(tokens)},
          {"counts", bench.get(count)},
          {"status", bench.get(status)},
          {"history", bench.get(device.history)},
          {"history length", bench.get(device.history_len)},
          {"drafts", bench.get(device.draft_tokens)},
          {"number of drafts", bench.get(device.num_drafts)},
          {"targets", bench.get(targets)}};
}

std::vector<Case> cases() {
  return {{"process_logits", [](Bench& bench) { return process(bench, kVocab, 1); }},
          // Of more than a block takes.
          {"process_logits_of_parts", [](Bench& bench) { return process(bench, 20011, 490); }},
          {"draws", [](Bench& bench) { return draws(bench, 1531); }},
          {"draws_of_parts", [](Bench& bench) { return draws(bench, 20011); }},
          {"verify", [](Bench& bench) { return verify(bench, -1); }},
          {"synthetic", [](Bench& bench) { return verify(bench, 0.6); }}};
}

class SamplingConformance : public testing::TestWithParam<Case> {};
TEST_P(SamplingConformance, EqualsTheHost) { check(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Sampling, SamplingConformance, testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace lantern::conformance
