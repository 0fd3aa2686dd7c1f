// Structs of the C interfaces begin with struct_size, so that they can grow: a caller that is older than the library
// gives fewer fields, and one that is newer may give more as long as it does not use them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/result.h"

namespace lantern {

// A caller's struct as this library knows it: what an older caller does not have is 0; what a newer one has beyond must
// be. `first_size` is the struct's size in its first version, below which nobody can be. Errors (invalid_argument):
// NULL, a size that no version has, fields that this library does not know.
template <class Struct>
Result<Struct> read_c_struct(const Struct* from, const char* name, uint32_t abi_version,
                             size_t first_size = sizeof(Struct)) {
  const auto refuse = [](std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); };
  if (from == nullptr) return refuse(fmt::format("{} is NULL", name));
  uint32_t size = 0;
  std::memcpy(&size, from, sizeof(size));
  constexpr uint32_t kMostBytes = 4096;  // no version will have as many: the field was not set
  if (size < first_size || size > kMostBytes) {
    return refuse(fmt::format("{}.struct_size is {}, but the struct has {} bytes; set it to sizeof({})", name, size,
                              sizeof(Struct), name));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  if (size > sizeof(Struct) && std::any_of(bytes + sizeof(Struct), bytes + size, [](auto byte) { return byte != 0; })) {
    return refuse(
        fmt::format("{} has fields beyond its first {} bytes, which this library, of ABI version {}, does not "
                    "know; leave them 0 or use a newer library",
                    name, sizeof(Struct), abi_version));
  }
  Struct known{};
  std::memcpy(&known, from, std::min<size_t>(size, sizeof(Struct)));
  return known;
}

}  // namespace lantern
