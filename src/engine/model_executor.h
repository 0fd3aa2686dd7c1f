// The executor that drives a model: steps as data become launches on one stream. Everything that a step reads lies in
// device memory: what the host sends (step_upload.h), what the device keeps of each sequence (slot_state.h), and what
// the step plan derives. Lengths, last tokens and drafts never pass through the host.
//
// A step: slots, copies, tables -> step inputs -> plan -> model -> logits, samples -> verification -> slots -> n-grams,
// or MTP layer over what was accepted (zeros for its cache where the step leaves it out), then once for each further
// draft -> results.
#pragma once

#include <memory>
#include <string_view>

#include "engine/engine_settings.h"
#include "engine/executor.h"
#include "engine/step_graphs.h"
#include "model/model.h"

namespace lantern {

// Who makes drafts.
enum class Drafter : uint8_t {
  kAuto,   // the model's MTP layer, or n-grams where it has none
  kMtp,    // the MTP layer
  kNgram,  // what followed when the last tokens of the text came up before (ops/ngram_drafts.h)
};
// "auto", "mtp", "ngram". Errors: invalid_argument for any other.
Result<Drafter> parse_drafter(std::string_view name);

struct ModelExecutorOptions {
  Drafter drafter = Drafter::kAuto;
  int32_t min_ngram = 1, max_ngram = 4;  // tokens of the text's end that are looked for

  // Below 0: drafts are verified. In [0, 1]: each is accepted with this chance, whatever it is, and what was to be
  // sampled is replaced by it: for benchmarks on random weights, whose drafts are never right. Log-probabilities then
  // are those of what was to be sampled.
  double synthetic_acceptance = -1;
  // Fill in StepResults::distinct_experts, those of the MTP layer left out. For benchmarks.
  bool count_experts = false;
  // Whose selections are kept where the settings have max_traced_rows; -1: the last layer that makes one.
  int32_t traced_layer = -1;
  GraphMode graphs = GraphMode::kNone;
};

// Limits, and rows of logits at once, of a model that make_model_executor() accepts for these (checked) settings.
ModelOptions model_options_for(const EngineSettings& settings, const KvCacheLayouts& layouts);

// `device` and `model`, which lies on it, must outlive the executor, and no other may use the model's caches. The
// settings are checked ones, and the model was made with their limits.
// Errors: out_of_memory with numbers; invalid_argument for limits other than the model's, a chance above 1, and n-grams
// of less than 1 token; unsupported for drafts by Drafter::kMtp without an MTP layer; what
// choose_traced_layer() says.
// `graphs`, where it is given, is told what was captured.
Result<std::unique_ptr<Executor>> make_model_executor(Device& device, Model& model, const EngineSettings& settings,
                                                      const ModelExecutorOptions& options = {},
                                                      GraphReport* graphs = nullptr);

}  // namespace lantern
