// A raw address is no device pointer, whoever owns the memory.
// expect: conversion from 'float\*' to non-scalar type 'lantern::DevPtr<float>'|no viable conversion from 'float \*' to
// 'DevPtr<float>' 'DevPtr<float>'
#include "device/persistent_buffer.h"

namespace lantern {

DevPtr<float> pointer(const PersistentBuffer<float>& owner) {
  float* raw = owner.fixed().data();
#ifdef MUST_NOT_COMPILE
  DevPtr<float> pointer = raw;
#else
  DevPtr<float> pointer = owner.fixed();
#endif
  (void)raw;
  return pointer;
}

}  // namespace lantern
