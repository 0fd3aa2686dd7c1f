// A line chart as inline SVG: axes with round numbers, a legend, colours by the classes s0, s1, ... of the page's
// style.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lantern::cli {

struct ChartSeries {
  std::string label;
  std::vector<std::pair<double, double>> points;  // ascending in x; not negative
};
struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ChartSeries> series;
};
std::string svg_chart(const Chart& chart);

// The distance of about `wanted` ticks from 0 to `most`: 1, 2 or 5 times a power of ten.
double tick_distance(double most, int wanted);
// & < > " as HTML writes them.
std::string html_escape(std::string_view text);

}  // namespace lantern::cli
