// The result of `bench serve` as vLLM's table and as JSON with vLLM's keys.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "cli/bench_serve.h"

namespace lantern::cli {
namespace {

struct Named {
  const char* name;
  const char* label;
  const char* title;
  LatencySummary ServeSummary::* of;
};
constexpr Named kLatencies[] = {
    {"ttft", "TTFT", "Time to First Token", &ServeSummary::ttft},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &ServeSummary::tpot},
    {"itl", "ITL", "Inter-token Latency", &ServeSummary::itl},
    {"e2el", "E2EL", "End-to-end Latency", &ServeSummary::e2el},
};
constexpr size_t kMostFailures = 5;  // shown in the table

void write_rate(JsonWriter& json, double rate) {
  json.key("request_rate");
  std::isinf(rate) ? json.value("inf") : json.value(rate);
}

void write_drafts(JsonWriter& json, const DraftSummary& drafts) {
  json.field("spec_decode_acceptance_rate", 100 * drafts.acceptance_rate())
      .field("spec_decode_acceptance_length", drafts.acceptance_length())
      .field("spec_decode_num_drafts", drafts.drafts)
      .field("spec_decode_draft_tokens", drafts.draft_tokens)
      .field("spec_decode_accepted_tokens", drafts.accepted_tokens)
      .key("spec_decode_per_position_acceptance_rates")
      .begin_array();
  for (const double accepted : drafts.accepted_by_position) json.value(accepted / drafts.drafts);
  json.end_array();
}

template <class Of>
void write_list(JsonWriter& json, const ServeRun& run, const char* name, const Of& of) {
  json.key(name).begin_array();
  for (const ServeRecord& record : run.records) json.value(of(record));
  json.end_array();
}

void write_details(JsonWriter& json, const ServeRun& run) {
  const auto if_ok = [](const ServeRecord& record, double value) { return record.ok() ? value : 0.0; };
  write_list(json, run, "input_lens", [](const ServeRecord& record) { return record.input_tokens; });
  write_list(json, run, "output_lens",
             [](const ServeRecord& record) { return record.ok() ? record.output_tokens : 0; });
  write_list(json, run, "ttfts",
             [&](const ServeRecord& record) { return if_ok(record, record.ok() ? record.ttft() : 0); });
  json.key("itls").begin_array();
  for (const ServeRecord& record : run.records) {
    json.begin_array();
    for (size_t i = 1; record.ok() && i < record.token_seconds.size(); ++i)
      json.value(record.token_seconds[i] - record.token_seconds[i - 1]);
    json.end_array();
  }
  json.end_array();
  write_list(json, run, "latencies",
             [&](const ServeRecord& record) { return if_ok(record, record.ok() ? record.latency() : 0); });
  write_list(json, run, "start_times", [](const ServeRecord& record) { return record.start; });
  write_list(json, run, "generated_texts", [](const ServeRecord& record) { return std::string_view(record.text); });
  write_list(json, run, "errors", [](const ServeRecord& record) { return std::string_view(record.error); });
}

}  // namespace

std::string serve_json(const ServeResult& result, bool detailed) {
  const ServeSubject& subject = result.subject;
  const ServeSummary& summary = result.summary;
  JsonWriter json;
  json.begin_object()
      .field("date", subject.date)
      .field("backend", subject.backend)
      .key("label")
      .null()
      .field("base_url", subject.url)
      .field("model_id", subject.model)
      .field("tokenizer_id", subject.model)
      .field("dataset_name", subject.dataset)
      .field("num_prompts", result.run.records.size())
      .field("seed", subject.seed);
  write_rate(json, subject.request_rate);
  json.field("burstiness", subject.burstiness).key("max_concurrency");
  subject.max_concurrency > 0 ? json.value(subject.max_concurrency) : json.null();
  json.field("duration", summary.duration)
      .field("completed", summary.completed)
      .field("failed", summary.failed)
      .field("total_input_tokens", summary.total_input)
      .field("total_cached_tokens", summary.total_cached)
      .field("total_output_tokens", summary.total_output)
      .field("request_throughput", summary.request_throughput)
      .key("request_goodput");
  summary.request_goodput ? json.value(*summary.request_goodput) : json.null();
  json.field("output_throughput", summary.output_throughput)
      .field("total_token_throughput", summary.total_throughput)
      .field("tokens_per_chunk", static_cast<double>(summary.total_output) / static_cast<double>(summary.pieces))
      .field("max_output_tokens_per_s", summary.max_output_tokens_per_second)
      .field("max_concurrent_requests", summary.max_concurrent_requests);
  for (const Named& named : kLatencies) {
    const LatencySummary& of = summary.*named.of;
    json.field(fmt::format("mean_{}_ms", named.name), of.mean)
        .field(fmt::format("median_{}_ms", named.name), of.median)
        .field(fmt::format("std_{}_ms", named.name), of.std)
        .field(fmt::format("p90_{}_ms", named.name), of.p90)
        .field(fmt::format("p99_{}_ms", named.name), of.p99);
  }
  if (result.drafts) write_drafts(json, *result.drafts);
  json.key("failures").begin_array();
  for (const auto& [error, count] : summary.failures)
    json.begin_object().field("error", error).field("count", count).end_object();
  json.end_array();
  if (detailed) write_details(json, result.run);
  return json.end_object().take();
}

std::string serve_table(const ServeResult& result) {
  constexpr int kLabel = 40;
  const ServeSummary& summary = result.summary;
  std::string text = fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  const auto whole = [&](std::string_view label, int64_t value) {
    fmt::format_to(std::back_inserter(text), "{:<{}} {:<10}\n", label, kLabel, value);
  };
  const auto real = [&](std::string_view label, double value) {
    fmt::format_to(std::back_inserter(text), "{:<{}} {:<10.2f}\n", label, kLabel, value);
  };
  whole("Successful requests:", summary.completed);
  whole("Failed requests:", summary.failed);
  if (result.subject.max_concurrency > 0) whole("Maximum request concurrency:", result.subject.max_concurrency);
  if (!std::isinf(result.subject.request_rate)) real("Request rate configured (RPS):", result.subject.request_rate);
  real("Benchmark duration (s):", summary.duration);
  whole("Total input tokens:", summary.total_input);
  whole("Total cached input tokens:", summary.total_cached);
  whole("Total generated tokens:", summary.total_output);
  real("Request throughput (req/s):", summary.request_throughput);
  if (summary.request_goodput) real("Request goodput (req/s):", *summary.request_goodput);
  real("Output token throughput (tok/s):", summary.output_throughput);
  real("Peak output token throughput (tok/s):", summary.max_output_tokens_per_second);
  real("Peak concurrent requests:", static_cast<double>(summary.max_concurrent_requests));
  real("Total token throughput (tok/s):", summary.total_throughput);
  real("Tokens per chunk:", static_cast<double>(summary.total_output) / static_cast<double>(summary.pieces));
  for (const Named& named : kLatencies) {
    const LatencySummary& of = summary.*named.of;
    fmt::format_to(std::back_inserter(text), "{:-^50}\n", named.title);
    real(fmt::format("Mean {} (ms):", named.label), of.mean);
    real(fmt::format("Median {} (ms):", named.label), of.median);
    real(fmt::format("P99 {} (ms):", named.label), of.p99);
  }
  if (const std::optional<DraftSummary>& drafts = result.drafts) {
    fmt::format_to(std::back_inserter(text), "{:-^50}\n", "Speculative Decoding");
    real("Acceptance rate (%):", 100 * drafts->acceptance_rate());
    real("Acceptance length:", drafts->acceptance_length());
    whole("Drafts:", static_cast<int64_t>(drafts->drafts));
    whole("Draft tokens:", static_cast<int64_t>(drafts->draft_tokens));
    whole("Accepted tokens:", static_cast<int64_t>(drafts->accepted_tokens));
    for (size_t i = 0; i < drafts->accepted_by_position.size(); ++i)
      real(fmt::format("  Position {} (%):", i), 100 * drafts->accepted_by_position[i] / drafts->drafts);
  }
  if (!summary.failures.empty()) fmt::format_to(std::back_inserter(text), "{:-^50}\n", "Failures");
  for (size_t i = 0; i < std::min(summary.failures.size(), kMostFailures); ++i)
    fmt::format_to(std::back_inserter(text), "{:>6} x {}\n", summary.failures[i].second,
                   without_controls(summary.failures[i].first));
  if (summary.failures.size() > kMostFailures)
    fmt::format_to(std::back_inserter(text), "{:>6} more kinds\n", summary.failures.size() - kMostFailures);
  return text + std::string(50, '=') + "\n";
}

}  // namespace lantern::cli
