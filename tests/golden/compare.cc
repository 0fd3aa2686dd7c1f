#include "golden/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace lantern::golden {
namespace {

std::vector<int32_t> unpacked(const GoldenTensor& bits, int64_t row) {
  std::vector<int32_t> keys;
  const uint8_t* octets = bits.octets() + row * bits.cols();
  for (int64_t key = 0; key < bits.cols() * 8; ++key) {
    if ((octets[key / 8] >> (key % 8)) & 1) keys.push_back(static_cast<int32_t>(key));
  }
  return keys;
}

// Walks the layers of one sequence; `undecided` collects positions whose choice differs within the allowed gap.
class Judge {
 public:
  Judge(const GoldenCase& golden, int sequence, DeviceKind device)
      : golden_(golden), sequence_(sequence), limit_(tolerance_of(golden, device)) {}

  void selection(const std::string& where, const LayerCapture& got, const std::string& suffix) {
    const std::string name = "selected" + suffix;
    if (!golden_.has(sequence_, name)) {
      if (!got.selected.empty()) problem(fmt::format("{}: an indexer ran that the architecture does not have", where));
      return;
    }
    const GoldenTensor& want = golden_.of(sequence_, name);
    const float* gap = golden_.of(sequence_, "selected_gap" + suffix).floats();
    if (static_cast<int64_t>(got.selected.size()) != want.rows()) {
      problem(fmt::format("{}: {} selections for {} tokens", where, got.selected.size(), want.rows()));
      return;
    }
    for (int64_t t = 0; t < want.rows(); ++t) {
      const std::vector<int32_t> keys = unpacked(want, t);
      if (got.selected[static_cast<size_t>(t)] == keys) continue;
      differs(t, gap[t] == 0 ? 1 : gap[t],
              fmt::format("{}: keys of token {} are [{}], golden [{}], gap {:.1e}", where, t,
                          fmt::join(got.selected[static_cast<size_t>(t)], " "), fmt::join(keys, " "), gap[t]));
    }
  }

  void experts(const std::string& where, const LayerCapture& got, const std::string& suffix) {
    const std::string name = "experts" + suffix;
    if (!golden_.has(sequence_, name)) {
      if (!got.experts.empty()) problem(fmt::format("{}: a router ran in a dense layer", where));
      return;
    }
    const GoldenTensor& want = golden_.of(sequence_, name);
    if (static_cast<int64_t>(got.experts.size()) != want.rows()) {
      problem(fmt::format("{}: {} routed tokens of {}", where, got.experts.size(), want.rows()));
      return;
    }
    const bool weighted = golden_.has(sequence_, "expert_weights" + suffix);
    const float* gap = weighted ? golden_.of(sequence_, "router_gap" + suffix).floats() : nullptr;
    for (int64_t t = 0; t < want.rows(); ++t) {
      const auto& chosen = got.experts[static_cast<size_t>(t)];
      const uint8_t* ids = want.octets() + t * want.cols();
      const bool same =
          chosen.size() == static_cast<size_t>(want.cols()) &&
          std::equal(chosen.begin(), chosen.end(), ids, [](const auto& have, uint8_t id) { return have.first == id; });
      if (!same) {
        differs(t, gap == nullptr ? 1 : gap[t],
                fmt::format("{}: token {} went to other experts than golden's {}", where, t,
                            fmt::join(std::vector<int>(ids, ids + want.cols()), " ")));
      } else if (weighted) {
        weights(where, t, chosen, golden_.of(sequence_, "expert_weights" + suffix));
      }
    }
  }

  Difference values(const std::string& where, const Matrix& got, const GoldenTensor& want,
                    const std::vector<int32_t>& positions) {
    const Difference found = difference(got, want, positions, undecided_);
    if (!(found.max <= limit_.max)) {
      problem(fmt::format("{}: off by {:.2e} of the largest value at token {}; {:.0e} is allowed", where, found.max,
                          found.worst_position, limit_.max));
    } else if (!(found.mean <= limit_.mean)) {
      problem(fmt::format("{}: off by {:.2e} of the largest value on average; {:.0e} is allowed", where, found.mean,
                          limit_.mean));
    }
    return found;
  }

  Comparison verdict(int64_t positions) {
    result_.positions = static_cast<int>(positions);
    result_.undecided = static_cast<int>(undecided_.size());
    if (result_.undecided > limit_.max_undecided * static_cast<double>(positions)) {
      problem(fmt::format("{} of {} positions chose differently, if closely", result_.undecided, positions));
    }
    return std::move(result_);
  }

  Comparison& result() { return result_; }

 private:
  void problem(std::string text) { result_.problems.push_back(std::move(text)); }

  // A position whose choice differed keeps its difference in later layers.
  void differs(int64_t position, double gap, std::string text) {
    const auto t = static_cast<int32_t>(position);
    if (undecided_.contains(t)) return;
    if (gap < limit_.choice_gap) {
      undecided_.insert(t);
    } else {
      problem(std::move(text));
    }
  }

  void weights(const std::string& where, int64_t t, const std::map<int32_t, float>& chosen, const GoldenTensor& want) {
    if (undecided_.contains(static_cast<int32_t>(t))) return;
    const float* row = want.floats() + t * want.cols();
    const float largest = *std::max_element(want.floats(), want.floats() + want.rows() * want.cols());
    for (const auto& [id, weight] : chosen) {
      const double error = std::abs(static_cast<double>(weight) - *row++) / largest;
      if (!(error <= limit_.max)) {
        problem(fmt::format("{}: weight of expert {} of token {} is off by {:.1e}", where, id, t, error));
      }
    }
  }

  const GoldenCase& golden_;
  int sequence_;
  Tolerance limit_;
  std::set<int32_t> undecided_;
  Comparison result_;
};

}  // namespace

Tolerance tolerance_of(const GoldenCase& golden, DeviceKind device) {
  if (!golden.rounded()) return {};
  const double more = device == DeviceKind::kCuda ? 2 : 1;
  return {.max = 2e-2 * more, .mean = 2.5e-3 * more, .choice_gap = 1e-2 * more, .max_undecided = 0.1};
}

std::string Comparison::summary() const {
  std::string text = fmt::format("logits off by {:.1e} (mean {:.1e}), hidden {:.1e}, {} of {} positions undecided",
                                 logits_error, logits_mean, hidden_error, undecided, positions);
  for (size_t i = 0; i < problems.size() && i < 8; ++i) text += "\n  " + problems[i];
  if (problems.size() > 8) text += fmt::format("\n  and {} more", problems.size() - 8);
  return text;
}

Difference difference(const Matrix& got, const GoldenTensor& want, const std::vector<int32_t>& positions,
                      const std::set<int32_t>& skip) {
  CHECK(got.cols == want.cols() && static_cast<int64_t>(positions.size()) == want.rows() &&
            got.rows() > *std::max_element(positions.begin(), positions.end()),
        "compared [{}, {}] with [{}, {}]", got.rows(), got.cols, want.rows(), want.cols());
  double largest = 0;
  for (int64_t i = 0; i < want.rows() * want.cols(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(want.floats()[i])));
  }
  Difference result;
  double sum = 0;
  int64_t count = 0;
  for (size_t r = 0; r < positions.size(); ++r) {
    if (skip.contains(positions[r])) continue;
    const float* have = got.row(positions[r]);
    const float* expected = want.floats() + static_cast<int64_t>(r) * want.cols();
    for (int64_t c = 0; c < want.cols(); ++c, ++count) {
      const double error = std::abs(static_cast<double>(have[c]) - expected[c]) / largest;
      sum += error;
      if (error <= result.max) continue;  // not a number counts as worse than anything
      result.max = std::isnan(error) ? INFINITY : error;
      result.worst_position = positions[r];
    }
  }
  result.mean = count == 0 ? 0 : sum / static_cast<double>(count);
  return result;
}

Comparison compare_sequence(const GoldenCase& golden, int sequence, const SequenceCapture& got) {
  Judge judge(golden, sequence, got.device);
  const std::vector<int32_t> positions = golden.integers(sequence, "positions");
  for (size_t layer = 0; layer < got.layers.size(); ++layer) {
    const std::string where = fmt::format("sequence {} layer {}", sequence, layer);
    const std::string suffix = fmt::format(".{}", layer);
    judge.selection(where, got.layers[layer], suffix);
    judge.experts(where, got.layers[layer], suffix);
    const Difference found =
        judge.values(where + " hidden", got.layers[layer].hidden, golden.of(sequence, "hidden" + suffix), positions);
    judge.result().hidden_error = std::max(judge.result().hidden_error, found.max);
  }
  judge.values(fmt::format("sequence {} final", sequence), got.final, golden.of(sequence, "final"), positions);
  const Difference logits = judge.values(fmt::format("sequence {} logits", sequence), got.logits,
                                         golden.of(sequence, "logits"), golden.integers(sequence, "logit_positions"));
  judge.result().logits_error = logits.max;
  judge.result().logits_mean = logits.mean;
  return judge.verdict(golden.of(sequence, "input_ids").rows());
}

Comparison compare_mtp(const GoldenCase& golden, int sequence, const SequenceCapture& got) {
  Judge judge(golden, sequence, got.device);
  const std::string where = fmt::format("sequence {} MTP layer", sequence);
  judge.selection(where, got.layers.at(0), ".mtp");
  judge.experts(where, got.layers.at(0), ".mtp");
  const Difference logits = judge.values(where + " logits", got.logits, golden.of(sequence, "mtp.logits"),
                                         golden.integers(sequence, "mtp.logit_positions"));
  judge.result().logits_error = logits.max;
  judge.result().logits_mean = logits.mean;
  return judge.verdict(golden.of(sequence, "input_ids").rows());
}

}  // namespace lantern::golden
