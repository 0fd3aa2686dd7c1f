// What cuda_attention.cu makes its table of: a function for each op, beside its kernels. For the .cu files of this
// room.
#pragma once

#include "attention/cuda_attention.h"

namespace lantern::cuda {

void write_latent(void* stream, const LatentWriteParams& p);
void write_index_key(void* stream, const IndexKeyWriteParams& p);
void copy_blocks(void* stream, const BlockCopyParams& p);
void index_select(void* stream, const IndexSelectParams& p);
void keep_selection(void* stream, const KeepSelectionParams& p);
void absorb_query(void* stream, const AbsorbQueryParams& p);
void mla_decode(void* stream, const MlaDecodeParams& p);
void project_value(void* stream, const ProjectValueParams& p);
void mla_prefill(void* stream, const MlaPrefillParams& p);

}  // namespace lantern::cuda
