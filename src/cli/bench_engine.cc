#include "cli/bench_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/median.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/dispatch.h"
#include "cli/engine_access.h"
#include "cli/model_access.h"

namespace lantern::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kTasks = "eval/arithmetic.jsonl";

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Result<std::vector<std::vector<int32_t>>> read_prompts(const std::string& path, const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path));
  std::vector<std::vector<int32_t>> prompts;
  std::istringstream lines(text);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    boost::system::error_code failure;
    const boost::json::value document = boost::json::parse(line, failure);
    const boost::json::value* prompt =
        !failure && document.is_object() ? document.get_object().if_contains("prompt") : nullptr;
    if (prompt == nullptr || !prompt->is_string()) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("{}: line {} is no JSON object with a string \"prompt\"", path, number));
    }
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer.encode(prompt->get_string()));
    prompts.push_back(std::move(ids));
  }
  if (prompts.empty()) return Error(ErrorCode::kCorrupt, fmt::format("{}: has no prompts", path));
  return prompts;
}

}  // namespace

class StepMeter::Metered final : public Executor {
 public:
  Metered(std::unique_ptr<Executor> executor, StepMeter& meter) : executor_(std::move(executor)), meter_(meter) {}

  Status submit(const StepBatch& batch) override {
    MeasuredStep step{.num_rows = static_cast<int32_t>(batch.rows.size()),
                      .num_decodes = batch.num_decodes,
                      .num_tokens = batch.num_tokens,
                      .kv_bytes = meter_.kv_bytes_of(batch)};
    const Clock::time_point start = Clock::now();
    RETURN_IF_ERROR(executor_->submit(batch));
    step.seconds = step.submit_seconds = seconds_since(start);
    in_flight_.push_back(step);
    return {};
  }
  bool ready() const override { return executor_->ready(); }
  Status wait(StepResults& results) override {
    const Clock::time_point start = Clock::now();
    RETURN_IF_ERROR(executor_->wait(results));
    MeasuredStep step = in_flight_.front();
    in_flight_.erase(in_flight_.begin());
    step.seconds += seconds_since(start);
    step.distinct_experts = results.distinct_experts;
    for (int32_t r = 0; r < step.num_rows; ++r) step.num_outputs += results.num_tokens[static_cast<size_t>(r)];
    const Clock::time_point now = Clock::now();
    step.since_last = std::chrono::duration<double>(now - last_end_).count();
    last_end_ = now;
    const std::lock_guard lock(meter_.mutex_);
    meter_.steps_.push_back(step);
    return {};
  }

 private:
  std::unique_ptr<Executor> executor_;
  StepMeter& meter_;
  std::vector<MeasuredStep> in_flight_;
  Clock::time_point last_end_ = Clock::now();
};

void StepMeter::attach(EngineOptions& options) {
  options.count_experts = true;
  options.hooks = {{.wrap = [this](std::unique_ptr<Executor> executor) -> std::unique_ptr<Executor> {
    return std::make_unique<Metered>(std::move(executor), *this);
  }}};
}

void StepMeter::know(const LoadedEngine& loaded) {
  const KvCache& cache = loaded.model->cache();
  kv_row_bytes_ = cache.latent_row_bytes();
  index_row_bytes_ = cache.index_block_bytes() / cache.block_size();
  config_ = loaded.config;
}

int64_t StepMeter::kv_bytes_of(const StepBatch& batch) const {
  if (config_ == nullptr) return 0;
  int64_t bytes = 0;
  for (const StepRow& row : batch.rows) {
    if (row.prefilling) continue;
    const int64_t keys = row.seq_len_upper();
    for (int32_t layer = 0; layer < config_->num_layers; ++layer) {
      const SelectionKind kind = config_->selection[static_cast<size_t>(layer)].kind;
      const bool sparse = kind != SelectionKind::kDense && keys > config_->index_topk;
      bytes += (sparse ? config_->index_topk : keys) * kv_row_bytes_;
      if (sparse && kind == SelectionKind::kCompute) bytes += keys * index_row_bytes_;
    }
  }
  return bytes;
}

std::vector<MeasuredStep> StepMeter::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(steps_, {});
}

DecodeRate decode_rate(std::span<const MeasuredStep> steps, int32_t num_requests, const LoadedEngine& loaded) {
  const ModelConfig& config = *loaded.config;
  const ModelWeights& weights = loaded.model->weights();
  int64_t moe_layers = 0;
  int64_t expert_bytes = 0;
  for (const LayerWeights& layer : weights.layers) {
    if (!layer.is_moe) continue;
    ++moe_layers;
    const ExpertWeights& expert = layer.first_expert;
    expert_bytes = matrix_bytes(expert.gate) + matrix_bytes(expert.up) + matrix_bytes(expert.down);
  }
  const int64_t fixed_bytes =
      weights.active_bytes_per_token(config) - moe_layers * config.experts_per_token * expert_bytes;

  DecodeRate rate;
  std::vector<double> seconds;
  double outputs = 0;
  double experts = 0;
  for (size_t i = 1; i < steps.size(); ++i) {
    const MeasuredStep& step = steps[i];
    if (step.num_rows != num_requests || step.num_decodes != num_requests) continue;
    ++rate.steps;
    seconds.push_back(step.since_last);
    outputs += step.num_outputs;
    experts += static_cast<double>(step.distinct_experts);
    rate.kv_bytes_per_step += static_cast<double>(step.kv_bytes);
  }
  if (rate.steps == 0) return rate;
  const auto count = static_cast<double>(rate.steps);
  // The median keeps what else the machine does out of it.
  rate.seconds_per_step = median(seconds);
  rate.tokens_per_second = outputs / count / rate.seconds_per_step;
  rate.kv_bytes_per_step /= count;
  rate.weight_bytes_per_step = static_cast<double>(fixed_bytes) + experts / count * static_cast<double>(expert_bytes);
  rate.experts_per_layer = moe_layers > 0 ? experts / count / static_cast<double>(moe_layers) : 0;
  return rate;
}

namespace {

Result<BenchPrompts> fitting(BenchPrompts made, const Values& values, const LoadedEngine& loaded) {
  const int64_t context = loaded.engine->settings().limits.max_model_len;
  for (const std::vector<int32_t>& prompt : made.prompts) {
    const auto length = static_cast<int64_t>(prompt.size());
    if (length + values.integer("output-len") <= context) continue;
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a prompt of {} tokens and --output-len {} do not fit a context of {}; lower --output-len "
                             "or raise --max-model-len",
                             length, values.integer("output-len"), context));
  }
  return made;
}

}  // namespace

Result<BenchPrompts> bench_prompts(const Values& values, const LoadedEngine& loaded, int32_t count) {
  BenchPrompts made;
  std::string path = values.text("prompts");
  if (path.empty() && !values.given("dummy") && !values.given("input-len")) {
    ASSIGN_OR_RETURN(const fs::path dir, model_dir(values));
    std::error_code ignored;
    if (fs::exists(dir / kTasks, ignored)) path = (dir / kTasks).string();
  }
  if (!path.empty()) {
    ASSIGN_OR_RETURN(std::vector<std::vector<int32_t>> read, read_prompts(path, *loaded.tokenizer));
    made.source = path;
    for (int32_t i = 0; i < count; ++i) made.prompts.push_back(read[static_cast<size_t>(i) % read.size()]);
    return fitting(std::move(made), values, loaded);
  }
  made.source = "random";
  std::mt19937 generator(static_cast<uint32_t>(values.integer("seed")));
  std::uniform_int_distribution<int32_t> any_token(0, loaded.config->vocab_size - 1);
  made.prompts.resize(static_cast<size_t>(count));
  for (std::vector<int32_t>& prompt : made.prompts) {
    prompt.resize(static_cast<size_t>(values.integer("input-len")));
    for (int32_t& token : prompt) token = any_token(generator);
  }
  return fitting(std::move(made), values, loaded);
}

Result<std::vector<BenchRequest>> run_requests(Engine& engine, std::span<const std::vector<int32_t>> prompts,
                                               int32_t output_len) {
  std::mutex mutex;
  std::condition_variable ended;
  size_t open = 0;
  std::vector<BenchRequest> requests(prompts.size());
  std::vector<RequestHandle> handles;
  handles.reserve(prompts.size());
  const Clock::time_point start = Clock::now();
  const auto wait_for_all = [&] {
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, std::chrono::milliseconds(100), [&] { return open == 0; })) {
      if (interrupted()) {
        for (const RequestHandle& handle : handles) handle.cancel();
      }
    }
  };
  for (size_t i = 0; i < prompts.size(); ++i) {
    EngineRequest request;
    request.request.prompt = prompts[i];
    request.request.max_tokens = output_len;
    request.request.ignore_stop_tokens = true;
    request.request.sampling.temperature = 0;
    request.request.sampling.seed = i;  // synthetic acceptance differs between requests
    requests[i].begin = seconds_since(start);
    {
      const std::lock_guard lock(mutex);
      ++open;
    }
    Result<RequestHandle> handle = engine.submit(std::move(request), [&, i](Output&& output) {
      const double now = seconds_since(start);
      const std::lock_guard lock(mutex);
      BenchRequest& of = requests[i];
      if (!output.tokens.empty()) {
        of.token_seconds.push_back(now);
        of.token_counts.push_back(static_cast<int32_t>(output.tokens.size()));
        of.num_tokens += of.token_counts.back();
      }
      if (!output.ended()) return;
      of.error = output.error;
      --open;
      ended.notify_one();
    });
    if (!handle.ok()) {
      {
        const std::lock_guard lock(mutex);
        --open;
      }
      for (const RequestHandle& earlier : handles) earlier.cancel();
      wait_for_all();
      return std::move(handle).error();
    }
    handles.push_back(std::move(*handle));
  }
  wait_for_all();
  for (const BenchRequest& request : requests) {
    if (!request.error.empty()) return Error(ErrorCode::kUnsupported, request.error);
  }
  return requests;
}

Status check_dummy_settings(const Values& values) {
  const auto asked = [&](std::string_view name) { return values.origin(name) == Values::Origin::kCommandLine; };
  if (asked("dummy") && asked("model"))
    return Error(ErrorCode::kInvalidArgument, "--dummy and --model both name what is measured; give one of them");
  if (!asked("dummy") && (asked("layers") || asked("weights")))
    return Error(ErrorCode::kInvalidArgument, "--layers and --weights go with --dummy only");
  if (!values.given("dummy")) return {};
  ASSIGN_OR_RETURN(const std::string shape, builtin_config_json(values.text("dummy")));
  ASSIGN_OR_RETURN(const ModelConfig config, parse_model_config(shape, {}));
  if (values.integer("layers") <= config.num_layers) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--layers must be at most {}, as many as {} has, not {}", config.num_layers,
                           values.text("dummy"), values.integer("layers")));
}

Status check_bench_engine(const Values& values) {
  RETURN_IF_ERROR(check_dummy_settings(values));
  if (values.given("dummy") && values.given("prompts"))
    return Error(ErrorCode::kInvalidArgument, "--prompts needs a model with a tokenizer; --dummy has none");
  if (values.given("synthetic-acceptance") && values.integer("draft-tokens") == 0)
    return Error(ErrorCode::kInvalidArgument, "--synthetic-acceptance goes with --draft-tokens only");
  return {};
}

Result<LoadedEngine> load_bench_engine(const Values& values, int32_t num_requests, StepMeter* meter) {
  EngineOptions options = engine_options(values);
  if (values.given("dummy")) {
    options.dummy = values.text("dummy");
    options.layers = static_cast<int32_t>(values.integer("layers"));
    options.dummy_format = values.text("weights") == "fp8" ? DummyFormat::kFp8Block : DummyFormat::kBf16;
  } else {
    ASSIGN_OR_RETURN(options.model_dir, model_dir(values));
  }
  const int32_t ranks = options.data_parallel_size;
  if (!values.given("max-num-seqs")) options.max_num_seqs = (num_requests + ranks - 1) / ranks;
  if (values.given("synthetic-acceptance")) options.synthetic_acceptance = values.real("synthetic-acceptance");
  options.adaptive_drafts = values.is_on("adaptive-drafts");
  // No more context than is asked for, so that caches of large shapes fit.
  if (options.max_model_len == 0 && values.given("dummy")) {
    options.max_model_len = static_cast<int32_t>(values.integer("input-len") + values.integer("output-len") + 16);
  }
  if (meter != nullptr) meter->attach(options);
  ASSIGN_OR_RETURN(LoadedEngine loaded, load_interruptibly(options));
  RETURN_IF_ERROR(apply_dispatch_settings(values, *loaded.model));
  if (meter != nullptr) meter->know(loaded);
  return loaded;
}

void write_subject(JsonWriter& json, const Values& values, const LoadedEngine& loaded, const BenchPrompts& prompts) {
  json.field("model", values.given("dummy") ? values.text("dummy") : loaded.config->model_type)
      .field("layers", loaded.config->num_layers)
      .field("device", loaded.device)
      .field("data_parallel_size", loaded.engine->num_ranks())
      .field("kv_cache_dtype", values.text("kv-cache-dtype"))
      .field("prompts", prompts.source);
}

double percentile_of(std::vector<double> values, double share) {
  if (values.empty()) return std::nan("");
  std::ranges::sort(values);
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace lantern::cli
