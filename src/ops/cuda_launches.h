// What cuda_ops.cu makes its table of: a function for each op, beside its kernels. For the .cu files of this room.
#pragma once

#include "ops/cuda_ops.h"

namespace lantern::cuda {

void read_memory(void* stream, const ReadMemoryParams& p);
void random_fill(void* stream, const RandomFillParams& p);
void fill(void* stream, const FillParams& p);
void scale(void* stream, const ScaleParams& p);
void add(void* stream, const AddParams& p);
void embedding(void* stream, const EmbeddingParams& p);
void gather_rows(void* stream, const GatherRowsParams& p);
void rms_norm(void* stream, const RmsNormParams& p);
void add_rms_norm(void* stream, const AddRmsNormParams& p);
void layer_norm(void* stream, const LayerNormParams& p);
void rope_table(void* stream, const RopeTableParams& p);
void rope(void* stream, const RopeParams& p);
void linear(void* stream, const LinearParams& p);
void router(void* stream, const RouterParams& p);
void count_experts(void* stream, const CountExpertsParams& p);
void mlp(void* stream, const MlpParams& p);
void moe(void* stream, const MoeParams& p);
void sample(void* stream, const SampleParams& p);
void logprobs(void* stream, const LogprobParams& p);
void expand_sample_rows(void* stream, const ExpandSampleRowsParams& p);
void process_logits(void* stream, const ProcessLogitsParams& p);
void prompt_targets(void* stream, const PromptTargetsParams& p);
void verify_drafts(void* stream, const VerifyParams& p);
void ngram_drafts(void* stream, const NgramDraftsParams& p);

}  // namespace lantern::cuda
