// The attention ops' launches on CUDA: kernels on tensor cores for the shapes of public models, plain ones in float for
// the rest, all with one fixed order of every sum, so that a token's result depends neither on the batch nor on timing.
#pragma once

#include "attention/block_copy.h"
#include "attention/cache_write.h"
#include "attention/indexer.h"
#include "attention/mla.h"
#include "device/device_launch.h"

namespace lantern {

struct CudaAttention {
  CudaLaunch<LatentWriteParams> write_latent;
  CudaLaunch<IndexKeyWriteParams> write_index_key;
  CudaLaunch<BlockCopyParams> copy_blocks;
  CudaLaunch<IndexSelectParams> index_select;
  CudaLaunch<KeepSelectionParams> keep_selection;
  CudaLaunch<AbsorbQueryParams> absorb_query;
  CudaLaunch<MlaDecodeParams> mla_decode;
  CudaLaunch<ProjectValueParams> project_value;
  CudaLaunch<MlaPrefillParams> mla_prefill;
};

// Null in builds without CUDA.
const CudaAttention* cuda_attention();

// launch_on_device() with this room's table.
template <LaunchParams Params>
void launch_attention(Stream& stream, const char* name, HostKernel<Params> host,
                      CudaLaunch<Params> CudaAttention::* cuda, const Params& params) {
  launch_on_device(stream, name, host, cuda_attention(), cuda, params);
}

}  // namespace lantern
