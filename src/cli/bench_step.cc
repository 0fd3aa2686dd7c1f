#include <fmt/format.h>

#include <algorithm>

#include "cli/bench_engine.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/dispatch.h"
#include "cli/json_writer.h"
#include "cli/model_access.h"
#include "ops/memory_read.h"

namespace lantern::cli {
namespace {

constexpr int32_t kSmallestChunk = 512;
constexpr int64_t kMemoryBytes = int64_t{1} << 30;

Result<std::unique_ptr<Session>> load(const Values& values, int32_t context, int32_t prefill) {
  SessionOptions options;
  options.device = values.text("device");
  options.threads = static_cast<int32_t>(values.integer("threads"));
  options.kv_cache_dtype = values.text("kv-cache-dtype");
  options.prefill_chunk = std::max(prefill, kSmallestChunk);
  options.max_model_len = std::max(context < INT32_MAX ? context + 1 : context, options.prefill_chunk);
  if (values.given("dummy")) {
    const DummyFormat format = values.text("weights") == "fp8" ? DummyFormat::kFp8Block : DummyFormat::kBf16;
    return Session::load_dummy(values.text("dummy"), static_cast<int32_t>(values.integer("layers")), format, 0,
                               options);
  }
  ASSIGN_OR_RETURN(options.model_dir, model_dir(values));
  return Session::load(options);
}

DeviceKind kind_of(const Values& values) {
  return values.text("device") == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
}

}  // namespace

Status check_bench_step(const Values& values) {
  RETURN_IF_ERROR(check_dummy_settings(values));
  ASSIGN_OR_RETURN(const GraphMode graphs, parse_graph_mode(values.text("graphs"), kind_of(values)));
  if (graphs == GraphMode::kVerify) {
    return Error(
        ErrorCode::kInvalidArgument,
        "--graphs verify runs every step several times, which says nothing about its speed; use one of the others");
  }
  if (graphs == GraphMode::kNone || !values.given("prefill")) return {};
  return Error(ErrorCode::kInvalidArgument,
               "--prefill goes with --graphs none only; with graphs the prompt is the context");
}

Result<int> run_bench_step(const Values& values) {
  const DeviceKind kind = kind_of(values);
  ASSIGN_OR_RETURN(const GraphMode graphs, parse_graph_mode(values.text("graphs"), kind));
  if (graphs != GraphMode::kNone) return run_bench_engine_step(values, to_string(graphs));
  if (kind != DeviceKind::kCpu) {
    return Error(ErrorCode::kUnsupported,
                 "--graphs none: bench step compares launches without graphs with the read bandwidth of the CPU's "
                 "memory; use --graphs full, or --device cpu");
  }
  StepBenchOptions options;
  options.context = static_cast<int32_t>(values.integer("context"));
  options.repetitions = static_cast<int32_t>(values.integer("repetitions"));
  options.prefill_tokens = static_cast<int32_t>(values.integer("prefill"));
  const bool quiet = values.is_on("quiet");
  if (!quiet) print_notice("loading");
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, load(values, options.context, options.prefill_tokens));
  RETURN_IF_ERROR(apply_dispatch_settings(values, session->model()));
  // What the ratio is against, read before each step: on a machine with other work both see the same of it.
  ThreadPool threads(static_cast<int>(values.integer("threads")));
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadBandwidthMeter> memory, ReadBandwidthMeter::create(threads, kMemoryBytes));
  options.before_each_decode = [&] { memory->measure(); };
  if (!quiet) print_notice("measuring decode steps, memory and prefill");
  ASSIGN_OR_RETURN(const StepBenchResult result, session->bench_step(options));

  const int64_t bytes = result.weight_bytes_per_token + result.kv_bytes_per_token_step;
  const double gb_per_second = static_cast<double>(bytes) / result.decode_seconds_median / 1e9;
  const double read_gb_per_second = memory->result().median_bytes_per_second / 1e9;
  const double prefill_rate =
      result.prefill_seconds_median > 0 ? options.prefill_tokens / result.prefill_seconds_median : 0;
  if (values.is_on("json")) {
    JsonWriter json;
    json.begin_object()
        .field("model", values.given("dummy") ? values.text("dummy") : values.text("model"))
        .field("layers", session->config().num_layers)
        .field("weights", values.given("dummy") ? values.text("weights") : std::string("checkpoint"))
        .field("kv_cache_dtype", values.text("kv-cache-dtype"))
        .field("device", session->device().description())
        .field("context", options.context)
        .field("tokens_per_second", 1 / result.decode_seconds_median)
        .field("seconds_per_token", result.decode_seconds_median)
        .field("bytes_per_token", bytes)
        .field("weight_bytes_per_token", result.weight_bytes_per_token)
        .field("kv_bytes_per_token", result.kv_bytes_per_token_step)
        .field("gb_per_second", gb_per_second)
        .field("read_gb_per_second", read_gb_per_second)
        .field("bandwidth_ratio", gb_per_second / read_gb_per_second)
        .field("prefill_tokens", options.prefill_tokens)
        .field("prefill_tokens_per_second", prefill_rate);
    write_text(json.end_object().take() + "\n");
    return kSuccess;
  }
  write_text(fmt::format("decode   {:9.2f} tokens/s at a context of {} ({:.1f} MB per token, {:.2f} GB/s)\n",
                         1 / result.decode_seconds_median, options.context, static_cast<double>(bytes) / 1e6,
                         gb_per_second));
  write_text(fmt::format("memory   {:9.2f} GB/s read; decode reaches {:.1f} % of it\n", read_gb_per_second,
                         100 * gb_per_second / read_gb_per_second));
  if (prefill_rate > 0) {
    write_text(fmt::format("prefill  {:9.1f} tokens/s of {} tokens\n", prefill_rate, options.prefill_tokens));
  }
  return kSuccess;
}

}  // namespace lantern::cli
