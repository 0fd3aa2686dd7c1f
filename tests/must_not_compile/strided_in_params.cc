// Nor can a Strided view travel inside the parameters.
// expect: is_trivially_copyable_v<.*Hiding.* evaluated to '?false
#include "base/view.h"
#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

struct Fine {
  DevPtr<float> x;
  Extents<2> stride;
};
struct Hiding {
  struct Deep {
    Strided<float, 2> x;
  } deep;
};

#ifdef MUST_NOT_COMPILE
using Params = Hiding;
#else
using Params = Fine;
#endif

void launch(Stream& stream, HostKernel<Params> kernel, const Params& params) {
  stream.launch("kernel", kernel, params);
}

}  // namespace lantern
