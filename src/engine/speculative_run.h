// One request at a time with drafts or by graphs, on the model of a session: an engine core with one slot.
#pragma once

#include <memory>
#include <string>

#include "engine/engine_core.h"
#include "engine/model_executor.h"
#include "engine/session.h"

namespace lantern {

class SpeculativeRun final : public OutputSink {
 public:
  // `device` and `model` must outlive it. The model's limits give the number of drafts. Errors: those of
  // make_model_executor().
  static Result<std::unique_ptr<SpeculativeRun>> create(Device& device, Model& model,
                                                        const ModelExecutorOptions& options);
  ~SpeculativeRun() override;

  // As Session::generate(), for a checked request.
  Result<GenerateResult> generate(const GenerateRequest& request, const Session::OnToken& on_token,
                                  const Session::OnProgress& on_prefill);
  const EngineStats& stats() const { return core_->state().stats; }
  const GraphReport& graphs() const { return graphs_; }

  Verdict on_tokens(const Sequence& sequence, int32_t count) override;
  void on_end(const Sequence& sequence) override;

 private:
  using Clock = std::chrono::steady_clock;

  SpeculativeRun() = default;

  std::unique_ptr<Executor> executor_;
  std::unique_ptr<EngineCore> core_;
  std::vector<int32_t> eos_;
  GraphReport graphs_;
  // Of the request that runs.
  const Session::OnToken* on_token_ = nullptr;
  GenerateResult result_;
  bool ended_ = false;
  std::string failure_;  // why the request failed; empty where it did not
  Clock::time_point start_, first_token_;
};

}  // namespace lantern
