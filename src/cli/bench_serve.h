// The parts of `lantern bench serve`: requests for a server, their sending at a rate, and what the answers say of it.
// Names and definitions of the results are those of `vllm bench serve`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/json_writer.h"
#include "cli/metrics_snapshot.h"
#include "cli/server_access.h"
#include "cli/settings.h"

namespace lantern::cli {

struct ServeTarget {
  std::string model;
  bool chat = false;  // chat completions; else completions

  const char* path() const { return chat ? "/v1/chat/completions" : "/v1/completions"; }
};

// The JSON bodies of `count` requests: of --dataset-name or --prompts, with the other settings of the command. Errors:
// a file that makes no sense; a server that cannot make ids or text of random tokens.
Result<std::vector<std::string>> serve_requests(const Values& values, ServerAccess& server, const ServeTarget& target,
                                                int64_t count);

// Seconds from the start at which each of `count` requests comes. `rate` in requests per second, infinite: all at once.
// Intervals are of a gamma distribution of the shape `burstiness`: 1 is a Poisson process, less is burstier.
std::vector<double> arrival_times(int64_t count, double rate, double burstiness, uint64_t seed);

// What came of one request. Times in seconds since the run's start.
struct ServeRecord {
  double start = 0;                   // sent
  std::vector<double> token_seconds;  // of each piece of the answer that brought tokens
  int64_t input_tokens = 0;
  int64_t cached_tokens = 0;  // of the input
  int64_t output_tokens = 0;  // as the server counts; the number of pieces where it does not say
  std::string text;           // with the thinking
  std::string error;          // empty: the answer is complete

  bool ok() const { return error.empty(); }
  double ttft() const { return token_seconds.front() - start; }
  double latency() const { return token_seconds.back() - start; }
};

struct ServeLoad {
  std::span<const std::string> bodies;
  std::span<const double> arrivals;  // of each
  int64_t max_concurrency = 0;       // 0: as many as come
};
struct ServeRun {
  std::vector<ServeRecord> records;
  double duration = 0;  // until the last answer was over
};
// Sends all and waits for all answers; `done` is told how many are over. Ends early where the user interrupts.
ServeRun run_load(ServerAccess& server, const ServeTarget& target, const ServeLoad& load,
                  const std::function<void(int64_t)>& done);

// The least a request must reach to count as good, in milliseconds.
struct Goodput {
  std::optional<double> ttft;
  std::optional<double> tpot;
  std::optional<double> e2el;
};
// "ttft:500", several with commas. Errors: another name, no number.
Result<Goodput> parse_goodput(const std::vector<std::string>& values);

struct LatencySummary {  // milliseconds; NaN where there are no values
  double mean = 0;
  double median = 0;
  double std = 0;  // of the population
  double p90 = 0;
  double p99 = 0;
};
LatencySummary summary_of(std::vector<double> seconds);

struct ServeSummary {
  double duration = 0;
  int64_t completed = 0;
  int64_t failed = 0;
  std::vector<std::pair<std::string, int64_t>> failures;  // by what was said, the most frequent first
  int64_t total_input = 0;
  int64_t total_cached = 0;
  int64_t total_output = 0;
  int64_t pieces = 0;  // that brought tokens
  double request_throughput = 0;
  std::optional<double> request_goodput;
  double output_throughput = 0;
  double total_throughput = 0;
  double max_output_tokens_per_second = 0;  // in the best second; tokens of a piece are those of its answer's mean
  int64_t max_concurrent_requests = 0;      // in the busiest second
  LatencySummary ttft;
  LatencySummary tpot;  // of a request: each token after the first, on average
  LatencySummary itl;   // between two pieces, which may have several tokens each
  LatencySummary e2el;
};
ServeSummary summarise(const ServeRun& run, const std::optional<Goodput>& goodput);
// Seconds per token after the first; nothing where there is none.
std::optional<double> tpot_of(const ServeRecord& record);
// How many of the answers that came brought or held something in each second of the run.
std::vector<double> tokens_by_second(const ServeRun& run);
std::vector<int64_t> requests_by_second(const ServeRun& run);

// What the server's counters say of its drafts between two looks.
struct DraftSummary {
  double drafts = 0;
  double draft_tokens = 0;
  double accepted_tokens = 0;
  std::vector<double> accepted_by_position;

  double acceptance_rate() const { return accepted_tokens / draft_tokens; }
  double acceptance_length() const { return 1 + accepted_tokens / drafts; }
};
// Nothing where no draft was checked.
std::optional<DraftSummary> drafts_between(const MetricsSnapshot& before, const MetricsSnapshot& after);

// What was measured and how.
struct ServeSubject {
  std::string date;  // "20261130-074501"
  std::string backend;
  std::string url;
  std::string model;
  std::string dataset;
  double request_rate = 0;  // infinite: all at once
  double burstiness = 1;
  int64_t max_concurrency = 0;
  uint64_t seed = 0;
};

struct ServeResult {
  ServeSubject subject;
  ServeRun run;
  ServeSummary summary;
  std::optional<DraftSummary> drafts;
};
// `detailed`: lists of what each request took and brought.
std::string serve_json(const ServeResult& result, bool detailed);
// For people, as vLLM prints it.
std::string serve_table(const ServeResult& result);
// One page with plots, which needs nothing beside itself.
std::string serve_html(const ServeResult& result);

}  // namespace lantern::cli
