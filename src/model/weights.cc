#include "model/weights.h"

#include <set>

namespace lantern {
namespace {

// Adds up matrices, each once by its address (an MTP layer may share embedding and head with the model), and vectors,
// whose sizes follow from the matrices beside them.
class WeightSum {
 public:
  void add(const QuantizedMatrix& matrix) {
    if (!matrix.empty() && seen_.insert(matrix.data.get()).second) add_size(matrix, 1);
  }
  void add_vector(const DevPtr<const float>& vector, int64_t size) {
    if (!vector) return;
    bytes += size * static_cast<int64_t>(sizeof(float));
    parameters += size;
  }
  void add(const ExpertWeights& expert) {
    add(expert.gate);
    add(expert.up);
    add(expert.down);
  }
  void add(const AttentionWeights& attention) {
    for (const QuantizedMatrix* matrix :
         {&attention.q_proj, &attention.q_a_proj, &attention.q_b_proj, &attention.kv_a_proj, &attention.kv_b_proj,
          &attention.o_proj, &attention.indexer.wq_b, &attention.indexer.wk, &attention.indexer.weights_proj}) {
      add(*matrix);
    }
    add_vector(attention.q_a_layernorm, attention.q_a_proj.rows);
    add_vector(attention.kv_a_layernorm, attention.kv_b_proj.cols);
    add_vector(attention.indexer.k_norm_weight, attention.indexer.wk.rows);
    add_vector(attention.indexer.k_norm_bias, attention.indexer.wk.rows);
  }
  // So many of the routed experts: they are all of one size.
  void add(const LayerWeights& layer, int64_t experts) {
    const int64_t hidden = layer.attention.kv_a_proj.cols;
    add_vector(layer.input_layernorm, hidden);
    add_vector(layer.post_attention_layernorm, hidden);
    add(layer.attention);
    add(layer.dense);
    if (!layer.is_moe) return;
    add(layer.router);
    add_vector(layer.router_bias, layer.router.rows);
    for (const QuantizedMatrix* matrix : {&layer.first_expert.gate, &layer.first_expert.up, &layer.first_expert.down}) {
      add_size(*matrix, experts);
    }
  }

  int64_t bytes = 0;
  int64_t parameters = 0;

 private:
  void add_size(const QuantizedMatrix& matrix, int64_t count) {
    bytes += count * matrix_bytes(matrix);
    parameters += count * matrix.rows * matrix.cols;
  }

  std::set<const std::byte*> seen_;
};

WeightSum sum_all(const ModelWeights& weights) {
  WeightSum sum;
  const int64_t hidden = weights.embed_tokens.cols;
  sum.add(weights.embed_tokens);
  for (const LayerWeights& layer : weights.layers) sum.add(layer, layer.router.rows);
  sum.add_vector(weights.final_norm, hidden);
  sum.add(weights.lm_head);
  for (const MtpWeights& mtp : weights.mtp) {
    sum.add(mtp.embed_tokens);
    sum.add_vector(mtp.enorm, hidden);
    sum.add_vector(mtp.hnorm, hidden);
    sum.add(mtp.eh_proj);
    sum.add(mtp.layer, mtp.layer.router.rows);
    sum.add_vector(mtp.head_norm, hidden);
    sum.add(mtp.head);
  }
  return sum;
}

}  // namespace

int64_t ModelWeights::active_bytes_per_token(const ModelConfig& config) const {
  WeightSum sum;
  for (const LayerWeights& layer : layers) sum.add(layer, config.experts_per_token);
  sum.add_vector(final_norm, embed_tokens.cols);
  sum.add(lm_head);
  return sum.bytes;
}

int64_t ModelWeights::total_bytes() const { return sum_all(*this).bytes; }

int64_t ModelWeights::parameter_count() const { return sum_all(*this).parameters; }

}  // namespace lantern
