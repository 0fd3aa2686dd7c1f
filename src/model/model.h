// A model on a device: configuration, weights, caches and activations, and the forward pass written once against ops/
// and attention/. Const but for the buffers it owns; everything that changes from step to step is passed in.
#pragma once

#include <functional>
#include <memory>

#include "attention/indexer.h"
#include "attention/plan/step_limits.h"
#include "attention/step_view.h"
#include "device/stream.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/piece_runner.h"
#include "model/weights.h"

namespace lantern {

// The form of attention (attention/mla.h). With kAbsorbed a position's result does not depend on whether it ran in a
// prompt or in a decode, bit by bit; kAuto expands the latents for prompts, which is faster there.
enum class MlaForm : uint8_t { kAuto, kAbsorbed };

struct ModelOptions {
  KvCacheLayouts layouts;
  StepLimits limits;        // bounds of every step; block geometry of the caches
  int32_t sample_rows = 1;  // rows of logits() at once
  MlaForm mla_form = MlaForm::kAuto;
  IndexSelectParams::Mode index_mode = IndexSelectParams::Mode::kScore;
  bool index_hadamard = false;  // rotate index queries and keys by a Hadamard matrix before FP8 rounding
};

// Called by forward() where set; the activations hold what the named layer just computed. A replayed piece calls
// nobody: what it was captured with is in the graph. Selections are made between pieces.
struct StepObserver {
  std::function<void(int32_t layer, const Activations&)> after_selection;  // selected_*, for layers with an indexer
  std::function<void(int32_t layer, const Activations&)> after_router;     // expert_ids, expert_weights
  std::function<void(int32_t layer, const Activations&)> after_layer;      // residual + delta is the hidden state
};

class Model {
 public:
  // `device` must outlive the model. Models on devices that read the same memory may share weights, which outlive them.
  // Errors: out_of_memory with numbers.
  static Result<std::unique_ptr<Model>> create(Device& device, ModelConfig config,
                                               std::shared_ptr<const WeightStore> weights, const ModelOptions& options);

  Device& device() const { return device_; }
  const ModelConfig& config() const { return config_; }
  const ModelWeights& weights() const { return weights_->weights(); }
  const ModelOptions& options() const { return options_; }
  KvCache& cache() { return *cache_; }
  const KvCache& cache() const { return *cache_; }
  const Activations& activations() const { return activations_; }

  // Runs all layers over the step's tokens. `token_ids` is [step.tokens]. Writes the caches and activations().hidden.
  // By `pieces`, where it is given, all but attention: num_layers + 1 of them.
  void forward(Stream& stream, const StepView& step, DevPtr<const int32_t> token_ids,
               const StepObserver* observer = nullptr, PieceRunner* pieces = nullptr) const;

  // logits[r, :] = lm_head hidden[rows[r], :] for `count` <= sample_rows rows, into activations().logits.
  void logits(Stream& stream, DevPtr<const int32_t> rows, int32_t count, const RowCount& real_rows = {}) const;

  bool has_mtp() const { return !weights().mtp.empty(); }
  // One multi-token-prediction pass: for each token the hidden state at position i (`hidden` [step.tokens,
  // hidden_size]) and token i + 1 (`next_token_ids` [step.tokens]). Afterwards logits of mtp_logits() predict token i +
  // 2, and another pass, fed with mtp_hidden(), drafts one token further. Uses cache layer num_layers; where its
  // entries lie is up to step.slot_mapping and step.key_offset. The first pass after forward() is fed with
  // activations().hidden. kReused: the layer's indexer does not run, and token t attends to the keys that row t of the
  // selection holds (mtp_keep_selection). In two pieces.
  enum class MtpSelection : uint8_t { kComputed, kReused };
  void mtp_forward(Stream& stream, const StepView& step, DevPtr<const int32_t> next_token_ids,
                   DevPtr<const float> hidden, const StepObserver* observer = nullptr,
                   MtpSelection selection = MtpSelection::kComputed, PieceRunner* pieces = nullptr) const;
  // Rows `rows` ([count], ascending, -1: none) of the selection of the last mtp_forward() become its first rows.
  void mtp_keep_selection(Stream& stream, DevPtr<const int32_t> rows, int32_t count) const;
  // Instead of mtp_forward() over the same step: zeros where it would have written its entries. A later pass that sees
  // them drafts worse, and nothing else comes of it.
  void mtp_clear(Stream& stream, const StepView& step) const;
  void mtp_logits(Stream& stream, DevPtr<const int32_t> rows, int32_t count, const RowCount& real_rows = {}) const;
  // [tokens, hidden_size] of the last mtp_forward(): what it is fed with when it is applied again, the layer's output
  // before or after its head's norm as the family has it (ModelConfig::mtp_chains_normed).
  DevPtr<const float> mtp_hidden() const;

 private:
  Model(Device& device, ModelConfig config, std::shared_ptr<const WeightStore> weights, const ModelOptions& options,
        std::unique_ptr<KvCache> cache, Workspace workspace);

  // cos and sin of the step's positions; every layer reads them.
  void fill_rope_table(Stream& stream, const StepView& step) const;
  void run_head(Stream& stream, const QuantizedMatrix& head, DevPtr<const int32_t> rows, int32_t count,
                const RowCount& real_rows) const;

  Device& device_;
  ModelConfig config_;
  ModelOptions options_;
  std::shared_ptr<const WeightStore> weights_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<PersistentBuffer<float>> inverse_frequencies_;
  Workspace workspace_;
  Activations activations_;
};

}  // namespace lantern
