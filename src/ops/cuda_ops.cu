#include "ops/cuda_launches.h"

namespace lantern {

const CudaOps* cuda_ops() {
  static constexpr CudaOps kOps{.read_memory = &cuda::read_memory,
                                .random_fill = &cuda::random_fill,
                                .fill = &cuda::fill,
                                .scale = &cuda::scale,
                                .add = &cuda::add,
                                .embedding = &cuda::embedding,
                                .gather_rows = &cuda::gather_rows,
                                .rms_norm = &cuda::rms_norm,
                                .add_rms_norm = &cuda::add_rms_norm,
                                .layer_norm = &cuda::layer_norm,
                                .rope_table = &cuda::rope_table,
                                .rope = &cuda::rope,
                                .linear = &cuda::linear,
                                .router = &cuda::router,
                                .count_experts = &cuda::count_experts,
                                .mlp = &cuda::mlp,
                                .moe = &cuda::moe,
                                .sample = &cuda::sample,
                                .logprobs = &cuda::logprobs,
                                .expand_sample_rows = &cuda::expand_sample_rows,
                                .process_logits = &cuda::process_logits,
                                .prompt_targets = &cuda::prompt_targets,
                                .verify_drafts = &cuda::verify_drafts,
                                .ngram_drafts = &cuda::ngram_drafts};
  return &kOps;
}

}  // namespace lantern
