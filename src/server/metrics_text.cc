#include "server/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace lantern {
namespace {

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

void append_escaped(std::string& text, std::string_view value) {
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
}

}  // namespace

void MetricsText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricsText::sample(double value, const MetricLabels& labels) { sample_of("", value, labels); }

void MetricsText::sample_of(std::string_view suffix, double value, const MetricLabels& labels) {
  text_ += name_;
  text_ += suffix;
  bool any = false;
  for (const MetricLabels* all : std::initializer_list<const MetricLabels*>{&common_, &labels}) {
    for (const auto& [name, label] : *all) {
      text_ += any ? "," : "{";
      any = true;
      text_ += name;
      text_ += "=\"";
      append_escaped(text_, label);
      text_ += '"';
    }
  }
  if (any) text_ += '}';
  text_ += ' ';
  text_ += number_text(value);
  text_ += '\n';
}

void Histogram::observe(double value, int64_t times) {
  const size_t bucket = static_cast<size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin());
  const std::lock_guard lock(mutex_);
  counts_[bucket] += times;
  sum_ += value * static_cast<double>(times);
}

void Histogram::write(MetricsText& text, const MetricLabels& labels) const {
  std::vector<int64_t> counts;
  double sum = 0;
  {
    const std::lock_guard lock(mutex_);
    counts = counts_;
    sum = sum_;
  }
  int64_t so_far = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    so_far += counts[i];
    MetricLabels with_bound = labels;
    with_bound.emplace_back("le", i < bounds_.size() ? number_text(bounds_[i]) : "+Inf");
    text.sample_of("_bucket", static_cast<double>(so_far), with_bound);
  }
  text.sample_of("_sum", sum, labels);
  text.sample_of("_count", static_cast<double>(so_far), labels);
}

std::vector<double> bounds_1_2_5(int64_t most) {
  std::vector<double> bounds;
  for (int64_t ten = 1; ten <= most; ten *= 10) {
    for (const int64_t factor : {1, 2, 5}) {
      if (ten * factor <= most) bounds.push_back(static_cast<double>(ten * factor));
    }
  }
  return bounds;
}

}  // namespace lantern
