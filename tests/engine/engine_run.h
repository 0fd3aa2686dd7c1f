// The engine core with a model, driven to the end of every request, and the same requests one after another in a
// Session: the path that knows nothing of batches, slots, blocks and drafts.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_core.h"
#include "engine/model_executor.h"
#include "engine/selection_trace.h"
#include "engine/session.h"

namespace lantern {

std::filesystem::path tiny_model();
// Where the runs compute: cpu, or what the environment's LANTERN_TEST_DEVICE names.
std::string test_device();

// models/tiny with some fields of config.json changed or added: name and JSON text of the value. A folder of links that
// lives as long as the object.
class ChangedModel {
 public:
  ChangedModel(const std::string& name, const std::map<std::string, std::string>& fields);
  ~ChangedModel();
  ChangedModel(const ChangedModel&) = delete;
  ChangedModel& operator=(const ChangedModel&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct RunOptions {
  std::filesystem::path model_dir = tiny_model();
  std::string kv_cache_dtype = "bf16";
  MlaForm mla_form = MlaForm::kAuto;
  int32_t threads = 2;
  EngineSettings settings = small_settings();
  ModelExecutorOptions executor;

  // 64 sequences of up to 2048 tokens, 512 tokens a step, no drafts, no prefix cache, as many drafts as limits allow.
  static EngineSettings small_settings();
};

struct RunOutput {
  std::vector<int32_t> tokens;  // the stop token included
  EndReason reason = EndReason::kNone;
  bool operator==(const RunOutput&) const = default;
};

// Steps a request of which is done outside: cancels, submissions in between.
class EngineRun final : public OutputSink {
 public:
  static std::unique_ptr<EngineRun> create(const RunOptions& options);
  ~EngineRun() override;

  // The number by which outputs are found. A refused request is a failed test.
  int32_t submit(Request request);
  bool cancel(int32_t number) { return core_->cancel(ids_[static_cast<size_t>(number)]); }
  // Starts a step or finishes one; false where nothing is left to do. At most `prompt_tokens` of prompts are in a step
  // (0: as many as the limits allow). Checks the engine's invariants.
  bool step(int32_t prompt_tokens = 0);
  void run(int32_t prompt_tokens = 0) {
    while (step(prompt_tokens)) {
    }
  }

  const RunOutput& output(int32_t number, int32_t choice = 0) const { return outputs_.at({number, choice}); }
  // In the order in which they came; empty where nobody asked.
  const Logprobs& logprobs(int32_t number, int32_t choice = 0) const { return logprobs_.at({number, choice}); }
  const Logprobs& prompt_logprobs(int32_t number) const { return prompt_logprobs_.at(number); }
  const SelectionTrace& selections(int32_t number, int32_t choice = 0) const {
    return selections_.at({number, choice});
  }
  bool ended(int32_t number, int32_t choice = 0) const { return outputs_.contains({number, choice}); }
  void forget_outputs() {
    outputs_.clear();
    logprobs_.clear();
    prompt_logprobs_.clear();
    selections_.clear();
  }
  EngineCore& core() { return *core_; }
  const EngineStats& stats() const { return core_->state().stats; }
  Model& model() { return *model_; }
  Device& device() { return *device_; }
  Executor& executor() { return *executor_; }
  int64_t steps() const { return steps_; }
  const GraphReport& graphs() const { return graphs_; }
  // Of a step with at most so many prompt tokens.
  StepBudget budget(int32_t prompt_tokens) const;

  Verdict on_tokens(const Sequence& sequence, int32_t count) override;
  void on_logprobs(const Sequence& sequence, const LogprobRows& rows) override;
  void on_prompt_logprobs(const Sequence& sequence, const LogprobRows& rows) override;
  void on_selections(const Sequence& sequence, int32_t count, std::span<const int32_t> records) override;
  void on_end(const Sequence& sequence) override;

 private:
  EngineRun() = default;

  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<EngineCore> core_;
  std::vector<RequestId> ids_;
  struct Live {
    int32_t number = 0;
    int32_t choices = 0;  // that have not ended
  };
  std::map<RequestId, Live> live_;
  std::map<std::pair<int32_t, int32_t>, RunOutput> outputs_;
  std::map<std::pair<int32_t, int32_t>, Logprobs> logprobs_;
  std::map<int32_t, Logprobs> prompt_logprobs_;
  std::map<std::pair<int32_t, int32_t>, SelectionTrace> selections_;
  int64_t steps_ = 0;
  GraphReport graphs_;
};

// The requests alone, in a session with the same model, caches and form of attention.
std::vector<RunOutput> outputs_alone(const RunOptions& options, const std::vector<Request>& requests);

// Prompts of the model's evaluation sets, in turn from all of them; all sorts of sampling settings.
std::vector<Request> mixed_requests(int32_t count, int32_t max_tokens, int32_t longest_prompt);
// The first `count` items of each evaluation set but recall, greedy, to their end: what the model was trained to do.
std::vector<Request> task_requests(int32_t count);
// `length` token ids without sense.
std::vector<int32_t> random_prompt(int32_t length, uint64_t seed);

// The bytes of all caches. On the host device.
std::vector<std::byte> cache_bytes(const Model& model);

// How many outputs differ, with the first difference as text.
std::string differences(const EngineRun& run, const std::vector<RunOutput>& expected);

}  // namespace lantern
