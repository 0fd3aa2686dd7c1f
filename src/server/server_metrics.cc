#include "server/server_metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/process_metrics.h"

namespace lantern {
namespace {

const std::vector<double> kFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                         1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const std::vector<double> kBetweenTokens = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                            .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kWhole = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                    30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};

constexpr int64_t kMostTokens = 1'000'000;  // of the histograms of lengths

double of(int64_t count) { return static_cast<double>(count); }

}  // namespace

ServerMetrics::ServerMetrics()
    : first_token_(kFirstToken),
      inter_token_(kBetweenTokens),
      per_output_token_(kBetweenTokens),
      end_to_end_(kWhole),
      queue_(kWhole),
      prefill_(kWhole),
      decode_(kWhole),
      inference_(kWhole),
      prompt_tokens_(bounds_1_2_5(kMostTokens)),
      generation_tokens_(bounds_1_2_5(kMostTokens)),
      max_generation_tokens_(bounds_1_2_5(kMostTokens)),
      params_max_tokens_(bounds_1_2_5(kMostTokens)),
      params_n_({1, 2, 5, 10, 20}) {}

void ServerMetrics::finished(const FinishedRequest& request) {
  const std::lock_guard lock(mutex_);  // whoever scrapes meanwhile sees all of it or nothing
  outcomes_[std::string(request.outcome)] += request.n;
  params_n_.observe(request.n);
  params_max_tokens_.observe(of(request.max_tokens));
  // Whoever leaves says nothing of how long answers take: the sooner they left the shorter it would seem.
  if (request.outcome == "error" || request.outcome == "abort") return;
  end_to_end_.observe(request.seconds);
  prompt_tokens_.observe(of(request.usage.prompt_tokens));
  generation_tokens_.observe(of(request.usage.completion_tokens));
  max_generation_tokens_.observe(of(request.usage.longest_choice));
  if (request.first_run_seconds < 0) return;
  queue_.observe(request.queue_seconds);
  inference_.observe(std::max(request.seconds - request.first_run_seconds, 0.0));
  if (request.first_token_seconds < 0) return;
  prefill_.observe(std::max(request.first_token_seconds - request.first_run_seconds, 0.0));
  const double decode = request.seconds - request.first_token_seconds;
  decode_.observe(decode);
  if (request.usage.completion_tokens > 1) per_output_token_.observe(decode / of(request.usage.completion_tokens - 1));
}

void ServerMetrics::rejected(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  ++rejections_[reason];
}
void ServerMetrics::answered(const std::string& route, int32_t status) {
  const std::lock_guard lock(mutex_);
  ++answers_[{route, status}];
}

void ServerMetrics::write_engine(MetricsText& text, const Now& now) const {
  const EngineReport& engine = now.engine;
  const auto gauge = [&](std::string_view name, double value, std::string_view help) {
    text.family(name, "gauge", help);
    text.sample(value);
  };
  const auto counter = [&](std::string_view name, int64_t value, std::string_view help) {
    text.family(name, "counter", help);
    text.sample(of(value));
  };
  gauge("vllm:num_requests_running", engine.num_running, "Sequences that run.");
  gauge("vllm:num_requests_waiting", of(engine.num_waiting + now.waiting_here), "Requests that wait to run.");
  const int32_t used = engine.num_blocks - engine.num_free_blocks - engine.num_cached_blocks;
  gauge("vllm:kv_cache_usage_perc", engine.num_blocks > 0 ? of(used) / of(engine.num_blocks) : 0,
        "Share of the cache's blocks that sequences hold, 0 to 1.");
  text.family("vllm:cache_config_info", "gauge", "How the cache is made.");
  text.sample(1, {{"block_size", fmt::format("{}", now.settings.limits.block_size)},
                  {"num_gpu_blocks", fmt::format("{}", engine.num_blocks)},
                  {"cache_dtype", now.kv_cache_dtype},
                  {"enable_prefix_caching", now.settings.prefix_caching ? "True" : "False"}});
  counter("vllm:prefix_cache_queries_total", engine.prompt_tokens, "Prompt tokens that were looked for in the cache.");
  counter("vllm:prefix_cache_hits_total", engine.prompt_tokens_cached, "Prompt tokens that the cache had.");
  counter("vllm:num_preemptions_total", engine.preemptions, "Sequences that gave their blocks to others for a while.");
  counter("vllm:prompt_tokens_total", engine.prompt_tokens, "Prompt tokens of admitted requests.");
  counter("vllm:generation_tokens_total", engine.output_tokens, "Tokens made.");
  counter("vllm:corrupted_requests_total", engine.choices_ended[static_cast<size_t>(EndReason::kFailed)],
          "Sequences that failed in a step, logits that are no numbers among them.");

  write_drafts(text, now);

  text.family("lantern:step_seconds_total", "counter", "Wall time of steps, by who spent it.");
  text.sample(engine.executor_seconds, {{"phase", "executor"}});
  text.sample(engine.overhead_seconds, {{"phase", "engine"}});
  text.sample(engine.step_seconds, {{"phase", "all"}});
  counter("lantern:steps_total", engine.steps, "Steps with rows.");
  counter("lantern:steps_replayed_total", engine.steps_replayed, "Steps that were replayed from a graph.");
  gauge("lantern:last_step_seconds", engine.last_step_seconds, "Wall time of the latest step.");
  text.family("vllm:iteration_tokens_total", "histogram",
              "Tokens that a step ran: of prompts, and decodes with drafts.");
  int64_t steps = 0;
  for (size_t i = 0; i < engine.steps_by_tokens.size(); ++i) {
    steps += engine.steps_by_tokens[i];
    const bool bounded = i < EngineReport::kStepTokenBounds.size();
    text.sample_of("_bucket", of(steps),
                   {{"le", bounded ? fmt::format("{}", EngineReport::kStepTokenBounds[i]) : "+Inf"}});
  }
  text.sample_of("_sum", of(engine.step_tokens));
  text.sample_of("_count", of(steps));
  text.family("lantern:kv_blocks", "gauge", "Blocks of the cache by what they are used for.");
  text.sample(of(used), {{"state", "used"}});
  text.sample(of(engine.num_cached_blocks), {{"state", "cached"}});
  text.sample(of(engine.num_free_blocks), {{"state", "free"}});
  const int64_t block_size = now.settings.limits.block_size;
  text.family("lantern:prefix_tokens_lost_total", "counter", "Tokens that the prefix cache forgot, by why.");
  text.sample(of(engine.prefix_blocks_evicted * block_size), {{"reason", "evicted"}});
  text.sample(of(engine.prefix_blocks_flushed * block_size), {{"reason", "flushed"}});
}

void ServerMetrics::write_drafts(MetricsText& text, const Now& now) const {
  const EngineReport& engine = now.engine;
  const auto counter = [&](std::string_view name, int64_t value, std::string_view help) {
    text.family(name, "counter", help);
    text.sample(of(value));
  };
  int64_t drafted = 0;
  int64_t accepted = 0;
  for (size_t i = 0; i < EngineReport::kMaxDrafts; ++i) {
    drafted += engine.drafts_checked[i];
    accepted += engine.drafts_accepted[i];
  }
  counter("vllm:spec_decode_num_drafts_total", engine.drafts_checked[0], "Drafts that were checked.");
  counter("vllm:spec_decode_num_draft_tokens_total", drafted,
          "Draft tokens that were checked: all before them were right.");
  counter("vllm:spec_decode_num_accepted_tokens_total", accepted, "Draft tokens that were right.");
  text.family("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
              "Draft tokens that were right, by place.");
  for (int32_t i = 0; i < now.settings.max_drafts() && i < static_cast<int32_t>(EngineReport::kMaxDrafts); ++i)
    text.sample(of(engine.drafts_accepted[static_cast<size_t>(i)]), {{"position", fmt::format("{}", i)}});
  text.family("lantern:spec_decode_num_draft_tokens_per_pos_total", "counter",
              "Draft tokens that were checked, by place: all before them were right.");
  for (int32_t i = 0; i < now.settings.max_drafts() && i < static_cast<int32_t>(EngineReport::kMaxDrafts); ++i)
    text.sample(of(engine.drafts_checked[static_cast<size_t>(i)]), {{"position", fmt::format("{}", i)}});
  text.family("lantern:draft_length", "histogram", "Draft tokens that a decoding row brought into its step.");
  int64_t rows = 0;
  int64_t sum = 0;
  for (size_t length = 0; length < engine.draft_lengths.size(); ++length) {
    rows += engine.draft_lengths[length];
    sum += engine.draft_lengths[length] * static_cast<int64_t>(length);
    text.sample_of("_bucket", of(rows), {{"le", fmt::format("{}", length)}});
  }
  text.sample_of("_bucket", of(rows), {{"le", "+Inf"}});
  text.sample_of("_sum", of(sum));
  text.sample_of("_count", of(rows));
}

void ServerMetrics::write_requests(MetricsText& text) const {
  const std::lock_guard lock(mutex_);
  const auto histogram = [&](std::string_view name, const Histogram& of_requests, std::string_view help) {
    text.family(name, "histogram", help);
    of_requests.write(text);
  };
  histogram("vllm:time_to_first_token_seconds", first_token_, "From a request's head to its first token.");
  histogram("vllm:inter_token_latency_seconds", inter_token_, "Between tokens of a choice.");
  histogram("vllm:request_time_per_output_token_seconds", per_output_token_,
            "A request's time behind its first token, by tokens.");
  histogram("vllm:e2e_request_latency_seconds", end_to_end_, "From a request's head to the end of its answer.");
  histogram("vllm:request_queue_time_seconds", queue_, "From when the engine has a request to its first step.");
  histogram("vllm:request_prefill_time_seconds", prefill_, "From a request's first step to its first token.");
  histogram("vllm:request_inference_time_seconds", inference_, "From a request's first step to the end of its answer.");
  histogram("vllm:request_decode_time_seconds", decode_, "From a request's first token to the end of its answer.");
  histogram("vllm:request_prompt_tokens", prompt_tokens_, "Tokens of a request's prompts.");
  histogram("vllm:request_generation_tokens", generation_tokens_, "Tokens of a request's answer.");
  histogram("vllm:request_max_num_generation_tokens", max_generation_tokens_, "Tokens of a request's longest choice.");
  histogram("vllm:request_params_max_tokens", params_max_tokens_, "What requests set as max_tokens.");
  histogram("vllm:request_params_n", params_n_, "What requests set as n.");

  text.family("vllm:request_success_total", "counter", "Choices that ended, by why.");
  for (const auto& [outcome, count] : outcomes_) text.sample(of(count), {{"finished_reason", outcome}});
  text.family("vllm:admission_rejections_total", "counter", "Requests refused because too many wait.");
  for (const auto& [reason, count] : rejections_) text.sample(of(count), {{"reason", reason}});
}

void ServerMetrics::write_server(MetricsText& text, const Now& now) const {
  {
    const std::lock_guard lock(mutex_);
    text.family("lantern:http_requests_total", "counter", "Answers by route and status.");
    for (const auto& [answer, count] : answers_)
      text.sample(of(count), {{"route", answer.first}, {"status", fmt::format("{}", answer.second)}});
  }
  text.family("lantern:http_connections", "gauge", "Open connections.");
  text.sample(of(now.http.connections));
  text.family("lantern:http_connections_refused_total", "counter", "Connections refused because too many are open.");
  text.sample(of(now.http.refused));
  text.family("lantern:client_disconnects_total", "counter", "Clients that left before their answer was complete.");
  text.sample(of(now.http.gone));
  text.family("lantern:trace_spans_total", "counter", "Spans of requests, by what became of them.");
  text.sample(of(now.traces.exported), {{"outcome", "exported"}});
  text.sample(of(now.traces.dropped), {{"outcome", "dropped"}});
  text.sample(of(now.traces.failed), {{"outcome", "failed"}});
  text.family("lantern:build_info", "gauge", "Which build this is.");
  text.sample(1, {{"version", now.version}});
}

std::string ServerMetrics::text(const Now& now) const {
  MetricsText text({{"model_name", now.model}, {"engine", "0"}});
  write_engine(text, now);
  write_requests(text);
  write_server(text, now);
  MetricsText process({});  // which is no model's
  write_process_metrics(process);
  return text.take() + process.take();
}

}  // namespace lantern
