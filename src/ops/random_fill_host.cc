#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "ops/cuda_ops.h"
#include "ops/random_fill.h"

namespace lantern {
namespace {

constexpr int64_t kGrain = 1 << 14;  // words

void random_fill_kernel(const RandomFillParams& p, HostContext& context) {
  context.threads.parallel_for((p.bytes + 7) / 8, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t word = random_values(p.values, p.key, p.width, static_cast<uint64_t>(i));
      std::memcpy(p.data.get() + 8 * i, &word, static_cast<size_t>(std::min<int64_t>(8, p.bytes - 8 * i)));
    }
  });
}

}  // namespace

void random_fill(Stream& stream, const RandomFillParams& params) {
  launch_op(stream, "random_fill", &random_fill_kernel, &CudaOps::random_fill, params);
}

float random_weight_width(int64_t cols) { return static_cast<float>(std::sqrt(3.0 / static_cast<double>(cols))); }

float random_weight_scale(int64_t cols) {
  double sum = 0;  // of the squares of kE4m3's codes, each as likely as any other
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>((code & 0x7f) == 0x7f ? code ^ 1 : code);
    sum += std::pow(to_float(e4m3_t{bits}), 2);
  }
  const double rms = 1.0 / std::sqrt(static_cast<double>(cols));
  return static_cast<float>(std::exp2(std::round(std::log2(rms / std::sqrt(sum / 256)))));
}

}  // namespace lantern
