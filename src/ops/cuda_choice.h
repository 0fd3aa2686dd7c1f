// Which CUDA kernels multiply: the ordered lists of linear(), mlp() and moe(). All of a list give the same sums but for
// the plain one, whose order of K is its own.
#pragma once

#include "device/dispatch.h"
#include "ops/moe.h"

namespace lantern::cuda {

// Columns that the products on tensor cores take at a time.
constexpr int kChunk = 64;
// Fewer rows are multiplied faster by tiles of up to 32 than by warpgroups.
constexpr int64_t kWideRows = 33;
// The same of the rows that an expert has if all have as many.
constexpr int64_t kWideExpertRows = 8;

// kWgmma: wide_products_cuda.cu; kMma: weight_tile.cuh; kPortable: linear_rows.cuh.
enum class ProductKernel : uint8_t { kWgmma, kMma, kPortable, kCount };

// A launch chooses for each pass over its rows (kCudaRowsPerPass, kTokensPerPass), by the pass's own number of them.
struct LinearDesc {
  const QuantizedMatrix& weight;
  LinearInput input = LinearInput::kRounded;
  int64_t rows = 1;
  bool x_aligned = true;  // rows of x can be read in pieces of 16 bytes
};
extern const Implementations<ProductKernel, LinearDesc> kLinearKernels;

struct MlpDesc {
  const ExpertWeights& weights;
  int64_t tokens = 1;
  bool x_aligned = true;
};
extern const Implementations<ProductKernel, MlpDesc> kMlpKernels;

struct MoeDesc {
  const ExpertWeights& first_expert;
  int32_t num_experts = 1;
  int32_t experts_per_token = 1;
  int64_t tokens = 1;
  bool x_aligned = true;
};
extern const Implementations<ProductKernel, MoeDesc> kMoeKernels;

}  // namespace lantern::cuda
