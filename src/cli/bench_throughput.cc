// Many requests at once: tokens per second, what an engine costs beside the model, and how much of the speed-up that
// the bytes allow a batch reaches.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cli/bench_engine.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/json_writer.h"

namespace lantern::cli {
namespace {

constexpr int32_t kMostSequences = 64;  // that run at a time, where nothing is said

struct Throughput {
  double seconds = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  EngineReport report;  // of this run alone
  DecodeRate decode;    // with all sequences
};

// What `after` counts beyond `before`.
EngineReport difference(EngineReport after, const EngineReport& before) {
  after.steps -= before.steps;
  after.dummy_steps -= before.dummy_steps;
  after.step_seconds -= before.step_seconds;
  after.executor_seconds -= before.executor_seconds;
  after.overhead_seconds -= before.overhead_seconds;
  after.prompt_tokens -= before.prompt_tokens;
  after.prompt_tokens_cached -= before.prompt_tokens_cached;
  after.preemptions -= before.preemptions;
  after.steps_replayed -= before.steps_replayed;
  for (size_t i = 0; i < EngineReport::kMaxDrafts; ++i) {
    after.drafts_checked[i] -= before.drafts_checked[i];
    after.drafts_accepted[i] -= before.drafts_accepted[i];
  }
  return after;
}

Result<Throughput> measure(LoadedEngine& loaded, StepMeter& meter, std::span<const std::vector<int32_t>> prompts,
                           int32_t output_len) {
  meter.take();
  const EngineReport before = loaded.engine->report();
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const std::vector<BenchRequest> requests, run_requests(*loaded.engine, prompts, output_len));
  Throughput result;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const std::vector<int32_t>& prompt : prompts) result.prompt_tokens += static_cast<int64_t>(prompt.size());
  for (const BenchRequest& request : requests) result.output_tokens += request.num_tokens;
  result.report = difference(loaded.engine->report(), before);
  const std::vector<MeasuredStep> steps = meter.take();
  const int32_t together =
      std::min(static_cast<int32_t>(prompts.size()), loaded.engine->settings().limits.max_requests);
  result.decode = decode_rate(steps, together, loaded);
  return result;
}

void write_rate(JsonWriter& json, const char* name, const DecodeRate& rate) {
  json.key(name)
      .begin_object()
      .field("steps", rate.steps)
      .field("tokens_per_second", rate.tokens_per_second)
      .field("seconds_per_step", rate.seconds_per_step)
      .field("bytes_per_step", rate.bytes_per_step())
      .field("weight_bytes_per_step", rate.weight_bytes_per_step)
      .field("kv_bytes_per_step", rate.kv_bytes_per_step)
      .field("distinct_experts_per_layer", rate.experts_per_layer)
      .end_object();
}

}  // namespace

Result<int> run_bench_throughput(const Values& values) {
  const auto count = static_cast<int32_t>(values.integer("requests"));
  const auto output_len = static_cast<int32_t>(values.integer("output-len"));
  const bool quiet = values.is_on("quiet");
  if (!quiet) print_notice("loading");
  StepMeter meter;
  // What a step reads is known of steps that nobody else's wait for.
  const bool metered = values.integer("data-parallel-size") == 1;
  ASSIGN_OR_RETURN(LoadedEngine loaded,
                   load_bench_engine(values, std::min(count, kMostSequences), metered ? &meter : nullptr));
  ASSIGN_OR_RETURN(const BenchPrompts prompts, bench_prompts(values, loaded, count + 1));
  const auto all = std::span(prompts.prompts);

  if (!quiet) print_notice("warming up, then one request alone, then all together");
  ASSIGN_OR_RETURN(const Throughput warm, measure(loaded, meter, all.last(1), std::min(output_len, 8)));
  (void)warm;
  ASSIGN_OR_RETURN(const Throughput one, measure(loaded, meter, all.last(1), output_len));
  ASSIGN_OR_RETURN(const Throughput many, measure(loaded, meter, all.first(static_cast<size_t>(count)), output_len));
  if (interrupted()) return interrupt_exit_code();

  const int32_t together = std::min(count, loaded.engine->settings().limits.max_requests);
  const EngineReport& report = many.report;
  const double steps = static_cast<double>(std::max<int64_t>(report.steps + report.dummy_steps, 1));
  const double overhead_us = report.overhead_seconds / steps * 1e6;
  const bool drafts = values.integer("draft-tokens") > 0;
  // Without drafts, whose passes read weights of their own.
  const bool comparable = !drafts && one.decode.steps > 0 && many.decode.steps > 0;
  const double speed_up = many.decode.tokens_per_second / one.decode.tokens_per_second;
  const double byte_bound = together * one.decode.bytes_per_step() / many.decode.bytes_per_step();

  if (values.is_on("json")) {
    JsonWriter json;
    json.begin_object();
    write_subject(json, values, loaded, prompts);
    json.field("num_prompts", count)
        .field("max_num_seqs", loaded.engine->settings().limits.max_requests)
        .field("output_len", output_len)
        .field("draft_tokens", values.integer("draft-tokens"))
        .field("duration", many.seconds)
        .field("total_input_tokens", many.prompt_tokens)
        .field("total_output_tokens", many.output_tokens)
        .field("request_throughput", count / many.seconds)
        .field("output_throughput", static_cast<double>(many.output_tokens) / many.seconds)
        .field("total_token_throughput", static_cast<double>(many.prompt_tokens + many.output_tokens) / many.seconds)
        .field("steps", report.steps)
        .field("dummy_steps", report.dummy_steps)
        .field("preemptions", report.preemptions)
        .field("prompt_tokens_cached", report.prompt_tokens_cached)
        .field("graphs", std::string(to_string(loaded.graphs.mode)))
        .field("num_graphs", loaded.graphs.num_graphs)
        .field("graph_capture_seconds", loaded.graphs.seconds)
        .field("steps_replayed", report.steps_replayed)
        .field("engine_overhead_us_per_step", overhead_us)
        .field("acceptance", report.acceptance())
        .key("acceptance_by_position")
        .begin_array();
    for (int64_t i = 0; i < values.integer("draft-tokens"); ++i) {
      const auto at = static_cast<size_t>(i);
      json.value(static_cast<double>(report.drafts_accepted[at]) / static_cast<double>(report.drafts_checked[at]));
    }
    json.end_array();
    if (metered) {
      write_rate(json, "decode_of_one", one.decode);
      write_rate(json, "decode_of_all", many.decode);
    }
    if (comparable) {
      json.field("speed_up", speed_up)
          .field("byte_bound_speed_up", byte_bound)
          .field("speed_up_ratio", speed_up / byte_bound);
    }
    write_text(json.end_object().take() + "\n");
    return kSuccess;
  }
  write_text(
      fmt::format("throughput  {:.2f} requests/s, {:.1f} tokens/s, {:.1f} of them made ({} requests, prompts: {})\n",
                  count / many.seconds, static_cast<double>(many.prompt_tokens + many.output_tokens) / many.seconds,
                  static_cast<double>(many.output_tokens) / many.seconds, count, prompts.source));
  if (metered) {
    write_text(fmt::format("decode      {:.1f} tokens/s with {} sequences, {:.1f} with one\n",
                           many.decode.tokens_per_second, together, one.decode.tokens_per_second));
  } else {
    write_text(fmt::format("ranks       {}: {} steps of their own and {} dummies\n", loaded.engine->num_ranks(),
                           report.steps, report.dummy_steps));
  }
  if (comparable) {
    write_text(
        fmt::format("speed-up    {:.2f} of {:.2f} that the bytes allow ({:.1f} MB a step against {:.1f}; {:.1f} "
                    "experts of a layer against {:.1f}): {:.1f} %\n",
                    speed_up, byte_bound, many.decode.bytes_per_step() / 1e6, one.decode.bytes_per_step() / 1e6,
                    many.decode.experts_per_layer, one.decode.experts_per_layer, 100 * speed_up / byte_bound));
  }
  if (drafts) write_text(fmt::format("drafts      {:.1f} % accepted\n", 100 * report.acceptance()));
  write_text(fmt::format("engine      {:.1f} us a step beside the model, {} steps\n", overhead_us, report.steps));
  return kSuccess;
}

}  // namespace lantern::cli
