// Nor use the owners' door.
// expect: FixedOwner::mint.* is protected within|'mint' is a protected member
#include "device/fixed.h"

namespace lantern {

struct Owner : FixedOwner {
  static Fixed<float> view(float* data) { return mint(data, 4); }
};

Fixed<float> view(float* data) {
#ifdef MUST_NOT_COMPILE
  return FixedOwner::mint(data, 4);
#else
  return Owner::view(data);
#endif
}

}  // namespace lantern
