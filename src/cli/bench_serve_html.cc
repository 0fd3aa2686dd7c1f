// The result of `bench serve` as one page, which loads nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "cli/bench_engine.h"
#include "cli/bench_serve.h"
#include "cli/svg_chart.h"

namespace lantern::cli {
namespace {

constexpr size_t kMostRows = 200;  // requests in the picture of their times

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>lantern bench serve</title>
<style>
:root{--ink:#1d2430;--soft:#667085;--paper:#fff;--line:#dfe3ea;--c0:#2563eb;--c1:#d97706;--good:#3a9a5b;--mid:#e0a030;--bad:#cf4a4a;--wait:#b8c0cc}
@media(prefers-color-scheme:dark){:root{--ink:#e7eaf0;--soft:#98a2b3;--paper:#14181f;--line:#2c333f;--c0:#7aa2ff;--c1:#f0b35e;--good:#57b878;--mid:#d9a441;--bad:#e06c6c;--wait:#4a5361}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1180px;margin:24px auto;padding:0 16px}
h1{font-size:20px}h2{font-size:16px;margin-top:28px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:3px 14px 3px 0;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}.soft{color:var(--soft)}
.charts{display:flex;flex-wrap:wrap;gap:16px}.chart{flex:1 1 520px;max-width:580px;border:1px solid var(--line);border-radius:6px}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}svg .title{font-size:14px;fill:var(--ink)}
.grid{stroke:var(--line)}polyline{fill:none;stroke-width:2}polyline.s0{stroke:var(--c0)}polyline.s1{stroke:var(--c1)}
svg .legend.s0{fill:var(--c0)}svg .legend.s1{fill:var(--c1)}
.wait{fill:var(--wait)}.good{fill:var(--good)}.mid{fill:var(--mid)}.bad{fill:var(--bad)}
</style></head><body>
)";

// From the least to the most of `seconds`, in milliseconds by percent.
ChartSeries percentiles(std::string label, const std::vector<double>& seconds) {
  ChartSeries series{.label = std::move(label), .points = {}};
  if (seconds.empty()) return series;
  for (int percent = 0; percent <= 100; ++percent)
    series.points.emplace_back(percent, 1e3 * percentile_of(seconds, percent / 100.0));
  return series;
}

template <class T>
ChartSeries by_second(std::string label, const std::vector<T>& values) {
  ChartSeries series{.label = std::move(label), .points = {}};
  for (size_t i = 0; i < values.size(); ++i)
    series.points.emplace_back(static_cast<double>(i), static_cast<double>(values[i]));
  return series;
}

std::string charts(const ServeRun& run) {
  std::vector<double> ttft;
  std::vector<double> e2el;
  std::vector<double> tpot;
  std::vector<double> itl;
  for (const ServeRecord& record : run.records) {
    if (!record.ok()) continue;
    ttft.push_back(record.ttft());
    e2el.push_back(record.latency());
    if (const std::optional<double> each = tpot_of(record)) tpot.push_back(*each);
    for (size_t i = 1; i < record.token_seconds.size(); ++i)
      itl.push_back(record.token_seconds[i] - record.token_seconds[i - 1]);
  }
  const char* percent = "percent of requests that took at most as long";
  return svg_chart({.title = "To the first token, and to the end",
                    .x_label = percent,
                    .y_label = "ms",
                    .series = {percentiles("TTFT", ttft), percentiles("E2EL", e2el)}}) +
         svg_chart({.title = "Each later token (TPOT), and between chunks (ITL)",
                    .x_label = "percent that took at most as long",
                    .y_label = "ms",
                    .series = {percentiles("TPOT", tpot), percentiles("ITL", itl)}}) +
         svg_chart({.title = "Output tokens",
                    .x_label = "second of the run",
                    .y_label = "tokens/s",
                    .series = {by_second("tokens/s", tokens_by_second(run))}}) +
         svg_chart({.title = "Requests under way",
                    .x_label = "second of the run",
                    .y_label = "requests",
                    .series = {by_second("requests", requests_by_second(run))}});
}

// A row for each request: waiting for its first token, then its answer, in the colour of its speed.
std::string timeline(const ServeRun& run, double median_tpot_ms) {
  constexpr double kWidth = 1140;
  constexpr double kRow = 6;
  const size_t rows = std::min(run.records.size(), kMostRows);
  const double scale = kWidth / std::max(run.duration, 1e-9);
  std::string svg;
  const auto out = std::back_inserter(svg);
  fmt::format_to(out, "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"When each request ran\">\n", kWidth,
                 kRow * static_cast<double>(rows));
  for (size_t i = 0; i < rows; ++i) {
    const ServeRecord& record = run.records[i];
    const double y = kRow * static_cast<double>(i);
    const auto bar = [&](const char* kind, double from, double to, const std::string& said) {
      fmt::format_to(
          out, "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"><title>{}</title></rect>\n",
          kind, from * scale, y, std::max((to - from) * scale, 1.0), kRow - 1, said);
    };
    if (!record.ok()) {
      bar("bad", record.start, record.start,
          html_escape(fmt::format("request {}: {}", i, without_controls(record.error))));
      continue;
    }
    const double tpot = 1e3 * tpot_of(record).value_or(0);
    bar("wait", record.start, record.token_seconds.front(),
        fmt::format("request {}: first token after {:.1f} ms", i, 1e3 * record.ttft()));
    bar(tpot <= 1.25 * median_tpot_ms ? "good"
        : tpot <= 2 * median_tpot_ms  ? "mid"
                                      : "bad",
        record.token_seconds.front(), record.token_seconds.back(),
        fmt::format("request {}: {} tokens, {:.2f} ms each", i, record.output_tokens, tpot));
  }
  return svg + "</svg>\n";
}

std::string latency_row(const char* label, const LatencySummary& of) {
  return fmt::format(
      "<tr><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td></tr>\n", label,
      of.mean, of.median, of.std, of.p90, of.p99);
}

}  // namespace

std::string serve_html(const ServeResult& result) {
  const ServeSubject& subject = result.subject;
  const ServeSummary& summary = result.summary;
  std::string page(kHead);
  const auto out = std::back_inserter(page);
  fmt::format_to(
      out, "<h1>{} at {}</h1>\n<p class=\"soft\">{} &middot; {} requests of {} &middot; {} at a time &middot; {}</p>\n",
      html_escape(subject.model), html_escape(subject.url), subject.date, result.run.records.size(),
      html_escape(subject.dataset),
      subject.max_concurrency > 0 ? fmt::format("{}", subject.max_concurrency) : "any number",
      std::isinf(subject.request_rate) ? "as fast as that allows" : fmt::format("{} requests/s", subject.request_rate));
  page += "<table>\n";
  const auto row = [&](std::string_view label, const std::string& value) {
    fmt::format_to(out, "<tr><td>{}</td><td>{}</td></tr>\n", label, value);
  };
  row("answered, failed", fmt::format("{}, {}", summary.completed, summary.failed));
  row("seconds", fmt::format("{:.2f}", summary.duration));
  row("input tokens, of these cached", fmt::format("{}, {}", summary.total_input, summary.total_cached));
  row("output tokens", fmt::format("{}", summary.total_output));
  row("requests/s", fmt::format("{:.2f}", summary.request_throughput));
  if (summary.request_goodput) row("good requests/s", fmt::format("{:.2f}", *summary.request_goodput));
  row("output tokens/s", fmt::format("{:.1f}", summary.output_throughput));
  row("tokens/s in all", fmt::format("{:.1f}", summary.total_throughput));
  if (result.drafts) {
    row("drafts accepted", fmt::format("{:.1f} %, {:.2f} tokens a step", 100 * result.drafts->acceptance_rate(),
                                       result.drafts->acceptance_length()));
  }
  page +=
      "</table>\n<h2>Milliseconds</h2>\n<table><tr><th></th><th>mean</th><th>median</th><th>std</th><th>p90</th>"
      "<th>p99</th></tr>\n";
  page += latency_row("to the first token (TTFT)", summary.ttft) +
          latency_row("each later token (TPOT)", summary.tpot) + latency_row("between chunks (ITL)", summary.itl) +
          latency_row("to the end (E2EL)", summary.e2el);
  page += "</table>\n<h2>Distributions and course</h2>\n<div class=\"charts\">\n" + charts(result.run) + "</div>\n";
  fmt::format_to(
      out,
      "<h2>Requests</h2>\n<p class=\"soft\">{} of {}: grey until the first token, then green up to 1.25 times "
      "the median time per token, orange up to twice, red above or failed.</p>\n",
      std::min(result.run.records.size(), kMostRows), result.run.records.size());
  page += timeline(result.run, std::isnan(summary.tpot.median) ? 0 : summary.tpot.median);
  if (!summary.failures.empty()) page += "<h2>Failures</h2>\n<table>\n";
  for (const auto& [error, count] : summary.failures)
    row(html_escape(without_controls(error)), fmt::format("{}", count));
  if (!summary.failures.empty()) page += "</table>\n";
  return page + "</body></html>\n";
}

}  // namespace lantern::cli
