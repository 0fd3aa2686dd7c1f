// What a server's /metrics said at a time, read back from the text format of Prometheus 0.0.4.
// https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lantern::cli {

// Observations up to each bound, of which the last is infinity.
struct HistogramCounts {
  std::vector<double> bounds;
  std::vector<double> counts;  // of this bound and those below it

  double total() const { return counts.empty() ? 0 : counts.back(); }
  // What was observed since `earlier`; all of it where that has other bounds or more (the server began anew).
  HistogramCounts since(const HistogramCounts& earlier) const;
  // As histogram_quantile() of Prometheus: linear within a bucket, the highest finite bound above it. NaN where nothing
  // was observed.
  double quantile(double share) const;
};

class MetricsSnapshot {
 public:
  // Errors: a line that is none of the format.
  static Result<MetricsSnapshot> parse(std::string_view text);

  bool has(std::string_view name) const { return samples_.contains(name); }
  // Over all label sets of that name; 0 where there is none.
  double sum(std::string_view name) const;
  // By the value of one label, over the others.
  std::map<std::string, double> by_label(std::string_view name, std::string_view label) const;
  // The value of `label` in the first sample of that name; empty where there is none.
  std::string label_of(std::string_view name, std::string_view label) const;
  // `name` without _bucket; over all label sets.
  HistogramCounts histogram(std::string_view name) const;

 private:
  struct Sample {
    std::map<std::string, std::string, std::less<>> labels;
    double value = 0;
  };
  std::map<std::string, std::vector<Sample>, std::less<>> samples_;
};

}  // namespace lantern::cli
