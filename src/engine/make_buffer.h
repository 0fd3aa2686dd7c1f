// A member's buffer in one line of a chain of RETURN_IF_ERROR.
#pragma once

#include <cstdint>
#include <memory>

#include "device/persistent_buffer.h"

namespace lantern {

// Errors: those of PersistentBuffer::create(); `buffer` then stays as it is.
template <class T>
Status make_buffer(Device& device, const char* owner, int64_t capacity, std::unique_ptr<PersistentBuffer<T>>& buffer) {
  ASSIGN_OR_RETURN(buffer, PersistentBuffer<T>::create(device, owner, capacity));
  return {};
}

}  // namespace lantern
