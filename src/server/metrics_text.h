// The text format in which Prometheus reads metrics, version 0.0.4, and a histogram.
// https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lantern {

using MetricLabels = std::vector<std::pair<std::string_view, std::string>>;

class MetricsText {
 public:
  // `common` stand before the labels of every sample.
  explicit MetricsText(MetricLabels common) : common_(std::move(common)) {}

  // What follows is of this family. `type`: "counter", "gauge", "histogram". A counter's name ends in _total.
  void family(std::string_view name, std::string_view type, std::string_view help);
  void sample(double value, const MetricLabels& labels = {});
  // Of the family with this suffix: _bucket, _sum, _count.
  void sample_of(std::string_view suffix, double value, const MetricLabels& labels = {});
  std::string take() { return std::move(text_); }

 private:
  MetricLabels common_;
  std::string name_;
  std::string text_;
};

// Any thread.
class Histogram {
 public:
  // Upper bounds, ascending; above the last one there is a bucket more.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void observe(double value, int64_t times = 1);
  void write(MetricsText& text, const MetricLabels& labels = {}) const;

 private:
  const std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<int64_t> counts_;  // of each bucket alone
  double sum_ = 0;
};

// 1, 2, 5, 10, 20, ... up to `most`.
std::vector<double> bounds_1_2_5(int64_t most);

}  // namespace lantern
