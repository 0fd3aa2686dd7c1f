// Which CUDA kernels attend: the ordered lists of the ops that have several. All of a list but the plain one give the
// same sums, bit by bit.
#pragma once

#include "attention/indexer.h"
#include "attention/mla.h"
#include "device/dispatch.h"

namespace lantern::cuda {

// kWgmma: mla_decode_sm90_cuda.cu; kMma: mla_decode_tile_cuda.cu; kPortable: mla_cuda.cu.
enum class MlaDecodeKernel : uint8_t { kWgmma, kMma, kPortable, kCount };
struct MlaDecodeDesc {
  const LatentCacheView& cache;
  int32_t heads = 1;
  int32_t tokens = 1;  // of the launch
};
extern const Implementations<MlaDecodeKernel, MlaDecodeDesc> kMlaDecodeKernels;

// kAbsorbed: by way of absorb_query, mla_decode and project_value, kMlaPrefillTokens at a time.
enum class MlaPrefillKernel : uint8_t { kAbsorbed, kPortable, kCount };
struct MlaPrefillDesc {
  const LatentCacheView& cache;
};
extern const Implementations<MlaPrefillKernel, MlaPrefillDesc> kMlaPrefillKernels;

// The absorbed projections. The kernels with tiles sum alike. A latent column of a query: the rows of a head in
// kKvParts runs, which are added in order. An output: kKvPerLane neighbouring latent columns for each lane of a warp,
// whose sums are added as warp_sum() does.
constexpr int kKvColumns = 512;
constexpr int kKvPerLane = kKvColumns / 32;
constexpr int kKvParts = 4;
constexpr int kKvPerThread = 4;  // columns
// Tiles of many tokens (kv_projection_many_cuda.cu) and the outputs of one.
constexpr int64_t kKvManyTokens = 9;
constexpr int kKvManyOutputs = 128;

// kMany: kv_projection_many_cuda.cu; the others: kv_projection_cuda.cu.
enum class KvProjectionKernel : uint8_t { kMany, kFew, kPortable, kCount };
struct AbsorbQueryDesc {
  const KvUpProjection& kv_b;
  int64_t tokens = 1;
  bool aligned = true;  // queries and latents, of every token and head, to 16 bytes
};
extern const Implementations<KvProjectionKernel, AbsorbQueryDesc> kAbsorbQueryKernels;
struct ProjectValueDesc {
  const KvUpProjection& kv_b;
  int64_t tokens = 1;
  bool latents_aligned = true;  // to 16 bytes
  bool out_aligned = true;
};
extern const Implementations<KvProjectionKernel, ProjectValueDesc> kProjectValueKernels;

// index_scores_cuda.cu. A tile of kMma is of so many keys and values, which lie in one block of the cache.
enum class IndexScoreKernel : uint8_t { kMma, kPortable, kCount };
constexpr int kIndexTileKeys = 16;
constexpr int kIndexTileDim = 128;
struct IndexScoreDesc {
  IndexKeyLayout layout = IndexKeyLayout::kFp8;
  int32_t heads = 1;
  int32_t dim = 0;
  int32_t block_size = 0;
  int64_t block_bytes = 0;
  bool cache_aligned = true;  // to 16 bytes
};
extern const Implementations<IndexScoreKernel, IndexScoreDesc> kIndexScoreKernels;

}  // namespace lantern::cuda
