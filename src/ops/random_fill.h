// Random values that are a function of a key and of their place alone, the same on every device: what weights of no
// meaning, and the inputs of benchmarks, are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/host_device.h"
#include "device/fixed.h"
#include "device/stream.h"

namespace lantern {

enum class RandomValues : uint8_t {
  kF32,   // uniform in [-width, width)
  kBf16,  // the same
  kE4m3,  // every code but NaN; `width` means nothing
};

struct RandomFillParams {
  DevPtr<std::byte> data{};  // `bytes`, aligned to 8; the last word may be written in part
  int64_t bytes = 0;
  RandomValues values = RandomValues::kBf16;
  uint64_t key = 0;
  float width = 1.0f;
};
void random_fill(Stream& stream, const RandomFillParams& params);

// What gives a matrix of `cols` columns values with a root mean square of cols^-0.5, so that a product with it keeps
// the size of its input: the width of its values, or the scale of its e4m3 codes, a power of two (within sqrt 2 of it).
float random_weight_width(int64_t cols);
float random_weight_scale(int64_t cols);

// The finaliser of splitmix64 (Steele, Lea, Flood 2014): word `counter` of the stream `key`.
LANTERN_HOST_DEVICE inline uint64_t random_word(uint64_t key, uint64_t counter) {
  uint64_t x = key + (counter + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

LANTERN_HOST_DEVICE inline uint64_t random_float_bits(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// The 8 bytes at 8 * place.
LANTERN_HOST_DEVICE inline uint64_t random_values(RandomValues values, uint64_t key, float width, uint64_t place) {
  const uint64_t word = random_word(key, place);
  uint64_t packed = 0;
  switch (values) {
    case RandomValues::kF32: {
      const float step = width / 2147483648.0f;
      for (int lane = 0; lane < 64; lane += 32) {
        packed |= random_float_bits(static_cast<float>(static_cast<int32_t>(word >> lane)) * step) << lane;
      }
      return packed;
    }
    case RandomValues::kBf16: {
      const float step = width / 32768.0f;
      for (int lane = 0; lane < 64; lane += 16) {
        packed |= (random_float_bits(static_cast<float>(static_cast<int16_t>(word >> lane)) * step) >> 16) << lane;
      }
      return packed;
    }
    case RandomValues::kE4m3: {
      // 0x7f and 0xff are NaN: clear the lowest bit of bytes whose low seven bits are all set.
      const uint64_t low = (word & 0x7f7f7f7f7f7f7f7fu) + 0x0101010101010101u;  // bit 7 set where they were
      return word & ~((low & 0x8080808080808080u) >> 7);
    }
  }
  return packed;
}

}  // namespace lantern
