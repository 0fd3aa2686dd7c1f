// What the tests of the sampler's operators share: slots and steps in plain vectors, and the processed logits in
// double, written straight from the definitions in process_logits.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "ops/host_op_test.h"
#include "ops/ngram_drafts.h"
#include "ops/process_logits.h"
#include "ops/sampling.h"
#include "ops/verify.h"

namespace lantern {

using Tokens = std::vector<int32_t>;

// One sequence, and what its request wants.
struct SlotText {
  SamplingSettings sampling = {};
  std::vector<LogitBias> logit_bias = {};
  std::vector<Tokens> bad_words = {};
  Tokens stop_token_ids = {};
  int32_t min_tokens = 0;
  Tokens prompt = {};
  Tokens output = {};
  Tokens drafts = {};
  int32_t num_logprobs = -1;
};

class TestSlots {
 public:
  TestSlots(int32_t num_slots, int32_t vocab, int32_t max_model_len, int32_t max_drafts)
      : num_slots_(num_slots),
        vocab_(vocab),
        max_model_len_(max_model_len),
        max_drafts_(max_drafts),
        rules_(static_cast<size_t>(num_slots)),
        history_(static_cast<size_t>(num_slots) * static_cast<size_t>(max_model_len), kPoison),
        history_len_(static_cast<size_t>(num_slots), 0),
        prompt_len_(static_cast<size_t>(num_slots), 0),
        draft_tokens_(static_cast<size_t>(num_slots) * static_cast<size_t>(max_drafts), kPoison),
        num_drafts_(static_cast<size_t>(num_slots), 0) {}

  static constexpr int32_t kPoison = 0x7fff7fff;

  void set(int32_t slot, const SlotText& text) {
    const auto s = static_cast<size_t>(slot);
    fill_slot_rules(rules_[s], text.sampling,
                    {.logit_bias = text.logit_bias,
                     .bad_words = text.bad_words,
                     .stop_token_ids = text.stop_token_ids,
                     .min_tokens = text.min_tokens},
                    text.num_logprobs);
    std::ranges::copy(text.prompt, history_.begin() + slot * max_model_len_);
    std::ranges::copy(text.output,
                      history_.begin() + slot * max_model_len_ + static_cast<std::ptrdiff_t>(text.prompt.size()));
    history_len_[s] = static_cast<int32_t>(text.prompt.size() + text.output.size());
    prompt_len_[s] = static_cast<int32_t>(text.prompt.size());
    set_drafts(slot, text.drafts);
  }
  void set_drafts(int32_t slot, const Tokens& drafts) {
    std::ranges::copy(drafts, draft_tokens_.begin() + slot * max_drafts_);
    num_drafts_[static_cast<size_t>(slot)] = static_cast<int32_t>(drafts.size());
  }
  Tokens history(int32_t slot) const {
    const auto begin = history_.begin() + slot * max_model_len_;
    return {begin, begin + history_len_[static_cast<size_t>(slot)]};
  }
  Tokens drafts(int32_t slot) const {
    const auto begin = draft_tokens_.begin() + slot * max_drafts_;
    return {begin, begin + num_drafts_[static_cast<size_t>(slot)]};
  }
  const SlotRules& rules(int32_t slot) const { return rules_[static_cast<size_t>(slot)]; }

  SamplerSlots view() {
    return {.rules = Fixed<const SlotRules>(fixed(rules_)),
            .history = fixed(history_),
            .history_len = fixed(history_len_),
            .prompt_len = fixed(prompt_len_),
            .draft_tokens = fixed(draft_tokens_),
            .num_drafts = fixed(num_drafts_),
            .num_slots = num_slots_,
            .max_model_len = max_model_len_,
            .max_drafts = max_drafts_,
            .vocab = vocab_};
  }
  std::vector<int32_t>& draft_tokens() { return draft_tokens_; }
  std::vector<int32_t>& num_drafts() { return num_drafts_; }

 private:
  int32_t num_slots_, vocab_, max_model_len_, max_drafts_;
  std::vector<SlotRules> rules_;
  std::vector<int32_t> history_, history_len_, prompt_len_, draft_tokens_, num_drafts_;
};

// Requests of a step: slot and number of rows of each.
class TestStep {
 public:
  struct Row {
    int32_t slot;
    int32_t count;
  };
  // `padding` rows and requests follow, with poisoned entries.
  explicit TestStep(const std::vector<Row>& requests, int32_t padding = 0)
      : num_requests_{static_cast<int32_t>(requests.size())}, start_loc_{0} {
    for (const Row& row : requests) {
      slots_.push_back(row.slot);
      start_loc_.push_back(start_loc_.back() + row.count);
    }
    num_rows_ = start_loc_.back();
    max_rows_ = num_rows_ + padding;
    max_requests_ = static_cast<int32_t>(requests.size()) + padding;
    slots_.resize(static_cast<size_t>(max_requests_), TestSlots::kPoison);
    start_loc_.resize(static_cast<size_t>(max_requests_) + 1, TestSlots::kPoison);
    const auto rows = static_cast<size_t>(max_rows_);
    row_slots.assign(rows, -77);
    drafts_before.assign(rows, -77);
    output_positions.assign(rows, -77);
    settings.assign(rows, {.temperature = -77});
    num_logprobs.assign(rows, -77);
  }

  int32_t num_rows() const { return num_rows_; }
  int32_t max_rows() const { return max_rows_; }
  int32_t max_requests() const { return max_requests_; }
  SampleRequests requests() const {
    return {.num_requests = fixed(num_requests_),
            .sample_start_loc = fixed(start_loc_),
            .slots = fixed(slots_),
            .max_requests = max_requests_};
  }
  void expand(HostOps& ops, TestSlots& slots) {
    expand_sample_rows(ops.stream, {.slots = slots.view(),
                                    .requests = requests(),
                                    .rows = {.slots = fixed(row_slots),
                                             .drafts_before = fixed(drafts_before),
                                             .output_positions = fixed(output_positions),
                                             .settings = fixed(settings),
                                             .num_logprobs = fixed(num_logprobs)},
                                    .max_rows = max_rows_});
  }

  std::vector<int32_t> row_slots, drafts_before;
  std::vector<int64_t> output_positions;
  std::vector<SamplingSettings> settings;
  std::vector<int32_t> num_logprobs;

 private:
  std::vector<int32_t> num_requests_, start_loc_, slots_;
  int32_t num_rows_ = 0;
  int32_t max_rows_ = 0;
  int32_t max_requests_ = 0;
};

// The logits of the row after `drafts_before` drafts. `allowed` null: every token is.
inline std::vector<double> reference_logits(std::span<const float> raw, const SlotText& text, size_t drafts_before,
                                            const std::set<int32_t>* allowed = nullptr) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  Tokens output = text.output;
  output.insert(output.end(), text.drafts.begin(), text.drafts.begin() + static_cast<std::ptrdiff_t>(drafts_before));
  Tokens all = text.prompt;
  all.insert(all.end(), output.begin(), output.end());

  std::vector<double> x(raw.begin(), raw.end());
  std::map<int32_t, double> bias;
  for (const LogitBias& entry : text.logit_bias) bias[entry.token] = double{entry.bias};
  std::set<int32_t> banned;
  for (const Tokens& word : text.bad_words) {
    const Tokens rest(word.begin(), word.end() - 1);
    if (all.size() >= rest.size() && std::equal(rest.rbegin(), rest.rend(), all.rbegin())) banned.insert(word.back());
  }
  if (output.size() < static_cast<size_t>(text.min_tokens)) {
    banned.insert(text.stop_token_ids.begin(), text.stop_token_ids.end());
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (bias.contains(id)) x[i] += bias[id];
    if (banned.contains(id) || (allowed != nullptr && !allowed->contains(id))) x[i] = kNever;
    if (std::ranges::find(all, id) != all.end()) {
      const double penalty = double{text.sampling.repetition_penalty};
      x[i] = x[i] > 0 ? x[i] / penalty : x[i] * penalty;
    }
    if (const auto times = std::ranges::count(output, id); times > 0) {
      x[i] -=
          static_cast<double>(times) * double{text.sampling.frequency_penalty} + double{text.sampling.presence_penalty};
    }
  }
  return x;
}

// The distribution that `sample` draws from, in double: sorting and renormalising after every filter. Temperature 0 is
// all on the first of the largest.
inline std::vector<double> reference_distribution(const std::vector<double>& logits, const SamplingSettings& s) {
  std::vector<std::pair<double, size_t>> order;  // ascending: the most likely first, equals by id
  order.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) order.emplace_back(-logits[i], i);
  std::ranges::sort(order);
  std::vector<double> result(logits.size(), 0.0);
  if (s.temperature == 0) {
    result[order[0].second] = 1;
    return result;
  }
  std::vector<double> p(order.size());
  const auto keep = [&p](size_t count) {
    p.resize(count);
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& value : p) value /= sum;
  };
  for (size_t i = 0; i < p.size(); ++i) p[i] = std::exp((order[0].first - order[i].first) / double{s.temperature});
  keep(s.top_k > 0 ? std::min(p.size(), static_cast<size_t>(s.top_k)) : p.size());
  if (s.top_p < 1) {
    double mass = 0;
    size_t kept = 0;
    while (kept < p.size() && (kept == 0 || mass < double{s.top_p})) mass += p[kept++];
    keep(kept);
  }
  size_t kept = 0;
  while (kept < p.size() && p[kept] >= double{s.min_p} * p[0]) ++kept;
  keep(kept);
  for (size_t i = 0; i < p.size(); ++i) result[order[i].second] = p[i];
  return result;
}

// How far counts are from what `expected` (probabilities) predicts: Pearson's statistic as a normal deviate (Wilson,
// Hilferty). Infinite where something impossible was counted. Cells expected fewer than five times are taken together.
inline double chi_square_deviate(const std::vector<int64_t>& counts, const std::vector<double>& expected) {
  const auto draws = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  double statistic = 0;
  int cells = 0;
  const auto add_cell = [&](double count, double mean) {
    statistic += (count - mean) * (count - mean) / mean;
    ++cells;
  };
  double rare_count = 0;
  double rare_mean = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double mean = draws * expected[i];
    if (expected[i] == 0) {
      if (counts[i] > 0) return std::numeric_limits<double>::infinity();
    } else if (mean < 5) {
      rare_count += static_cast<double>(counts[i]);
      rare_mean += mean;
    } else {
      add_cell(static_cast<double>(counts[i]), mean);
    }
  }
  if (rare_mean > 0) add_cell(rare_count, rare_mean);
  if (cells <= 1) return 0;
  const double freedom = cells - 1;
  return (std::cbrt(statistic / freedom) - (1 - 2 / (9 * freedom))) / std::sqrt(2 / (9 * freedom));
}

}  // namespace lantern
