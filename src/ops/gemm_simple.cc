// The implementation that ends the list: plain C++, any weight, any machine. Its order of K is column by column.
#include <array>
#include <cstring>

#include "ops/gemm_kernel.h"

namespace lantern {

int64_t float_panel_stride(int64_t cols) { return (cols + 15) / 16 * 16; }

int64_t float_panel_bytes(int64_t rows, int64_t cols) { return rows * float_panel_stride(cols) * 4; }

void pack_float_panel(const LinearParams& params, const GemmPanel& panel, int64_t group_begin, int64_t group_end) {
  const int64_t cols = params.weight.cols;
  const int64_t stride = float_panel_stride(cols);
  const bool rounded = rounds_input(params.weight, params.input);
  const int64_t end = group_end * kGemmGroupRows < panel.rows ? group_end * kGemmGroupRows : panel.rows;
  for (int64_t row = group_begin * kGemmGroupRows; row < end; ++row) {
    const float* source = x_row(params, panel.row_begin + row);
    float* target = reinterpret_cast<float*>(panel.data) + row * stride;
    if (rounded) {
      for (int64_t k = 0; k < cols; ++k) target[k] = to_float(to_bf16(source[k]));
    } else {
      std::memcpy(target, source, static_cast<size_t>(cols) * sizeof(float));
    }
    for (int64_t k = cols; k < stride; ++k) target[k] = 0.0f;
  }
}

namespace {

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (size_t i = 0; i < 256; ++i) values[i] = to_float(e4m3_t{static_cast<uint8_t>(i)});
    return values;
  }();
  return kValues;
}

float element(const QuantizedMatrix& w, const std::byte* row, int64_t col) {
  switch (w.dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, row + col * 4, sizeof(value));
      return value;
    }
    case DType::kF16:
    case DType::kBF16: {
      uint16_t bits;
      std::memcpy(&bits, row + col * 2, sizeof(bits));
      return w.dtype == DType::kF16 ? to_float(f16_t{bits}) : to_float(bf16_t{bits});
    }
    default: return e4m3_values()[static_cast<size_t>(row[col])];
  }
}

void multiply(const LinearParams& params, const GemmPanel& panel, int64_t out_begin, int64_t out_end) {
  const QuantizedMatrix& w = params.weight;
  const int64_t stride = float_panel_stride(w.cols);
  const int64_t block = w.block_rows == 0 ? w.cols : w.block_cols;
  for (int64_t out = out_begin; out < out_end; ++out) {
    const std::byte* weight_row = w.data.get() + out * w.row_bytes;
    for (int64_t row = 0; row < panel.rows; ++row) {
      const float* x = reinterpret_cast<const float*>(panel.data) + row * stride;
      float total = 0.0f;
      for (int64_t begin = 0; begin < w.cols; begin += block) {
        const int64_t end = begin + block < w.cols ? begin + block : w.cols;
        float partial = 0.0f;
        for (int64_t k = begin; k < end; ++k) partial += element(w, weight_row, k) * x[k];
        total += partial * block_scale(w, out, begin);
      }
      float& y = params.y[(panel.row_begin + row) * params.y_stride + out];
      y = params.accumulate ? y + total : total;
    }
  }
}

}  // namespace

const GemmKernel& gemm_simple_kernel() {
  static constexpr GemmKernel kKernel = {
      .name = "linear.cpu.simple",
      .missing_on_machine = []() -> const char* { return nullptr; },
      .refuses = [](const QuantizedMatrix&, LinearInput) -> const char* { return nullptr; },
      .out_block = 1,
      .panel_bytes = &float_panel_bytes,
      .pack = &pack_float_panel,
      .multiply = &multiply,
  };
  return kKernel;
}

}  // namespace lantern
