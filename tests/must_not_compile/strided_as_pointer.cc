// A captured kernel reads contiguous memory: a Strided view is not a device pointer.
// expect: DevPtr<float>'.*Strided<float, 2>'|no viable overloaded '='
#include "base/view.h"
#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

struct Params {
  DevPtr<float> x;
};

void launch(Stream& stream, HostKernel<Params> kernel, const Fixed<float>& fixed, const Strided<float, 2>& strided) {
  Params params;
  params.x = fixed;
#ifdef MUST_NOT_COMPILE
  params.x = strided;
#endif
  (void)strided;
  stream.launch("kernel", kernel, params);
}

}  // namespace lantern
