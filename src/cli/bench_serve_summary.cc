// What the answers of a run of `bench serve` say of the server.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/bench_engine.h"
#include "cli/bench_serve.h"

namespace lantern::cli {
namespace {

// The second of the run that `time` lies in.
size_t second_of(double time) { return static_cast<size_t>(std::max(time, 0.0)); }

bool is_good(const ServeRecord& record, const Goodput& least) {
  const auto within = [](const std::optional<double>& milliseconds, double seconds) {
    return !milliseconds || 1e3 * seconds <= *milliseconds;
  };
  return within(least.ttft, record.ttft()) && within(least.tpot, tpot_of(record).value_or(0)) &&
         within(least.e2el, record.latency());
}

std::vector<std::pair<std::string, int64_t>> failures_of(const ServeRun& run) {
  std::map<std::string, int64_t> counts;
  for (const ServeRecord& record : run.records) {
    if (!record.ok()) ++counts[record.error];
  }
  std::vector<std::pair<std::string, int64_t>> failures(counts.begin(), counts.end());
  std::ranges::stable_sort(failures, std::greater(), [](const auto& failure) { return failure.second; });
  return failures;
}

}  // namespace

std::optional<double> tpot_of(const ServeRecord& record) {
  if (record.output_tokens < 2) return std::nullopt;
  return (record.latency() - record.ttft()) / static_cast<double>(record.output_tokens - 1);
}

LatencySummary summary_of(std::vector<double> seconds) {
  if (seconds.empty()) {
    const double none = std::nan("");
    return {.mean = none, .median = none, .std = none, .p90 = none, .p99 = none};
  }
  const auto count = static_cast<double>(seconds.size());
  double sum = 0;
  for (double& value : seconds) sum += value *= 1e3;
  double squares = 0;
  for (const double value : seconds) squares += (value - sum / count) * (value - sum / count);
  return {.mean = sum / count,
          .median = percentile_of(seconds, 0.5),
          .std = std::sqrt(squares / count),
          .p90 = percentile_of(seconds, 0.9),
          .p99 = percentile_of(seconds, 0.99)};
}

Result<Goodput> parse_goodput(const std::vector<std::string>& values) {
  Goodput goodput;
  for (const std::string& value : values) {
    for (std::string_view rest = value; !rest.empty();) {
      const std::string_view part = rest.substr(0, rest.find_first_of(", "));
      rest.remove_prefix(std::min(part.size() + 1, rest.size()));
      const size_t colon = std::min(part.find(':'), part.size());
      const std::string_view name = part.substr(0, colon);
      std::optional<double>* least = name == "ttft"   ? &goodput.ttft
                                     : name == "tpot" ? &goodput.tpot
                                     : name == "e2el" ? &goodput.e2el
                                                      : nullptr;
      const Result<double> number = parse_real(part.substr(std::min(colon + 1, part.size())));
      if (least == nullptr || !number.ok() || *number < 0) {
        return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is none of ttft:MS, tpot:MS and e2el:MS", part));
      }
      if (*least) return Error(ErrorCode::kInvalidArgument, fmt::format("{} has two limits; give it one", name));
      *least = *number;
    }
  }
  return goodput;
}

std::vector<double> tokens_by_second(const ServeRun& run) {
  std::vector<double> tokens(second_of(run.duration) + 1, 0);
  for (const ServeRecord& record : run.records) {
    if (!record.ok()) continue;
    const double each = static_cast<double>(record.output_tokens) / static_cast<double>(record.token_seconds.size());
    for (const double time : record.token_seconds) tokens[std::min(second_of(time), tokens.size() - 1)] += each;
  }
  return tokens;
}

std::vector<int64_t> requests_by_second(const ServeRun& run) {
  std::vector<int64_t> requests(second_of(run.duration) + 1, 0);
  for (const ServeRecord& record : run.records) {
    if (!record.ok()) continue;
    const size_t last = std::min(second_of(record.token_seconds.back()), requests.size() - 1);
    for (size_t second = second_of(record.start); second <= last; ++second) ++requests[second];
  }
  return requests;
}

ServeSummary summarise(const ServeRun& run, const std::optional<Goodput>& goodput) {
  ServeSummary summary;
  summary.duration = run.duration;
  std::vector<double> ttft;
  std::vector<double> tpot;
  std::vector<double> itl;
  std::vector<double> e2el;
  int64_t good = 0;
  for (const ServeRecord& record : run.records) {
    if (!record.ok()) {
      ++summary.failed;
      continue;
    }
    ++summary.completed;
    summary.total_input += record.input_tokens;
    summary.total_cached += record.cached_tokens;
    summary.total_output += record.output_tokens;
    summary.pieces += static_cast<int64_t>(record.token_seconds.size());
    ttft.push_back(record.ttft());
    e2el.push_back(record.latency());
    if (const std::optional<double> each = tpot_of(record)) tpot.push_back(*each);
    for (size_t i = 1; i < record.token_seconds.size(); ++i)
      itl.push_back(record.token_seconds[i] - record.token_seconds[i - 1]);
    if (goodput && is_good(record, *goodput)) ++good;
  }
  summary.failures = failures_of(run);
  const double seconds = run.duration;
  summary.request_throughput = static_cast<double>(summary.completed) / seconds;
  if (goodput) summary.request_goodput = static_cast<double>(good) / seconds;
  summary.output_throughput = static_cast<double>(summary.total_output) / seconds;
  summary.total_throughput = static_cast<double>(summary.total_input + summary.total_output) / seconds;
  summary.max_output_tokens_per_second = std::ranges::max(tokens_by_second(run));
  summary.max_concurrent_requests = std::ranges::max(requests_by_second(run));
  summary.ttft = summary_of(std::move(ttft));
  summary.tpot = summary_of(std::move(tpot));
  summary.itl = summary_of(std::move(itl));
  summary.e2el = summary_of(std::move(e2el));
  return summary;
}

std::optional<DraftSummary> drafts_between(const MetricsSnapshot& before, const MetricsSnapshot& after) {
  const auto grown = [&](std::string_view name) { return after.sum(name) - before.sum(name); };
  DraftSummary drafts{.drafts = grown("vllm:spec_decode_num_drafts_total"),
                      .draft_tokens = grown("vllm:spec_decode_num_draft_tokens_total"),
                      .accepted_tokens = grown("vllm:spec_decode_num_accepted_tokens_total"),
                      .accepted_by_position = {}};
  if (!(drafts.draft_tokens > 0) || !(drafts.drafts > 0)) return std::nullopt;
  constexpr std::string_view kByPosition = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
  const std::map<std::string, double> earlier = before.by_label(kByPosition, "position");
  for (const auto& [position, count] : after.by_label(kByPosition, "position")) {
    const auto found = earlier.find(position);
    drafts.accepted_by_position.push_back(count - (found == earlier.end() ? 0 : found->second));
  }
  return drafts;
}

}  // namespace lantern::cli
