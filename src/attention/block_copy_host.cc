#include <cstring>

#include "attention/block_copy.h"
#include "attention/cuda_attention.h"

namespace lantern {
namespace {

void copy_blocks_kernel(const BlockCopyParams& p, HostContext& context) {
  context.threads.parallel_for(p.count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(p.cache.get() + p.pairs[2 * i + 1] * p.block_bytes, p.cache.get() + p.pairs[2 * i] * p.block_bytes,
                  static_cast<size_t>(p.block_bytes));
    }
  });
}

}  // namespace

void copy_blocks(Stream& stream, const BlockCopyParams& params) {
  launch_attention(stream, "copy_blocks", &copy_blocks_kernel, &CudaAttention::copy_blocks, params);
}

}  // namespace lantern
