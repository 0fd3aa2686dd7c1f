// What `bench throughput`, `bench latency` and, with graphs, `bench step` measure an engine with.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cli/json_writer.h"
#include "cli/settings.h"
#include "engine/load_engine.h"

namespace lantern::cli {

// One step as the engine thread saw it.
struct MeasuredStep {
  int32_t num_rows = 0;
  int32_t num_decodes = 0;
  int32_t num_tokens = 0;        // run
  int32_t num_outputs = 0;       // made
  double seconds = 0;            // in the executor
  double submit_seconds = 0;     // of these, until the step was submitted
  double since_last = 0;         // from the end of the step before to the end of this one
  int64_t distinct_experts = 0;  // that the step's tokens chose, added over the layers
  int64_t kv_bytes = 0;          // that its decodes read in the caches
};

// Counts for every step what it reads. Made before the engine, and outlives it.
class StepMeter {
 public:
  StepMeter() = default;
  StepMeter(const StepMeter&) = delete;
  StepMeter& operator=(const StepMeter&) = delete;

  // To an engine of one rank.
  void attach(EngineOptions& options);
  // Before the first request.
  void know(const LoadedEngine& loaded);
  std::vector<MeasuredStep> take();

 private:
  class Metered;
  int64_t kv_bytes_of(const StepBatch& batch) const;

  std::shared_ptr<const ModelConfig> config_;
  int64_t kv_row_bytes_ = 0;     // of one token in one layer's latent cache
  int64_t index_row_bytes_ = 0;  // and in its index cache

  std::mutex mutex_;
  std::vector<MeasuredStep> steps_;
};

// Steps in which `num_requests` sequences decoded and nothing else ran.
struct DecodeRate {
  int64_t steps = 0;
  double tokens_per_second = 0;
  double seconds_per_step = 0;       // median
  double weight_bytes_per_step = 0;  // with the distinct experts that were chosen
  double kv_bytes_per_step = 0;
  double experts_per_layer = 0;

  double bytes_per_step() const { return weight_bytes_per_step + kv_bytes_per_step; }
};
DecodeRate decode_rate(std::span<const MeasuredStep> steps, int32_t num_requests, const LoadedEngine& loaded);

struct BenchPrompts {
  std::string source;  // "random", or the file
  std::vector<std::vector<int32_t>> prompts;
};
// `count` prompts: from --prompts (JSON lines with "prompt"), again and again where it has fewer; else of --input-len
// random tokens. A checkpoint with a folder of tasks (eval/) is asked those, since nothing can be learnt about drafts
// from noise.
Result<BenchPrompts> bench_prompts(const Values& values, const LoadedEngine& loaded, int32_t count);

struct BenchRequest {
  std::vector<double> token_seconds;  // when tokens came, since the start; one entry for each output
  std::vector<int32_t> token_counts;  // that came with it
  double begin = 0;
  int32_t num_tokens = 0;
  std::string error;
};
// Submits all at once and waits for their ends; each makes exactly `output_len` tokens.
Result<std::vector<BenchRequest>> run_requests(Engine& engine, std::span<const std::vector<int32_t>> prompts,
                                               int32_t output_len);

// Errors: --layers or --weights without --dummy, and --model beside it.
Status check_dummy_settings(const Values& values);

// From --model or --dummy and the settings of an engine, with room for `num_requests` of the asked lengths.
Result<LoadedEngine> load_bench_engine(const Values& values, int32_t num_requests, StepMeter* meter);

// What was measured: the fields that every engine benchmark's object begins with.
void write_subject(JsonWriter& json, const Values& values, const LoadedEngine& loaded, const BenchPrompts& prompts);

// Linear between neighbours; `share` in [0, 1].
double percentile_of(std::vector<double> values, double share);

}  // namespace lantern::cli
