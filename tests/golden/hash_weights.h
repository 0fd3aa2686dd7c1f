// Weights from a counter-based integer hash; the C++ twin of tools/make_goldens/hash_weights.py, which documents the
// function. A golden case stores ranges and names only, and both sides compute the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lantern::golden {

// One tensor of a case's tensors.json.
struct TensorRecipe {
  enum class Kind : uint8_t { kUniform, kE4m3, kPow2 };

  std::string name;
  std::string hashed_name;  // the name, or that of the tensor it repeats
  std::vector<int64_t> shape;
  std::string dtype;  // safetensors spelling: F32, BF16, F16 or F8_E4M3
  Kind kind = Kind::kUniform;
  double offset = 0;
  double scale = 0;

  int64_t elements() const;
};

uint64_t fnv1a64(std::string_view text);
// The hash of element `index` of the tensor whose seed is fnv1a64("<salt>/<name>").
uint64_t hash_word(uint64_t seed, uint64_t index);

// The tensor's bytes as a checkpoint holds them: row-major, little-endian.
std::vector<std::byte> make_tensor(const TensorRecipe& recipe, std::string_view salt);

}  // namespace lantern::golden
