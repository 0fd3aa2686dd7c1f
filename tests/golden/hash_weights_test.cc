#include "golden/hash_weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "golden/golden_case.h"

namespace lantern::golden {
namespace {

// Bits that the Python twin computed, one tensor of every kind and dtype. Were the generators to differ, every golden
// comparison would fail; this test says that it is the weights.
TEST(HashWeights, EqualThePythonTwin) {
  const HashVectors vectors = load_hash_vectors();
  ASSERT_EQ(vectors.recipes.size(), 6u);
  for (size_t v = 0; v < vectors.recipes.size(); ++v) {
    const TensorRecipe& recipe = vectors.recipes[v];
    const std::vector<std::byte> bytes = make_tensor(recipe, vectors.salt);
    ASSERT_EQ(vectors.bits[v].size(), 12u);
    const size_t width = bytes.size() / vectors.bits[v].size();
    for (size_t i = 0; i < vectors.bits[v].size(); ++i) {
      uint32_t got = 0;
      std::memcpy(&got, bytes.data() + i * width, width);
      EXPECT_EQ(got, vectors.bits[v][i]) << recipe.name << " " << recipe.dtype << " element " << i;
    }
  }
}

}  // namespace
}  // namespace lantern::golden
