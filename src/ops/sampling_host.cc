#include "ops/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>

#include "base/check.h"
#include "ops/cuda_ops.h"
#include "ops/cuda_scratch.h"
#include "ops/pass_sizes.h"
#include "ops/philox.h"
#include "ops/row_math_host.h"

namespace lantern {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

constexpr int64_t row_scratch_bytes(int32_t vocab) {
  const int64_t host = (int64_t{vocab} * static_cast<int64_t>(sizeof(float) + sizeof(int32_t)) + 255) / 256 * 256;
  return std::max(host, cuda_sample_row_bytes(vocab));
}

// The last kept token of the order "descending weight, ascending id".
struct Cut {
  float weight = 0;
  int32_t id = std::numeric_limits<int32_t>::max();

  bool keeps(float token_weight, int32_t token_id) const {
    return token_weight > weight || (token_weight == weight && token_id <= id);
  }
};

Cut shorter(const Cut& a, const Cut& b) { return a.keeps(b.weight, b.id) ? b : a; }

// One row's weights: exp((logit - maximum) / temperature), not normalised, at most 1.
class WeightedRow {
 public:
  WeightedRow(const float* weights, int32_t vocab, int32_t* order) : weights_(weights), vocab_(vocab), order_(order) {}

  float weight(int32_t id) const { return weights_[id]; }

  // Sum of the kept weights, always in order of id.
  double mass(const Cut& cut) const {
    double sum = 0;
    for (int32_t i = 0; i < vocab_; ++i) sum += cut.keeps(weights_[i], i) ? static_cast<double>(weights_[i]) : 0.0;
    return sum;
  }

  // The shortest prefix of at least `count` tokens, or of at least `mass`.
  Cut first_tokens(int64_t count) const { return prefix(count, std::numeric_limits<double>::infinity()); }
  Cut first_mass(double mass) const { return prefix(std::numeric_limits<int64_t>::max(), mass); }

  // First kept token by ascending id whose cumulated weight exceeds `target`.
  int32_t token_at(const Cut& cut, double target) const {
    double sum = 0;
    int32_t last = 0;
    for (int32_t i = 0; i < vocab_; ++i) {
      if (!cut.keeps(weights_[i], i) || weights_[i] == 0) continue;
      sum += static_cast<double>(weights_[i]);
      last = i;
      if (sum > target) return i;
    }
    return last;  // target was rounded up to the total
  }

 private:
  // Finds the end of the prefix through a histogram over the weights' leading bits (16 steps per octave), so that only
  // one narrow range of weights is sorted instead of the vocabulary.
  Cut prefix(int64_t count, double mass) const {
    constexpr size_t kBuckets = 0x800;
    constexpr int kShift = 19;  // of the bits of a float in [0, 1]
    std::array<int32_t, kBuckets> counts{};
    std::array<double, kBuckets> masses{};
    for (int32_t i = 0; i < vocab_; ++i) {
      const size_t bucket = std::bit_cast<uint32_t>(weights_[i]) >> kShift;
      ++counts[bucket];
      masses[bucket] += static_cast<double>(weights_[i]);
    }
    int64_t seen = 0;
    double seen_mass = 0;
    size_t bucket = kBuckets - 1;
    for (;; --bucket) {
      if (seen + counts[bucket] >= count || seen_mass + masses[bucket] >= mass) break;
      if (bucket == 0) return Cut{};
      seen += counts[bucket];
      seen_mass += masses[bucket];
    }
    int32_t found = 0;
    for (int32_t i = 0; i < vocab_; ++i) {
      if (std::bit_cast<uint32_t>(weights_[i]) >> kShift == bucket) order_[found++] = i;
    }
    std::sort(order_, order_ + found,
              [this](int32_t a, int32_t b) { return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b; });
    Cut cut;
    for (int32_t i = 0; i < found; ++i) {
      cut = Cut{weights_[order_[i]], order_[i]};
      seen_mass += static_cast<double>(cut.weight);
      if (++seen >= count || seen_mass >= mass) break;
    }
    return cut;
  }

  const float* weights_;
  int32_t vocab_;
  int32_t* order_;  // scratch [vocab]
};

int32_t draw(const float* logits, float maximum, int32_t vocab, const SamplingSettings& settings, int64_t position,
             std::byte* scratch) {
  auto* weights = reinterpret_cast<float*>(scratch);
  auto* order = reinterpret_cast<int32_t*>(scratch + int64_t{vocab} * static_cast<int64_t>(sizeof(float)));
  if (maximum == kInfinity) {
    for (int32_t i = 0; i < vocab; ++i) weights[i] = logits[i] == kInfinity ? 1.0f : 0.0f;
  } else {
    exponential_row(logits, vocab, maximum, settings.temperature, weights);
  }
  const WeightedRow row(weights, vocab, order);
  Cut cut;
  if (settings.top_k > 0 && settings.top_k < vocab) cut = row.first_tokens(settings.top_k);
  if (settings.top_p < 1) cut = shorter(cut, row.first_mass(static_cast<double>(settings.top_p) * row.mass(cut)));
  if (settings.min_p > 0) {
    const float largest = row_maximum(weights, vocab);
    cut = shorter(cut, Cut{std::min(settings.min_p, 1.0f) * largest, std::numeric_limits<int32_t>::max()});
  }
  const double u = philox_uniform_53(settings.seed, static_cast<uint64_t>(position));
  return row.token_at(cut, u * row.mass(cut));
}

void sample_row(const SampleParams& p, int64_t r, std::byte* scratch) {
  const float* logits = p.logits.get() + r * p.vocab;
  if (p.row_slots && p.row_slots[r] < 0) {
    p.tokens[r] = -1;
    if (p.logprobs) p.logprobs[r] = 0;
    return;
  }
  const SamplingSettings& settings = p.settings[r];
  const float maximum = row_maximum(logits, p.vocab);
  int32_t token = 0;
  if (maximum == -kInfinity) {
    token = 0;
  } else if (!(settings.temperature > 0)) {
    token = static_cast<int32_t>(std::find(logits, logits + p.vocab, maximum) - logits);
  } else {
    token = draw(logits, maximum, p.vocab, settings, p.output_positions[r], scratch);
  }
  p.tokens[r] = token;
  if (p.logprobs) p.logprobs[r] = log_softmax_of(logits, p.vocab).of(logits[token]);
}

void sample_kernel(const SampleParams& p, HostContext& context) {
  for (int64_t first = 0; first < p.rows; first += kRowsAtOnce) {
    context.threads.parallel_for(std::min(kRowsAtOnce, p.rows - first), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        sample_row(p, first + r, p.scratch.get() + r * row_scratch_bytes(p.vocab));
      }
    });
  }
}

// 1 + the number of logits above that of `token`; NaN counts as -infinity.
int32_t rank_of(const float* logits, int32_t vocab, int32_t token) {
  const float logit = logits[token] > -kInfinity ? logits[token] : -kInfinity;
  int32_t above = 0;
  for (int32_t i = 0; i < vocab; ++i) above += static_cast<int32_t>(logits[i] > logit);
  return above + 1;
}

// The `count` largest logits with their ids; returns how many there are.
int32_t list_largest(const float* logits, int32_t vocab, int32_t count, int32_t* ids, float* values) {
  int32_t kept = 0;
  for (int32_t i = 0; i < vocab && count > 0; ++i) {
    const float logit = logits[i] > -kInfinity ? logits[i] : -kInfinity;  // NaN too
    int32_t place = kept;
    while (place > 0 && values[place - 1] < logit) --place;
    if (place >= count) continue;
    for (int32_t j = std::min(kept, count - 1); j > place; --j) {
      values[j] = values[j - 1];
      ids[j] = ids[j - 1];
    }
    values[place] = logit;
    ids[place] = i;
    kept = std::min(kept + 1, count);
  }
  return kept;
}

void logprobs_row(const LogprobParams& p, int64_t r) {
  const float* logits = p.logits.get() + r * p.vocab;
  const int32_t count = p.counts ? std::min(p.counts[r], p.k) : p.k;
  const int32_t token = count < 0 ? -1 : p.tokens[r];
  int32_t* top = p.top_tokens.get() + r * p.k;
  float* values = p.top_logprobs.get() + r * p.k;  // holds logits until the list is complete
  const LogSoftmax softmax = count < 0 ? LogSoftmax{} : log_softmax_of(logits, p.vocab);
  const bool finite = count < 0 || all_finite(logits, p.vocab);
  const auto logprob_of = [&](float logit) { return finite ? softmax.of(logit) : kNaN; };
  p.logprobs[r] = token < 0 ? 0.0f : logprob_of(logits[token]);
  if (p.ranks) p.ranks[r] = token < 0 ? 0 : rank_of(logits, p.vocab, token);
  const int32_t kept = list_largest(logits, p.vocab, count, top, values);
  for (int32_t j = 0; j < p.k; ++j) {
    if (j >= kept) top[j] = -1;
    values[j] = j < kept ? logprob_of(values[j]) : -kInfinity;
  }
}

void logprobs_kernel(const LogprobParams& p, HostContext& context) {
  context.threads.parallel_for(p.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      CHECK(p.tokens[r] < p.vocab, "the logprob of token {} was asked for; the vocabulary has {}", p.tokens[r],
            p.vocab);
      logprobs_row(p, r);
    }
  });
}

}  // namespace

float philox_uniform(uint64_t seed, uint64_t counter) {
  return static_cast<float>(philox_block(seed, counter)[0] >> 8) * 0x1p-24f;
}

int64_t sample_scratch_bytes(int64_t max_rows, int32_t vocab) {
  return std::min(max_rows, kRowsAtOnce) * row_scratch_bytes(vocab);
}

void sample(Stream& stream, const SampleParams& params) {
  const int64_t needed = sample_scratch_bytes(params.rows, params.vocab);
  CHECK(params.vocab > 0 && params.scratch_bytes >= needed, "sampling {} rows of {} has {} bytes of scratch, needs {}",
        params.rows, params.vocab, params.scratch_bytes, needed);
  launch_op(stream, "sample", &sample_kernel, &CudaOps::sample, params);
}

void logprobs(Stream& stream, const LogprobParams& params) {
  launch_op(stream, "logprobs", &logprobs_kernel, &CudaOps::logprobs, params);
}

}  // namespace lantern
