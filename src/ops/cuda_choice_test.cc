// Which kernel multiplies, for shapes, formats, places and devices: against a table, and against the conditions written
// out once more as a whole.
#include "ops/cuda_choice.h"

#include <gtest/gtest.h>

#include <string>

namespace lantern::cuda {
namespace {

const DeviceTraits kHopper{.compute_capability = 90, .most_shared_bytes = 227 << 10};
const DeviceTraits kAmpere{.compute_capability = 80, .most_shared_bytes = 163 << 10};
const DeviceTraits kBlackwell{.compute_capability = 100, .most_shared_bytes = 227 << 10};

QuantizedMatrix weight(DType dtype, int64_t cols, int32_t block_rows = 0, int32_t block_cols = 0,
                       uintptr_t address = 4096, int64_t padding = 0) {
  QuantizedMatrix w;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): never followed
  w.data = borrow_fixed(reinterpret_cast<const std::byte*>(address), int64_t{1});
  w.dtype = dtype;
  w.rows = 256;
  w.cols = cols;
  w.row_bytes = static_cast<int64_t>(dtype_bytes(dtype, static_cast<size_t>(cols))) + padding;
  w.block_rows = block_rows;
  w.block_cols = block_cols;
  return w;
}

template <class Desc, size_t kCount>
std::string name(const std::array<Implementation<Desc>, kCount>& list, const Desc& desc, const DeviceTraits& device) {
  return list[static_cast<size_t>(choose<ProductKernel>(list, desc, device))].name;
}
std::string linear_name(const QuantizedMatrix& w, int64_t rows, const DeviceTraits& device,
                        LinearInput input = LinearInput::kRounded, bool aligned = true) {
  return name(kLinearKernels, LinearDesc{.weight = w, .input = input, .rows = rows, .x_aligned = aligned}, device);
}

TEST(ProductChoice, OfPublicShapes) {
  for (const QuantizedMatrix& w : {weight(DType::kBF16, 7168), weight(DType::kF8E4M3, 7168, 128, 128)}) {
    EXPECT_EQ(linear_name(w, 1, kHopper), "linear.sm80.mma");
    EXPECT_EQ(linear_name(w, 32, kHopper), "linear.sm80.mma");
    EXPECT_EQ(linear_name(w, 33, kHopper), "linear.sm90a.wgmma");
    EXPECT_EQ(linear_name(w, 1024, kAmpere), "linear.sm80.mma");
    EXPECT_EQ(linear_name(w, 1024, kBlackwell), "linear.sm80.mma");
    EXPECT_EQ(linear_name(w, 1024, kHopper, LinearInput::kExact), "linear.portable");  // router, indexer's head weights
  }
  EXPECT_EQ(linear_name(weight(DType::kF32, 7168), 1024, kHopper), "linear.portable");
  EXPECT_EQ(linear_name(weight(DType::kF8E4M3, 7168), 1024, kHopper), "linear.portable");
}

// What the products on tensor cores take, in one expression.
bool tiles_take(const QuantizedMatrix& w) {
  const bool bf16 = w.dtype == DType::kBF16 && w.block_rows == 0 && w.cols % 64 == 0;
  const bool fp8 = w.dtype == DType::kF8E4M3 && w.block_rows > 0 && w.block_rows % 16 == 0 && w.block_cols == 128 &&
                   w.cols % 128 == 0;
  return (bf16 || fp8) && w.row_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(w.data.get()) % 16 == 0;
}
std::string expected(const char* op, bool tiles, bool many_rows, const DeviceTraits& device) {
  const bool wgmma = many_rows && device.compute_capability == 90;
  return std::string(op) + (!tiles ? ".portable" : wgmma ? ".sm90a.wgmma" : ".sm80.mma");
}

std::vector<QuantizedMatrix> all_weights() {
  std::vector<QuantizedMatrix> all;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kF16, DType::kF32}) {
    for (const int64_t cols : {32, 64, 96, 128, 192, 4096, 7168}) {
      for (const auto& [block_rows, block_cols] : {std::pair{0, 0}, {128, 128}, {16, 128}, {24, 128}, {128, 64}}) {
        for (const auto& [address, padding] : {std::pair{4096, 0}, {4096, 8}, {4096, 16}, {4104, 0}}) {
          all.push_back(weight(dtype, cols, block_rows, block_cols, static_cast<uintptr_t>(address), padding));
        }
      }
    }
  }
  return all;
}

void check(const QuantizedMatrix& w, bool aligned, int64_t rows, const DeviceTraits& device) {
  const bool tiles = tiles_take(w) && aligned;
  ASSERT_EQ(linear_name(w, rows, device, LinearInput::kRounded, aligned),
            expected("linear", tiles, rows >= 33, device));
  ASSERT_EQ(linear_name(w, rows, device, LinearInput::kExact, aligned), "linear.portable");
  // Any of the three matrices may be the one that tiles do not take; all are of one type.
  const QuantizedMatrix good = weight(w.dtype, 256, w.dtype == DType::kF8E4M3 ? 128 : 0, 128);
  const QuantizedMatrix other = weight(w.dtype == DType::kBF16 ? DType::kF8E4M3 : DType::kBF16, 256, 0, 128);
  for (const auto& [e, one_type] : {std::pair{ExpertWeights{w, good, good}, true},
                                    {ExpertWeights{good, w, good}, true},
                                    {ExpertWeights{good, good, w}, true},
                                    {ExpertWeights{good, good, other}, false}}) {
    const bool all = one_type && tiles && tiles_take(good);
    ASSERT_EQ(name(kMlpKernels, MlpDesc{.weights = e, .tokens = rows, .x_aligned = aligned}, device),
              expected("mlp", all, rows >= 33, device));
    for (const auto& [experts, each] : {std::pair{8, 2}, {256, 8}, {1024, 1}}) {
      const MoeDesc desc{e, experts, each, rows, aligned};
      ASSERT_EQ(name(kMoeKernels, desc, device), expected("moe", all, rows * each / experts >= 8, device));
    }
  }
}

TEST(ProductChoice, IsThatOfItsConditionsEverywhere) {
  for (const QuantizedMatrix& w : all_weights()) {
    for (const DeviceTraits& device : {kHopper, kAmpere, kBlackwell}) {
      for (const int64_t rows : {1, 2, 8, 31, 32, 33, 256, 1024}) {
        check(w, true, rows, device);
        check(w, false, rows, device);
      }
    }
  }
}

TEST(ProductChoice, SaysWhatIsMissingAndWhatIsByChoice) {
  const QuantizedMatrix bf16 = weight(DType::kBF16, 7168), narrow = weight(DType::kBF16, 96);
  EXPECT_TRUE(consider(kLinearKernels, LinearDesc{.weight = bf16}, kHopper)[0].refusal.by_choice);
  const std::vector<Considered> ampere = consider(kLinearKernels, LinearDesc{.weight = bf16}, kAmpere);
  EXPECT_STREQ(ampere[0].refusal.reason, "it needs a GPU of compute capability 9.0");
  EXPECT_FALSE(ampere[0].refusal.by_choice);
  const std::vector<Considered> format = consider(kLinearKernels, LinearDesc{.weight = narrow}, kHopper);
  EXPECT_STREQ(format[1].refusal.reason, "a bf16 weight's columns are no multiple of 64");
  EXPECT_FALSE(format[0].refusal.by_choice || format[1].refusal.by_choice);
}

}  // namespace
}  // namespace lantern::cuda
