#include "model/model.h"

#include <array>

#include "device/memory_room.h"
#include "model/layer_stack.h"
#include "model/model_memory.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace lantern {
namespace {

void check_step(const ModelOptions& options, const StepView& step) {
  CHECK(step.tokens <= options.limits.max_tokens, "a step of {} tokens was run, but buffers hold {}", step.tokens,
        options.limits.max_tokens);
  CHECK(step.requests <= options.limits.max_requests, "a step of {} requests was run, but buffers hold {}",
        step.requests, options.limits.max_requests);
}

}  // namespace

Result<std::unique_ptr<Model>> Model::create(Device& device, ModelConfig config,
                                             std::shared_ptr<const WeightStore> weights, const ModelOptions& options) {
  const ModelMemory memory = model_memory(config, options, device.worker_count());
  RETURN_IF_ERROR(check_room(
      device,
      std::array{MemoryNeed{"the caches", memory.caches}, MemoryNeed{"a step's activations", memory.activations}},
      "lower max_model_len"));
  ASSIGN_OR_RETURN(auto cache, KvCache::create(device, config, options.layouts, options.limits.block_size,
                                               options.limits.num_blocks));
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::create(device, static_cast<size_t>(memory.activations)));
  const std::vector<float> frequencies =
      rope_inverse_frequencies(config.qk_rope_head_dim, config.rope_theta, config.rope_scaling);
  ASSIGN_OR_RETURN(auto inverse_frequencies, PersistentBuffer<float>::create(device, "rope inverse frequencies",
                                                                             static_cast<int64_t>(frequencies.size())));
  device.copy_to_device(inverse_frequencies->fixed().data(), frequencies.data(), frequencies.size() * sizeof(float));
  std::unique_ptr<Model> model(
      new Model(device, std::move(config), std::move(weights), options, std::move(cache), std::move(workspace)));
  model->inverse_frequencies_ = std::move(inverse_frequencies);
  return model;
}

Model::Model(Device& device, ModelConfig config, std::shared_ptr<const WeightStore> weights,
             const ModelOptions& options, std::unique_ptr<KvCache> cache, Workspace workspace)
    : device_(device),
      config_(std::move(config)),
      options_(options),
      weights_(std::move(weights)),
      cache_(std::move(cache)),
      workspace_(std::move(workspace)),
      activations_(workspace_, config_, options_.limits, options_.sample_rows, device_.worker_count()) {}

void Model::forward(Stream& stream, const StepView& step, DevPtr<const int32_t> token_ids, const StepObserver* observer,
                    PieceRunner* pieces) const {
  check_step(options_, step);
  const Activations& a = activations_;
  const ModelWeights& w = weights();
  const LayerRun run(stream, config_, options_, *cache_, a, step, observer);
  const auto layer = [&](int32_t id) -> const LayerWeights& { return w.layers[static_cast<size_t>(id)]; };
  run_piece(pieces, 0, [&] {
    embedding(stream, {.token_ids = token_ids,
                       .table = w.embed_tokens,
                       .y = a.residual,
                       .y_stride = config_.hidden_size,
                       .tokens = step.tokens});
    fill_rope_table(stream, step);
    run.before_attention(0, layer(0), true);
  });
  for (int32_t id = 0; id < config_.num_layers; ++id) {
    run.attend(id, layer(id));
    run_piece(pieces, id + 1, [&] {
      run.after_attention(id, layer(id));
      if (id + 1 < config_.num_layers) return run.before_attention(id + 1, layer(id + 1), false);
      run.add_norm(w.final_norm, a.hidden);
    });
  }
}

void Model::logits(Stream& stream, DevPtr<const int32_t> rows, int32_t count, const RowCount& real_rows) const {
  run_head(stream, weights().lm_head, rows, count, real_rows);
}

void Model::mtp_forward(Stream& stream, const StepView& step, DevPtr<const int32_t> next_token_ids,
                        DevPtr<const float> hidden_states, const StepObserver* observer, MtpSelection selection,
                        PieceRunner* pieces) const {
  CHECK(has_mtp(), "the checkpoint holds no multi-token-prediction layer");
  check_step(options_, step);
  const Activations& a = activations_;
  const MtpWeights& w = weights().mtp.front();
  const int64_t hidden = config_.hidden_size;
  const LayerRun run(stream, config_, options_, *cache_, a, step, observer);
  const bool reuses = selection == MtpSelection::kReused;
  run_piece(pieces, 0, [&] {
    // [enorm(embedding) | hnorm(hidden)], embedding half first.
    embedding(stream, {.token_ids = next_token_ids,
                       .table = w.embed_tokens,
                       .y = a.mtp_input,
                       .y_stride = 2 * hidden,
                       .tokens = step.tokens});
    rms_norm(stream, {.x = a.mtp_input,
                      .x_stride = 2 * hidden,
                      .weight = w.enorm,
                      .y = a.mtp_input,
                      .y_stride = 2 * hidden,
                      .rows = step.tokens,
                      .cols = hidden,
                      .eps = config_.rms_norm_eps});
    rms_norm(stream, {.x = hidden_states,
                      .x_stride = hidden,
                      .weight = w.hnorm,
                      .y = a.mtp_input.sub(hidden, a.mtp_input.size() - hidden),
                      .y_stride = 2 * hidden,
                      .rows = step.tokens,
                      .cols = hidden,
                      .eps = config_.rms_norm_eps});
    fill_rope_table(stream, step);
    run.project(w.eh_proj, a.mtp_input, a.residual);
    run.before_attention(config_.num_layers, w.layer, true, reuses);
  });
  run.attend(config_.num_layers, w.layer, reuses);
  run_piece(pieces, 1, [&] {
    run.after_attention(config_.num_layers, w.layer);
    run.add_norm(w.head_norm, a.hidden);
  });
}

void Model::mtp_keep_selection(Stream& stream, DevPtr<const int32_t> rows, int32_t count) const {
  CHECK(has_mtp() && config_.computes_selection(config_.num_layers), "the MTP layer makes no selection");
  const Activations& a = activations_;
  keep_selection(stream, {.rows = rows,
                          .positions = a.selected_positions,
                          .slots = a.selected_slots,
                          .counts = a.selected_counts,
                          .top_k = config_.index_topk,
                          .count = count});
}

void Model::mtp_clear(Stream& stream, const StepView& step) const {
  CHECK(has_mtp(), "the checkpoint holds no multi-token-prediction layer");
  check_step(options_, step);
  LayerRun(stream, config_, options_, *cache_, activations_, step, nullptr).clear_entries(config_.num_layers);
}

void Model::mtp_logits(Stream& stream, DevPtr<const int32_t> rows, int32_t count, const RowCount& real_rows) const {
  run_head(stream, weights().mtp.front().head, rows, count, real_rows);
}

DevPtr<const float> Model::mtp_hidden() const {
  return Fixed<const float>(config_.mtp_chains_normed ? activations_.hidden : activations_.residual);
}

void Model::run_head(Stream& stream, const QuantizedMatrix& head, DevPtr<const int32_t> rows, int32_t count,
                     const RowCount& real_rows) const {
  CHECK(count <= options_.sample_rows, "{} rows of logits were asked for, but buffers hold {}", count,
        options_.sample_rows);
  const Activations& a = activations_;
  gather_rows(stream, {.x = a.hidden,
                       .x_stride = config_.hidden_size,
                       .rows = rows,
                       .y = a.sample_hidden,
                       .count = count,
                       .cols = config_.hidden_size});
  LinearParams p;
  p.x = a.sample_hidden;
  p.x_stride = config_.hidden_size;
  p.y = a.logits;
  p.y_stride = head.rows;
  p.rows = count;
  p.real_rows = real_rows;
  p.weight = head;
  p.scratch = a.scratch;
  p.scratch_bytes = a.scratch.size();
  linear(stream, p);
}

void Model::fill_rope_table(Stream& stream, const StepView& step) const {
  rope_table(stream, {.context_len = step.token_context_len,
                      .inverse_frequencies = inverse_frequencies_->fixed(),
                      .cos_sin = activations_.rope_cos_sin,
                      .tokens = step.tokens,
                      .dim = config_.qk_rope_head_dim,
                      .attention_factor = static_cast<float>(rope_attention_factor(config_.rope_scaling))});
}

}  // namespace lantern
