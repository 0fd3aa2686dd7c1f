// `bench step` where an engine replays graphs: the time from step to step of one sequence, and what the host and the
// device have to do for it.
#include <fmt/format.h>

#include <random>

#include "base/median.h"
#include "cli/bench_engine.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/dispatch.h"
#include "cli/json_writer.h"
#include "cli/kernel_timer.h"
#include "cli/model_access.h"

namespace lantern::cli {
namespace {

// Steps after the prompt that are not measured.
constexpr int32_t kWarmUp = 8;

struct EngineStep {
  double seconds = 0;       // from the end of a step to the end of the next
  double host_seconds = 0;  // of these, what the engine's thread does: everything but waiting
  double prefill_tokens_per_second = 0;
  int64_t weight_bytes = 0, kv_bytes = 0;

  int64_t bytes() const { return weight_bytes + kv_bytes; }
};

Result<double> read_bytes_per_second(const Values& values) {
  // A device of its own, that gives its memory back: the engine's is sealed.
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                   make_device(values.text("device"), static_cast<int32_t>(values.integer("threads"))));
  ASSIGN_OR_RETURN(const std::unique_ptr<KernelTimer> timer,
                   KernelTimer::create(*device, static_cast<int32_t>(values.integer("repetitions"))));
  return timer->read_bytes_per_second();
}

Result<EngineStep> measure(LoadedEngine& loaded, StepMeter& meter, int32_t context, int32_t repetitions) {
  std::mt19937 random(0);
  std::uniform_int_distribution<int32_t> any_token(0, loaded.config->vocab_size - 1);
  std::vector<int32_t> prompt(static_cast<size_t>(context));
  for (int32_t& token : prompt) token = any_token(random);
  const EngineReport before = loaded.engine->report();
  ASSIGN_OR_RETURN(const std::vector<BenchRequest> requests,
                   run_requests(*loaded.engine, {&prompt, 1}, kWarmUp + repetitions + 1));
  const EngineReport after = loaded.engine->report();
  const BenchRequest& request = requests.front();
  if (request.token_seconds.empty()) return Error(ErrorCode::kUnsupported, "interrupted");

  std::vector<double> between, submitting;
  EngineStep step;
  int32_t decodes = 0;
  for (const MeasuredStep& measured : meter.take()) {
    if (measured.num_decodes != 1 || ++decodes <= kWarmUp) continue;
    between.push_back(measured.since_last);
    submitting.push_back(measured.submit_seconds);
    step.kv_bytes = measured.kv_bytes;
  }
  const double overhead = (after.overhead_seconds - before.overhead_seconds) /
                          static_cast<double>(std::max<int64_t>(after.steps - before.steps, 1));
  step.seconds = median(std::move(between));
  step.host_seconds = median(std::move(submitting)) + overhead;
  step.weight_bytes = loaded.model->weights().active_bytes_per_token(*loaded.config);
  step.prefill_tokens_per_second = context / (request.token_seconds.front() - request.begin);
  return step;
}

}  // namespace

Result<int> run_bench_engine_step(const Values& values, std::string_view graphs) {
  const auto context = static_cast<int32_t>(values.integer("context"));
  const auto repetitions = static_cast<int32_t>(values.integer("repetitions"));
  const bool dummy = values.given("dummy"), quiet = values.is_on("quiet");
  EngineOptions options;
  options.device = values.text("device");
  options.threads = static_cast<int32_t>(values.integer("threads"));
  options.kv_cache_dtype = values.text("kv-cache-dtype");
  options.graphs = graphs;
  options.max_num_seqs = 1;
  options.prefix_caching = false;
  options.max_model_len =
      static_cast<int32_t>(std::min<int64_t>(int64_t{context} + kWarmUp + repetitions + 2, INT32_MAX));
  if (dummy) {
    options.dummy = values.text("dummy");
    options.layers = static_cast<int32_t>(values.integer("layers"));
    options.dummy_format = values.text("weights") == "fp8" ? DummyFormat::kFp8Block : DummyFormat::kBf16;
  } else if (values.given("layers") || values.given("weights")) {
    return Error(ErrorCode::kInvalidArgument, "--layers and --weights go with --dummy only");
  } else {
    options.model_dir = values.text("model");
  }
  ASSIGN_OR_RETURN(const double read_rate, read_bytes_per_second(values));
  if (!quiet) print_notice("loading");
  StepMeter meter;
  meter.attach(options);
  options.count_experts = false;  // of one token they are known, and counting them takes a kernel in each layer
  ASSIGN_OR_RETURN(LoadedEngine loaded, load_engine(options));
  RETURN_IF_ERROR(apply_dispatch_settings(values, *loaded.model));
  meter.know(loaded);
  if (!quiet) print_notice("measuring decode steps after the prompt");
  ASSIGN_OR_RETURN(const EngineStep step, measure(loaded, meter, context, repetitions));

  const double floor = static_cast<double>(step.bytes()) / read_rate;
  if (values.is_on("json")) {
    JsonWriter json;
    json.begin_object()
        .field("model", dummy ? values.text("dummy") : values.text("model"))
        .field("layers", loaded.config->num_layers)
        .field("weights", dummy ? values.text("weights") : std::string("checkpoint"))
        .field("kv_cache_dtype", values.text("kv-cache-dtype"))
        .field("device", loaded.device)
        .field("graphs", std::string(to_string(loaded.graphs.mode)))
        .field("context", context)
        .field("repetitions", repetitions)
        .field("tokens_per_second", 1 / step.seconds)
        .field("seconds_per_token", step.seconds)
        .field("host_seconds_per_token", step.host_seconds)
        .field("kernels_per_token", loaded.graphs.kernels)
        .field("bytes_per_token", step.bytes())
        .field("weight_bytes_per_token", step.weight_bytes)
        .field("kv_bytes_per_token", step.kv_bytes)
        .field("gb_per_second", static_cast<double>(step.bytes()) / step.seconds / 1e9)
        .field("read_gb_per_second", read_rate / 1e9)
        .field("floor_seconds_per_token", floor)
        .field("times_floor", step.seconds / floor)
        .field("bandwidth_ratio", floor / step.seconds)
        .field("prefill_tokens_per_second", step.prefill_tokens_per_second);
    write_text(json.end_object().take() + "\n");
    return kSuccess;
  }
  write_text(fmt::format("decode   {:9.2f} tokens/s at a context of {}: {:.3f} ms a step, {} kernels in graphs\n",
                         1 / step.seconds, context, 1e3 * step.seconds, loaded.graphs.kernels));
  write_text(fmt::format("floor    {:9.3f} ms to read {:.1f} MB at {:.2f} GB/s; a step takes {:.2f} times that\n",
                         1e3 * floor, static_cast<double>(step.bytes()) / 1e6, read_rate / 1e9, step.seconds / floor));
  write_text(fmt::format("host     {:9.1f} us a step\n", 1e6 * step.host_seconds));
  write_text(fmt::format("prefill  {:9.1f} tokens/s of {} tokens\n", step.prefill_tokens_per_second, context));
  return kSuccess;
}

}  // namespace lantern::cli
