#include "cli/server_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "cli/json_writer.h"

namespace lantern::cli {
namespace {

constexpr double kFullCache = 0.9;  // where vLLM's dashboards warn
constexpr int kBarWidth = 30;
constexpr size_t kSparkWidth = 40;

double grown(const MetricsSnapshot& from, const MetricsSnapshot& to, std::string_view name) {
  const double before = from.sum(name);
  const double now = to.sum(name);
  return now < before ? now : now - before;
}

LatencyView latency(const MetricsSnapshot& begin, const MetricsSnapshot& now, std::string_view name) {
  const HistogramCounts counts = now.histogram(name).since(begin.histogram(name));
  return {.p50 = 1e3 * counts.quantile(0.5), .p90 = 1e3 * counts.quantile(0.9), .p99 = 1e3 * counts.quantile(0.99)};
}

double share(double part, double whole) { return whole > 0 ? part / whole : std::nan(""); }

std::string percent(double share) { return std::isnan(share) ? "-" : fmt::format("{:.1f} %", 100 * share); }

std::string latency_text(const LatencyView& of) {
  if (std::isnan(of.p50)) return "-";
  return fmt::format("p50 {:.1f} ms   p90 {:.1f} ms   p99 {:.1f} ms", of.p50, of.p90, of.p99);
}

// The newest values as columns of eight heights.
std::string sparkline(const std::vector<double>& values) {
  static constexpr std::string_view kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const size_t begin = values.size() > kSparkWidth ? values.size() - kSparkWidth : 0;
  double most = 0;
  for (size_t i = begin; i < values.size(); ++i) most = std::max(most, values[i]);
  std::string line;
  for (size_t i = begin; i < values.size(); ++i)
    line += kHeights[most > 0 ? static_cast<size_t>(std::lround(7 * values[i] / most)) : 0];
  return line;
}

// At most `width` columns; each code point here is one column wide.
std::string cut(std::string line, int width) {
  int columns = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if ((static_cast<unsigned char>(line[i]) & 0xc0u) == 0x80u) continue;
    if (++columns > width) return line.substr(0, i);
  }
  return line;
}

std::string state_of(const ServerView& view) {
  if (view.kv_use >= kFullCache) return "KV PRESSURE";
  if (view.waiting > view.running) return "QUEUE BUILDING";
  return view.running > 0 || view.waiting > 0 ? "HEALTHY" : "IDLE";
}

void write_latency(JsonWriter& json, std::string_view name, const LatencyView& of) {
  json.field(fmt::format("p50_{}_ms", name), of.p50)
      .field(fmt::format("p90_{}_ms", name), of.p90)
      .field(fmt::format("p99_{}_ms", name), of.p99);
}

}  // namespace

ServerView server_view(const MetricsSnapshot& begin, const MetricsSnapshot& last, const MetricsSnapshot& now,
                       double seconds) {
  ServerView view;
  view.model = now.label_of("vllm:num_requests_running", "model_name");
  view.generation_rate = grown(last, now, "vllm:generation_tokens_total") / seconds;
  view.prompt_rate = grown(last, now, "vllm:prompt_tokens_total") / seconds;
  view.request_rate = grown(last, now, "vllm:request_success_total") / seconds;
  view.running = now.sum("vllm:num_requests_running");
  view.waiting = now.sum("vllm:num_requests_waiting");
  view.kv_use = now.sum("vllm:kv_cache_usage_perc");
  view.prefix_hit_rate =
      share(grown(begin, now, "vllm:prefix_cache_hits_total"), grown(begin, now, "vllm:prefix_cache_queries_total"));
  const double accepted = grown(begin, now, "vllm:spec_decode_num_accepted_tokens_total");
  view.draft_acceptance = share(accepted, grown(begin, now, "vllm:spec_decode_num_draft_tokens_total"));
  view.acceptance_length = 1 + share(accepted, grown(begin, now, "vllm:spec_decode_num_drafts_total"));
  const std::map<std::string, double> earlier = begin.by_label("vllm:request_success_total", "finished_reason");
  for (const auto& [reason, count] : now.by_label("vllm:request_success_total", "finished_reason")) {
    const auto found = earlier.find(reason);
    const double before = found == earlier.end() ? 0 : found->second;
    view.ended[reason] = count < before ? count : count - before;
  }
  view.ttft = latency(begin, now, "vllm:time_to_first_token_seconds");
  view.itl = latency(begin, now, "vllm:inter_token_latency_seconds");
  view.state = state_of(view);
  return view;
}

std::vector<std::string> view_lines(const ServerView& view, const std::string& url, const std::vector<double>& rates,
                                    int width) {
  std::string ended;
  for (const auto& [reason, count] : view.ended) {
    if (count > 0) ended += fmt::format("{}{} {}", ended.empty() ? " (" : ", ", reason, count);
  }
  if (!ended.empty()) ended += ')';
  const int filled = static_cast<int>(std::lround(std::clamp(view.kv_use, 0.0, 1.0) * kBarWidth));
  std::vector<std::string> lines = {
      fmt::format("lantern top   {}   {}   {}", url, without_controls(view.model), view.state),
      "",
      fmt::format("tokens/s      {:.1f} out   {:.1f} in   {}", view.generation_rate, view.prompt_rate,
                  sparkline(rates)),
      fmt::format("requests      {} running   {} waiting   {:.1f}/s ended{}", view.running, view.waiting,
                  view.request_rate, ended),
      fmt::format("KV cache      [{}{}] {}", std::string(static_cast<size_t>(filled), '#'),
                  std::string(static_cast<size_t>(kBarWidth - filled), '.'), percent(view.kv_use)),
      fmt::format("prefix cache  {}{}", percent(view.prefix_hit_rate),
                  std::isnan(view.prefix_hit_rate) ? "" : " of prompt tokens"),
      fmt::format("drafts        {}{}", percent(view.draft_acceptance),
                  std::isnan(view.draft_acceptance)
                      ? ""
                      : fmt::format(" accepted, {:.2f} tokens a step", view.acceptance_length)),
      fmt::format("first token   {}", latency_text(view.ttft)),
      fmt::format("each token    {}", latency_text(view.itl)),
  };
  for (std::string& line : lines) line = cut(std::move(line), width);
  return lines;
}

std::string view_json(const ServerView& view, const std::string& url) {
  JsonWriter json;
  json.begin_object()
      .field("url", url)
      .field("model", view.model)
      .field("state", view.state)
      .field("generation_tokens_per_s", view.generation_rate)
      .field("prompt_tokens_per_s", view.prompt_rate)
      .field("requests_per_s", view.request_rate)
      .field("num_requests_running", view.running)
      .field("num_requests_waiting", view.waiting)
      .field("kv_cache_usage_perc", view.kv_use)
      .field("prefix_cache_hit_rate", view.prefix_hit_rate)
      .field("draft_acceptance_rate", view.draft_acceptance)
      .field("draft_acceptance_length", view.acceptance_length);
  json.key("ended").begin_object();
  for (const auto& [reason, count] : view.ended) json.field(reason, count);
  json.end_object();
  write_latency(json, "ttft", view.ttft);
  write_latency(json, "itl", view.itl);
  return json.end_object().take();
}

}  // namespace lantern::cli
