#include <algorithm>

#include "ops/cuda_ops.h"
#include "ops/elementwise.h"

namespace lantern {
namespace {

constexpr int64_t kGrain = 16384;  // elements: below this a second thread costs more than it saves

void fill_kernel(const FillParams& p, HostContext& context) {
  context.threads.parallel_for(p.count, kGrain, [&](int64_t begin, int64_t end, int) {
    std::fill(p.x.get() + begin, p.x.get() + end, p.value);
  });
}

void scale_kernel(const ScaleParams& p, HostContext& context) {
  context.threads.parallel_for(p.count, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) p.x[i] *= p.factor;
  });
}

void add_kernel(const AddParams& p, HostContext& context) {
  context.threads.parallel_for(p.count, kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) p.x[i] += p.delta[i];
  });
}

}  // namespace

void fill(Stream& stream, const FillParams& params) { launch_op(stream, "fill", &fill_kernel, &CudaOps::fill, params); }
void scale(Stream& stream, const ScaleParams& params) {
  launch_op(stream, "scale", &scale_kernel, &CudaOps::scale, params);
}
void add(Stream& stream, const AddParams& params) { launch_op(stream, "add", &add_kernel, &CudaOps::add, params); }

}  // namespace lantern
