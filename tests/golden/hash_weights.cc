#include "golden/hash_weights.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "base/dtype.h"

namespace lantern::golden {
namespace {

float uniform(uint64_t word, const TensorRecipe& recipe) {
  // offset and scale are float values, so the product is exact in double and the sum rounds once, fused or not.
  const double unit = (2.0 * static_cast<double>(word >> 40) - 0x1p24) * 0x1p-24;
  return static_cast<float>(recipe.offset + recipe.scale * unit);
}

float power_of_two(uint64_t word, const TensorRecipe& recipe) {
  const auto step = static_cast<int>((word >> 40) % static_cast<uint64_t>(recipe.scale));
  return std::ldexp(1.0f, static_cast<int>(recipe.offset) + step);
}

uint8_t e4m3_byte(uint64_t word) {
  return static_cast<uint8_t>(((word >> 63) << 7) | (((word >> 60) & 7) << 3) | ((word >> 57) & 7));
}

template <class T>
void store(std::vector<std::byte>& bytes, size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

}  // namespace

int64_t TensorRecipe::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

uint64_t fnv1a64(std::string_view text) {
  uint64_t value = 0xcbf29ce484222325u;
  for (char c : text) value = (value ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return value;
}

uint64_t hash_word(uint64_t seed, uint64_t index) {
  uint64_t x = seed + (index + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::vector<std::byte> make_tensor(const TensorRecipe& recipe, std::string_view salt) {
  const uint64_t seed = fnv1a64(std::string(salt) + "/" + recipe.hashed_name);
  const auto count = static_cast<size_t>(recipe.elements());
  const size_t width = recipe.dtype == "F32" ? 4 : recipe.dtype == "F8_E4M3" ? 1 : 2;
  std::vector<std::byte> bytes(count * width);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = hash_word(seed, i);
    if (recipe.kind == TensorRecipe::Kind::kE4m3) {
      store(bytes, i, e4m3_byte(word));
      continue;
    }
    const float value = recipe.kind == TensorRecipe::Kind::kPow2 ? power_of_two(word, recipe) : uniform(word, recipe);
    if (recipe.dtype == "F32") {
      store(bytes, i, value);
    } else if (recipe.dtype == "BF16") {
      store(bytes, i, to_bf16(value).bits);
    } else {
      CHECK(recipe.dtype == "F16", "no recipe for dtype {}", recipe.dtype);
      store(bytes, i, to_f16(value).bits);
    }
  }
  return bytes;
}

}  // namespace lantern::golden
