#include "cli/metrics_snapshot.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace lantern::cli {
namespace {

std::optional<double> read_value(std::string_view text) {
  if (text == "+Inf" || text == "Inf") return std::numeric_limits<double>::infinity();
  if (text == "-Inf") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Takes `name="value",...}` off the front of `text`; false where it is not so written.
bool read_labels(std::string_view& text, std::map<std::string, std::string, std::less<>>& labels) {
  while (!text.starts_with('}')) {
    const size_t equals = text.find("=\"");
    if (equals == std::string_view::npos) return false;
    const std::string name(text.substr(0, equals));
    text.remove_prefix(equals + 2);
    std::string value;
    while (!text.empty() && text.front() != '"') {
      char c = text.front();
      text.remove_prefix(1);
      if (c == '\\' && !text.empty()) {
        c = text.front() == 'n' ? '\n' : text.front();
        text.remove_prefix(1);
      }
      value += c;
    }
    if (text.empty()) return false;
    text.remove_prefix(1);
    if (text.starts_with(',')) text.remove_prefix(1);
    labels.emplace(name, std::move(value));
  }
  text.remove_prefix(1);
  return true;
}

}  // namespace

HistogramCounts HistogramCounts::since(const HistogramCounts& earlier) const {
  if (earlier.bounds != bounds || earlier.total() > total()) return *this;
  HistogramCounts difference = *this;
  for (size_t i = 0; i < counts.size(); ++i) difference.counts[i] -= earlier.counts[i];
  return difference;
}

double HistogramCounts::quantile(double share) const {
  if (!(total() > 0)) return std::nan("");
  const double rank = share * total();
  double lower = 0;
  double below = 0;
  for (size_t i = 0; i < bounds.size(); ++i) {
    if (counts[i] < rank || counts[i] == below) {
      lower = std::isfinite(bounds[i]) ? bounds[i] : lower;
      below = counts[i];
      continue;
    }
    if (!std::isfinite(bounds[i])) return lower;
    return lower + (bounds[i] - lower) * (rank - below) / (counts[i] - below);
  }
  return lower;
}

Result<MetricsSnapshot> MetricsSnapshot::parse(std::string_view text) {
  MetricsSnapshot snapshot;
  int number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const size_t name_end = line.find_first_of("{ ");
    const auto wrong = [&] {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("line {} of the metrics is none of Prometheus' text format", number));
    };
    if (name_end == std::string_view::npos || name_end == 0) return wrong();
    const std::string name(line.substr(0, name_end));
    Sample sample;
    line.remove_prefix(name_end);
    if (line.starts_with('{')) {
      line.remove_prefix(1);
      if (!read_labels(line, sample.labels)) return wrong();
    }
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const std::optional<double> value = read_value(line.substr(0, line.find(' ')));  // a time may follow
    if (!value) return wrong();
    sample.value = *value;
    snapshot.samples_[name].push_back(std::move(sample));
  }
  return snapshot;
}

double MetricsSnapshot::sum(std::string_view name) const {
  double sum = 0;
  if (const auto found = samples_.find(name); found != samples_.end()) {
    for (const Sample& sample : found->second) sum += sample.value;
  }
  return sum;
}

std::map<std::string, double> MetricsSnapshot::by_label(std::string_view name, std::string_view label) const {
  std::map<std::string, double> sums;
  if (const auto found = samples_.find(name); found != samples_.end()) {
    for (const Sample& sample : found->second) {
      if (const auto value = sample.labels.find(label); value != sample.labels.end())
        sums[value->second] += sample.value;
    }
  }
  return sums;
}

std::string MetricsSnapshot::label_of(std::string_view name, std::string_view label) const {
  const auto found = samples_.find(name);
  if (found == samples_.end()) return {};
  const auto value = found->second.front().labels.find(label);
  return value == found->second.front().labels.end() ? std::string() : value->second;
}

HistogramCounts MetricsSnapshot::histogram(std::string_view name) const {
  std::map<double, double> buckets;
  for (const auto& [bound, count] : by_label(fmt::format("{}_bucket", name), "le")) {
    if (const std::optional<double> limit = read_value(bound)) buckets[*limit] += count;
  }
  HistogramCounts counts;
  for (const auto& [bound, count] : buckets) {
    counts.bounds.push_back(bound);
    counts.counts.push_back(count);
  }
  return counts;
}

}  // namespace lantern::cli
