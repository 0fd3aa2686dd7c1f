// Read-only memory does not become writable on the way into the parameters.
// expect: operand types are 'lantern::DevPtr<float>' and 'const lantern::Fixed<const float>'|no viable overloaded '='
#include "device/fixed.h"

namespace lantern {

struct Params {
  DevPtr<const float> in;
  DevPtr<float> out;
};

Params make(const Fixed<const float>& weights, const Fixed<float>& buffer) {
  Params params{buffer, buffer};
  params.in = weights;
#ifdef MUST_NOT_COMPILE
  params.out = weights;
#endif
  return params;
}

}  // namespace lantern
