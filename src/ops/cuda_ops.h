// The ops' launches on CUDA: kernels on tensor cores for common formats and widths, plain ones in float for the rest,
// all with one fixed order of every sum, so that a row's result depends neither on the batch nor on timing.
#pragma once

#include "device/device_launch.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/memory_read.h"
#include "ops/moe.h"
#include "ops/ngram_drafts.h"
#include "ops/norm.h"
#include "ops/process_logits.h"
#include "ops/random_fill.h"
#include "ops/rope.h"
#include "ops/sampling.h"
#include "ops/verify.h"

namespace lantern {

struct CudaOps {
  CudaLaunch<ReadMemoryParams> read_memory;
  CudaLaunch<RandomFillParams> random_fill;
  CudaLaunch<FillParams> fill;
  CudaLaunch<ScaleParams> scale;
  CudaLaunch<AddParams> add;
  CudaLaunch<EmbeddingParams> embedding;
  CudaLaunch<GatherRowsParams> gather_rows;
  CudaLaunch<RmsNormParams> rms_norm;
  CudaLaunch<AddRmsNormParams> add_rms_norm;
  CudaLaunch<LayerNormParams> layer_norm;
  CudaLaunch<RopeTableParams> rope_table;
  CudaLaunch<RopeParams> rope;
  CudaLaunch<LinearParams> linear;
  CudaLaunch<RouterParams> router;
  CudaLaunch<CountExpertsParams> count_experts;
  CudaLaunch<MlpParams> mlp;
  CudaLaunch<MoeParams> moe;
  CudaLaunch<SampleParams> sample;
  CudaLaunch<LogprobParams> logprobs;
  CudaLaunch<ExpandSampleRowsParams> expand_sample_rows;
  CudaLaunch<ProcessLogitsParams> process_logits;
  CudaLaunch<PromptTargetsParams> prompt_targets;
  CudaLaunch<VerifyParams> verify_drafts;
  CudaLaunch<NgramDraftsParams> ngram_drafts;
};

// Null in builds without CUDA.
const CudaOps* cuda_ops();

// launch_on_device() with this room's table.
template <LaunchParams Params>
void launch_op(Stream& stream, const char* name, HostKernel<Params> host, CudaLaunch<Params> CudaOps::* cuda,
               const Params& params) {
  launch_on_device(stream, name, host, cuda_ops(), cuda, params);
}

}  // namespace lantern
