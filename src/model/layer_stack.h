// One decoder layer, in the order of the published architecture: attention (with the indexer where the layer has one),
// then the dense MLP or the mixture of experts. Stateless: a LayerRun binds what one forward pass reads and writes.
#pragma once

#include "attention/step_view.h"
#include "device/stream.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "model/weights.h"

namespace lantern {

class LayerRun {
 public:
  LayerRun(Stream& stream, const ModelConfig& config, const ModelOptions& options, KvCache& cache,
           const Activations& activations, const StepView& step, const StepObserver* observer)
      : stream_(stream),
        config_(config),
        options_(options),
        cache_(cache),
        a_(activations),
        step_(step),
        observer_(observer) {}

  // A layer in three parts, of which attend() alone has launches that are shaped by more than the number of tokens.
  // Reads a.residual (and adds a.delta to it first unless `first`); leaves the layer's MLP output in a.delta. With
  // `reuse_selection` a layer that has an indexer takes the selection that is there instead.
  void before_attention(int32_t id, const LayerWeights& weights, bool first, bool reuse_selection = false) const;
  void attend(int32_t id, const LayerWeights& weights, bool reuse_selection = false) const;
  void after_attention(int32_t id, const LayerWeights& weights) const;

  // Zeros where the layer's cache entries of the step's tokens belong, instead of running it.
  void clear_entries(int32_t id) const;

  // a.residual += a.delta; y = the norm of it.
  void add_norm(DevPtr<const float> weight, DevPtr<float> y) const;
  // y = x W^T over the step's tokens, with row strides given by the widths.
  void project(const QuantizedMatrix& weight, DevPtr<const float> x, DevPtr<float> y,
               LinearInput input = LinearInput::kRounded) const;

 private:
  bool selects(int32_t id, bool reuse_selection) const { return config_.computes_selection(id) && !reuse_selection; }
  void queries(const AttentionWeights& weights) const;
  void latents(int32_t id, const AttentionWeights& weights) const;
  void index_inputs(int32_t id, const IndexerWeights& weights) const;
  void select(int32_t id) const;
  // From a.latent and a.index_k into the caches.
  void write_latents(int32_t id) const;
  void write_index_keys(int32_t id) const;
  // The first `tokens` of the step in the absorbed form; those from `first` on in the expanded one.
  void absorbed_attention(int32_t id, const AttentionWeights& weights, int32_t tokens) const;
  void expanded_attention(int32_t id, const AttentionWeights& weights, int32_t first) const;
  void feed_forward(int32_t id, const LayerWeights& weights) const;
  SelectionView selection(int32_t id, int32_t first_token, int32_t tokens) const;

  Stream& stream_;
  const ModelConfig& config_;
  const ModelOptions& options_;
  KvCache& cache_;
  const Activations& a_;
  const StepView step_;
  const StepObserver* observer_;
};

}  // namespace lantern
