// A kernel is a plain function: a lambda that captures a host value would bake it into the graph.
// expect: mismatched types .*lambda|could not match .* against .*lambda
#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

struct Params {
  DevPtr<float> x;
};

void launch(Stream& stream, const Params& params, int length) {
#ifdef MUST_NOT_COMPILE
  const auto kernel = [length](const Params& p, HostContext&) { p.x[0] = static_cast<float>(length); };
#else
  const HostKernel<Params> kernel = [](const Params& p, HostContext&) { p.x[0] = 0; };
#endif
  (void)length;
  stream.launch("kernel", kernel, params);
}

}  // namespace lantern
