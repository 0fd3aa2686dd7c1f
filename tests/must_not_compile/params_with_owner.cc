// Parameters are bytes: what owns anything would be replayed after its owner is gone.
// expect: is_trivially_copyable_v<.*Params.* evaluated to '?false
#include <vector>

#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

struct Params {
  DevPtr<float> x;
#ifdef MUST_NOT_COMPILE
  std::vector<int> seq_lens;
#else
  int seq_lens[4];
#endif
};

void launch(Stream& stream, HostKernel<Params> kernel, const Params& params) {
  stream.launch("kernel", kernel, params);
}

}  // namespace lantern
