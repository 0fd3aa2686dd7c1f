#include "attention/cuda_launches.h"

namespace lantern {

const CudaAttention* cuda_attention() {
  static constexpr CudaAttention kAttention{.write_latent = &cuda::write_latent,
                                            .write_index_key = &cuda::write_index_key,
                                            .copy_blocks = &cuda::copy_blocks,
                                            .index_select = &cuda::index_select,
                                            .keep_selection = &cuda::keep_selection,
                                            .absorb_query = &cuda::absorb_query,
                                            .mla_decode = &cuda::mla_decode,
                                            .project_value = &cuda::project_value,
                                            .mla_prefill = &cuda::mla_prefill};
  return &kAttention;
}

}  // namespace lantern
