// A persistent buffer keeps its address: it cannot be moved into another owner.
// expect: deleted function 'lantern::PersistentBuffer|call to deleted constructor of 'PersistentBuffer<float>'
// 'PersistentBuffer
#include <utility>

#include "device/persistent_buffer.h"

namespace lantern {

void use(PersistentBuffer<float>& buffer, std::unique_ptr<PersistentBuffer<float>> owner) {
#ifdef MUST_NOT_COMPILE
  PersistentBuffer<float> moved(std::move(buffer));
#else
  std::unique_ptr<PersistentBuffer<float>> moved(std::move(owner));
#endif
  (void)buffer;
}

}  // namespace lantern
