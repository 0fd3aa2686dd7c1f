#include "cli/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace lantern::cli {
namespace {

constexpr double kWidth = 560;
constexpr double kHeight = 260;
constexpr double kLeft = 64;
constexpr double kRight = 12;
constexpr double kTop = 48;
constexpr double kBottom = 42;

}  // namespace

double tick_distance(double most, int wanted) {
  if (!(most > 0)) return 1;
  const double raw = most / wanted;
  const double ten = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * ten >= raw) return factor * ten;
  }
  return 10 * ten;
}

std::string html_escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

std::string svg_chart(const Chart& chart) {
  double most_x = 0;
  double most_y = 0;
  for (const ChartSeries& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      most_x = std::max(most_x, x);
      most_y = std::max(most_y, y);
    }
  }
  const double step_x = tick_distance(most_x, 8);
  const double step_y = tick_distance(most_y, 5);
  most_x = std::max(most_x, step_x);
  most_y = std::max(std::ceil(most_y / step_y - 1e-9), 1.0) * step_y;
  const auto at_x = [&](double x) { return kLeft + x / most_x * (kWidth - kLeft - kRight); };
  const auto at_y = [&](double y) { return kHeight - kBottom - y / most_y * (kHeight - kTop - kBottom); };

  std::string svg;
  const auto out = std::back_inserter(svg);
  fmt::format_to(out, "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth, kHeight,
                 html_escape(chart.title));
  fmt::format_to(out, "<text class=\"title\" x=\"{}\" y=\"16\">{}</text>\n", kLeft, html_escape(chart.title));
  for (double y = 0; y <= most_y * (1 + 1e-9); y += step_y) {
    fmt::format_to(out, "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft,
                   kWidth - kRight, at_y(y), at_y(y));
    fmt::format_to(out, "<text class=\"tick\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{:.6g}</text>\n", kLeft - 6,
                   at_y(y) + 4, y);
  }
  for (double x = 0; x <= most_x * (1 + 1e-9); x += step_x) {
    fmt::format_to(out, "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{:.6g}</text>\n",
                   at_x(x), kHeight - kBottom + 16, x);
  }
  fmt::format_to(out, "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                 (kLeft + kWidth - kRight) / 2, kHeight - 8, html_escape(chart.x_label));
  fmt::format_to(out, "<text class=\"tick\" x=\"4\" y=\"{:.1f}\">{}</text>\n", kTop - 12, html_escape(chart.y_label));
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const ChartSeries& series = chart.series[i];
    fmt::format_to(out, "<polyline class=\"s{}\" points=\"", i);
    for (const auto& [x, y] : series.points) fmt::format_to(out, "{:.1f},{:.1f} ", at_x(x), at_y(y));
    fmt::format_to(out, "\"/><text class=\"legend s{}\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", i,
                   kWidth - kRight, kTop + 14 * static_cast<double>(i), html_escape(series.label));
  }
  return svg + "</svg>\n";
}

}  // namespace lantern::cli
