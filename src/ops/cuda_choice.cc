#include "ops/cuda_choice.h"

#include "device/device_traits.h"

namespace lantern::cuda {
namespace {

constexpr const char* kFewRows = "fewer than 33 rows are multiplied faster in tiles of up to 32";
constexpr const char* kFewExpertRows = "experts with fewer than 8 rows on average are multiplied faster in small tiles";

// Of the products on tensor cores, whatever the rows.
Refusal refuse_weight(const QuantizedMatrix& w) {
  if (w.dtype == DType::kBF16) {
    if (w.block_rows != 0) return cannot("a bf16 weight has scales");
    if (w.cols % kChunk != 0) return cannot("a bf16 weight's columns are no multiple of 64");
  } else if (w.dtype == DType::kF8E4M3) {
    if (w.block_rows <= 0 || w.block_rows % 16 != 0 || w.block_cols != 2 * kChunk) {
      return cannot("an FP8 weight's scales are not for blocks of 16 n rows and 128 columns");
    }
    if (w.cols % (2 * kChunk) != 0) return cannot("an FP8 weight's columns are no multiple of 128");
  } else {
    return cannot("a weight is neither bf16 nor FP8");
  }
  if (w.row_bytes % 16 != 0 || reinterpret_cast<uintptr_t>(w.data.get()) % 16 != 0) {
    return cannot("a weight's rows do not begin at multiples of 16 bytes");
  }
  return {};
}

Refusal refuse_x(bool aligned) {
  return aligned ? Refusal{} : cannot("rows of x do not begin at multiples of 16 bytes");
}

Refusal refuse_experts(const ExpertWeights& w, bool x_aligned) {
  for (const QuantizedMatrix* matrix : {&w.gate, &w.up, &w.down}) {
    if (const Refusal refusal = refuse_weight(*matrix)) return refusal;
  }
  if (w.gate.dtype != w.up.dtype || w.gate.dtype != w.down.dtype) {
    return cannot("the weights of gate, up and down are of several types");
  }
  return refuse_x(x_aligned);
}

Refusal linear_mma(const LinearDesc& d, const DeviceTraits&) {
  if (d.input == LinearInput::kExact) return not_meant("the product is to take x unrounded");
  if (const Refusal refusal = refuse_weight(d.weight)) return refusal;
  return refuse_x(d.x_aligned);
}
Refusal linear_wgmma(const LinearDesc& d, const DeviceTraits& device) {
  if (d.input == LinearInput::kExact) return linear_mma(d, device);
  if (const Refusal refusal = refuse_all_but_hopper(device)) return refusal;
  if (const Refusal refusal = linear_mma(d, device)) return refusal;
  return d.rows < kWideRows ? not_meant(kFewRows) : Refusal{};
}

Refusal mlp_mma(const MlpDesc& d, const DeviceTraits&) { return refuse_experts(d.weights, d.x_aligned); }
Refusal mlp_wgmma(const MlpDesc& d, const DeviceTraits& device) {
  if (const Refusal refusal = refuse_all_but_hopper(device)) return refusal;
  if (const Refusal refusal = mlp_mma(d, device)) return refusal;
  return d.tokens < kWideRows ? not_meant(kFewRows) : Refusal{};
}

Refusal moe_mma(const MoeDesc& d, const DeviceTraits&) { return refuse_experts(d.first_expert, d.x_aligned); }
Refusal moe_wgmma(const MoeDesc& d, const DeviceTraits& device) {
  if (const Refusal refusal = refuse_all_but_hopper(device)) return refusal;
  if (const Refusal refusal = moe_mma(d, device)) return refusal;
  const int64_t expert_rows = d.tokens * d.experts_per_token / d.num_experts;
  return expert_rows < kWideExpertRows ? not_meant(kFewExpertRows) : Refusal{};
}

}  // namespace

const Implementations<ProductKernel, LinearDesc> kLinearKernels{
    {{"linear.sm90a.wgmma", &linear_wgmma}, {"linear.sm80.mma", &linear_mma}, {"linear.portable", nullptr}}};
const Implementations<ProductKernel, MlpDesc> kMlpKernels{
    {{"mlp.sm90a.wgmma", &mlp_wgmma}, {"mlp.sm80.mma", &mlp_mma}, {"mlp.portable", nullptr}}};
const Implementations<ProductKernel, MoeDesc> kMoeKernels{
    {{"moe.sm90a.wgmma", &moe_wgmma}, {"moe.sm80.mma", &moe_mma}, {"moe.portable", nullptr}}};

}  // namespace lantern::cuda
