#include <algorithm>

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

void fill(Stream& stream, const FillParams& params) { stream.launch("fill", &fill_kernel, params); }
void scale(Stream& stream, const ScaleParams& params) { stream.launch("scale", &scale_kernel, params); }
void add(Stream& stream, const AddParams& params) { stream.launch("add", &add_kernel, params); }

}  // namespace lantern
