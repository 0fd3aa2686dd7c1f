// What one implementation of linear_host() provides; linear.cc holds the ordered list and the driver.
//
// A product runs in two phases. pack() copies rows of x into a panel in the layout the kernel wants (rounding and
// gathering on the way); multiply() computes y for a range of outputs from the packed panel and the weight in place.
// Both are called from several threads with disjoint ranges.
#pragma once

#include <cstdint>

#include "ops/linear.h"
#include "ops/row_scales.h"

namespace lantern {

// Rows of x are packed and multiplied in panels of at most this many; it bounds the scratch and never shows in a
// result.
constexpr int64_t kGemmPanelRows = 512;
// Rows of x are packed in groups of this many.
constexpr int64_t kGemmGroupRows = 16;

// Rows [row_begin, row_begin + rows) of the product, packed at `data`.
struct GemmPanel {
  std::byte* data = nullptr;  // 64-byte aligned
  int64_t row_begin = 0;
  int64_t rows = 0;

  int64_t groups() const { return (rows + kGemmGroupRows - 1) / kGemmGroupRows; }
};

struct GemmKernel {
  const char* name;
  // Why this machine cannot run it; null: it can.
  const char* (*missing_on_machine)();
  // Why it cannot take this weight; null: it can. Depends on the weight and the input kind, never on the rows.
  const char* (*refuses)(const QuantizedMatrix& weight, LinearInput input);
  // Outputs are handed out in multiples of this many.
  int64_t out_block;
  int64_t (*panel_bytes)(int64_t rows, int64_t cols);
  // Packs the groups [group_begin, group_end) of the panel.
  void (*pack)(const LinearParams& params, const GemmPanel& panel, int64_t group_begin, int64_t group_end);
  // Computes outputs [out_begin, out_end) of all rows of the panel.
  void (*multiply)(const LinearParams& params, const GemmPanel& panel, int64_t out_begin, int64_t out_end);
};

const GemmKernel& gemm_amx_kernel();
const GemmKernel& gemm_avx512bf16_kernel();
const GemmKernel& gemm_highway_kernel();
const GemmKernel& gemm_simple_kernel();

// Why this machine cannot run the AMX kernel; null: it can.
const char* missing_amx_bf16();

// True when x is rounded to bf16 before the product (linear.h).
inline bool rounds_input(const QuantizedMatrix& weight, LinearInput input) {
  return input == LinearInput::kRounded && (weight.dtype == DType::kBF16 || weight.dtype == DType::kF8E4M3);
}

inline const float* x_row(const LinearParams& params, int64_t row) {
  const int64_t source = params.x_rows ? params.x_rows[row] : row;
  return params.x.get() + source * params.x_stride;
}

// The panel of the kernels that compute in float: row-major, rows `float_panel_stride(cols)` apart, zeros behind cols.
int64_t float_panel_stride(int64_t cols);
int64_t float_panel_bytes(int64_t rows, int64_t cols);
void pack_float_panel(const LinearParams& params, const GemmPanel& panel, int64_t group_begin, int64_t group_end);

}  // namespace lantern
