// One folder of tests/golden/data: the config, the recipe of the weights and the expected outputs
// (tools/make_goldens/README.md lists the tensors).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "golden/hash_weights.h"

namespace lantern::golden {

struct GoldenTensor {
  std::string dtype;  // F32, I32 or U8
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  int64_t rows() const { return shape.at(0); }
  int64_t cols() const { return shape.size() < 2 ? 1 : shape[1]; }
  // Element access by type; a wrong type is a broken test.
  const float* floats() const;
  const int32_t* ints() const;
  const uint8_t* octets() const;
};

struct GoldenCase {
  std::string name;
  std::string config_json;
  std::string salt;
  std::vector<TensorRecipe> recipes;
  std::map<std::string, GoldenTensor> tensors;
  std::map<std::string, std::string> metadata;
  std::map<std::string, double> trap_margins;  // in tolerances, by name of the mistake

  const GoldenTensor& tensor(const std::string& tensor_name) const;
  bool has(const std::string& tensor_name) const { return tensors.contains(tensor_name); }
  // "s0.logits" and the like.
  const GoldenTensor& of(int sequence, std::string_view what) const;
  bool has(int sequence, std::string_view what) const;

  std::vector<int32_t> input_ids(int sequence) const { return integers(sequence, "input_ids"); }
  // A list of a sequence, as its positions.
  std::vector<int32_t> integers(int sequence, std::string_view what) const;
  int num_sequences() const { return 2; }
  // True where inputs of matrix products are rounded to bf16, as FP8 and BF16 weights imply.
  bool rounded() const { return metadata.at("inputs") != "float32"; }
};

// Ends the test program with a sentence when a file is missing or malformed: the data are part of the repository.
GoldenCase load_golden_case(std::string_view name);
std::filesystem::path golden_data_dir();

// data/hash_weights.json: recipes and the bits that the Python twin made of them.
struct HashVectors {
  std::string salt;
  std::vector<TensorRecipe> recipes;
  std::vector<std::vector<uint32_t>> bits;
};
HashVectors load_hash_vectors();

// A fresh folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A checkpoint folder as published models have it.
class TemporaryCheckpoint {
 public:
  // `shards` 1: model.safetensors. More: model-0000i-of-0000n.safetensors and an index.
  TemporaryCheckpoint(const GoldenCase& golden, int shards);

  const std::filesystem::path& dir() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace lantern::golden
