// Few requests at a time, again and again: how long until the first token, between tokens, and to the end.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/bench_engine.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/json_writer.h"

namespace lantern::cli {
namespace {

constexpr int64_t kMostRequests = 10'000'000;  // their prompts are made before

struct Latencies {           // seconds
  std::vector<double> ttft;  // to the first token
  std::vector<double> tpot;  // of a request: each token after the first, on average
  std::vector<double> itl;   // between two outputs, which may have several tokens each
  std::vector<double> e2el;  // to the last token
};

void add(Latencies& to, const BenchRequest& request) {
  if (request.token_seconds.empty()) return;
  const double first = request.token_seconds.front() - request.begin;
  const double whole = request.token_seconds.back() - request.begin;
  to.ttft.push_back(first);
  to.e2el.push_back(whole);
  const int32_t later = request.num_tokens - request.token_counts.front();
  if (later > 0) to.tpot.push_back((whole - first) / later);
  for (size_t i = 1; i < request.token_seconds.size(); ++i)
    to.itl.push_back(request.token_seconds[i] - request.token_seconds[i - 1]);
}

struct Named {
  const char* name;
  const char* label;
  const std::vector<double>* values;
};

}  // namespace

Status check_bench_latency(const Values& values) {
  RETURN_IF_ERROR(check_bench_engine(values));
  if (values.integer("requests") * (values.integer("repetitions") + 1) <= kMostRequests) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--requests times --repetitions must be at most {} requests in all", kMostRequests));
}

Result<int> run_bench_latency(const Values& values) {
  const auto count = static_cast<int32_t>(values.integer("requests"));
  const auto output_len = static_cast<int32_t>(values.integer("output-len"));
  const auto repetitions = static_cast<int32_t>(values.integer("repetitions"));
  const bool quiet = values.is_on("quiet");
  if (!quiet) print_notice("loading");
  ASSIGN_OR_RETURN(LoadedEngine loaded, load_bench_engine(values, count, nullptr));
  ASSIGN_OR_RETURN(const BenchPrompts prompts, bench_prompts(values, loaded, count * (repetitions + 1)));
  const auto all = std::span(prompts.prompts);
  const auto step = static_cast<size_t>(count);

  RETURN_IF_ERROR(run_requests(*loaded.engine, all.last(step), std::min(output_len, 8)));  // warms up
  Latencies latencies;
  const EngineReport before = loaded.engine->report();
  {
    Progress progress("repetitions", repetitions, quiet);
    for (int32_t i = 0; i < repetitions && !interrupted(); ++i) {
      ASSIGN_OR_RETURN(const std::vector<BenchRequest> requests,
                       run_requests(*loaded.engine, all.subspan(static_cast<size_t>(i) * step, step), output_len));
      if (interrupted()) break;
      for (const BenchRequest& request : requests) add(latencies, request);
      progress.update(i + 1);
    }
  }
  if (interrupted()) return interrupt_exit_code();

  const EngineReport report = loaded.engine->report();
  const double overhead_us = (report.overhead_seconds - before.overhead_seconds) /
                             static_cast<double>(std::max<int64_t>(report.steps - before.steps, 1)) * 1e6;
  const Named all_named[] = {{"ttft", "to the first token", &latencies.ttft},
                             {"tpot", "each token after it", &latencies.tpot},
                             {"itl", "between outputs", &latencies.itl},
                             {"e2el", "to the last token", &latencies.e2el}};
  constexpr int kPercentiles[] = {50, 90, 99};
  const double tpot = percentile_of(latencies.tpot, 0.5);
  if (values.is_on("json")) {
    JsonWriter json;
    json.begin_object();
    write_subject(json, values, loaded, prompts);
    json.field("batch_size", count)
        .field("output_len", output_len)
        .field("draft_tokens", values.integer("draft-tokens"))
        .field("repetitions", repetitions);
    for (const Named& named : all_named) {
      double sum = 0;
      for (const double value : *named.values) sum += value;
      json.field(fmt::format("mean_{}_ms", named.name), 1e3 * sum / static_cast<double>(named.values->size()));
      for (const int percent : kPercentiles)
        json.field(fmt::format("p{}_{}_ms", percent, named.name), 1e3 * percentile_of(*named.values, percent / 100.0));
    }
    json.field("tokens_per_second_per_request", 1 / tpot)
        .field("engine_overhead_us_per_step", overhead_us)
        .field("acceptance", report.acceptance());
    write_text(json.end_object().take() + "\n");
    return kSuccess;
  }
  write_text(fmt::format("{} at a time, {} times; prompts: {}\n", count, repetitions, prompts.source));
  write_text(fmt::format("{:<20} {:>10} {:>10} {:>10}\n", "milliseconds", "p50", "p90", "p99"));
  for (const Named& named : all_named) {
    write_text(fmt::format("{:<20}", named.label));
    for (const int percent : kPercentiles)
      write_text(fmt::format(" {:>10.3f}", 1e3 * percentile_of(*named.values, percent / 100.0)));
    write_text("\n");
  }
  write_text(fmt::format("{:.1f} tokens/s for each request; engine {:.1f} us a step beside the model\n", 1 / tpot,
                         overhead_us));
  return kSuccess;
}

}  // namespace lantern::cli
