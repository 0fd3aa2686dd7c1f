// The executor that drives a model: steps as data become launches on one stream. Everything that a step reads lies in
// device memory: what the host sends (step_upload.h), what the device keeps of each sequence (slot_state.h), and what
// the step plan derives. Lengths, last tokens and drafts never pass through the host.
//
// A step: slots, copies, tables -> step inputs -> plan -> model -> logits, samples -> verification -> slots ->
// MTP layer over what was accepted (it fills its cache even where no drafts are wanted), then once for each further
// draft -> results.
#pragma once

#include <memory>

#include "engine/engine_settings.h"
#include "engine/executor.h"
#include "model/model.h"

namespace lantern {

struct ModelExecutorOptions {
  // Below 0: drafts are verified. In [0, 1]: each is accepted with this chance, whatever it is, and what was to be
  // sampled is replaced by it: for benchmarks on random weights, whose drafts are never right.
  double synthetic_acceptance = -1;
  // Told of every step's layers, those of the MTP layer left out; outlives the executor. For benchmarks.
  const StepObserver* observer = nullptr;
};

// Limits, and rows of logits at once, of a model that make_model_executor() accepts for these (checked) settings.
ModelOptions model_options_for(const EngineSettings& settings, const KvCacheLayouts& layouts);

// `device` and `model`, which lies on it, must outlive the executor, and no other may use the model's caches. The
// settings are checked ones, and the model was made with their limits. A model without an MTP layer drafts nothing
// (limits.max_query_len should be 1 then).
// Errors: out_of_memory with numbers; invalid_argument for limits other than the model's and for a chance above 1.
Result<std::unique_ptr<Executor>> make_model_executor(Device& device, Model& model, const EngineSettings& settings,
                                                      const ModelExecutorOptions& options = {});

}  // namespace lantern
