#include "golden/golden_case.h"

#include <unistd.h>

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstring>
#include <fstream>

#include "base/check.h"

namespace lantern::golden {
namespace {

namespace json = boost::json;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  CHECK(in.good(), "cannot open {}", path.string());
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

std::string text_of(const json::value& value) { return std::string(value.as_string()); }

std::vector<int64_t> shape_of(const json::value& value) {
  std::vector<int64_t> shape;
  for (const json::value& extent : value.as_array()) shape.push_back(extent.to_number<int64_t>());
  return shape;
}

TensorRecipe recipe_of(const json::object& entry) {
  TensorRecipe recipe;
  recipe.name = text_of(entry.at("name"));
  recipe.hashed_name = entry.contains("same_as") ? text_of(entry.at("same_as")) : recipe.name;
  recipe.shape = shape_of(entry.at("shape"));
  recipe.dtype = text_of(entry.at("dtype"));
  const std::string kind = entry.contains("kind") ? text_of(entry.at("kind")) : "uniform";
  recipe.kind = kind == "e4m3"   ? TensorRecipe::Kind::kE4m3
                : kind == "pow2" ? TensorRecipe::Kind::kPow2
                                 : TensorRecipe::Kind::kUniform;
  recipe.offset = entry.at("offset").to_number<double>();
  recipe.scale = entry.at("scale").to_number<double>();
  return recipe;
}

void read_golden(const std::string& file, GoldenCase& golden) {
  uint64_t header_bytes = 0;
  CHECK(file.size() >= 8, "golden.safetensors of {} has no header", golden.name);
  std::memcpy(&header_bytes, file.data(), 8);
  CHECK(header_bytes <= file.size() - 8, "golden.safetensors of {} is truncated", golden.name);
  const json::object header = json::parse(std::string_view(file).substr(8, header_bytes)).as_object();
  for (const auto& [name, entry] : header) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.as_object()) golden.metadata[std::string(key)] = text_of(value);
      continue;
    }
    GoldenTensor tensor;
    tensor.dtype = text_of(entry.at("dtype"));
    tensor.shape = shape_of(entry.at("shape"));
    const auto begin = entry.at("data_offsets").at(0).to_number<uint64_t>();
    const auto end = entry.at("data_offsets").at(1).to_number<uint64_t>();
    CHECK(begin <= end && end <= file.size() - 8 - header_bytes, "golden tensor {} lies outside of its file",
          std::string(name));
    tensor.bytes.resize(end - begin);
    std::memcpy(tensor.bytes.data(), file.data() + 8 + header_bytes + begin, end - begin);
    golden.tensors[std::string(name)] = std::move(tensor);
  }
}

std::string safetensors_header(const std::vector<const TensorRecipe*>& recipes, const std::vector<size_t>& sizes) {
  json::object header;
  header["__metadata__"] = json::object{{"format", "pt"}};
  size_t offset = 0;
  for (size_t i = 0; i < recipes.size(); ++i) {
    json::array shape;
    for (int64_t extent : recipes[i]->shape) shape.emplace_back(extent);
    header[recipes[i]->name] = json::object{
        {"dtype", recipes[i]->dtype}, {"shape", shape}, {"data_offsets", json::array{offset, offset + sizes[i]}}};
    offset += sizes[i];
  }
  std::string text = json::serialize(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

void write_shard(const std::filesystem::path& path, const std::vector<const TensorRecipe*>& recipes,
                 std::string_view salt) {
  std::vector<std::vector<std::byte>> tensors;
  std::vector<size_t> sizes;
  for (const TensorRecipe* recipe : recipes) {
    tensors.push_back(make_tensor(*recipe, salt));
    sizes.push_back(tensors.back().size());
  }
  const std::string header = safetensors_header(recipes, sizes);
  const uint64_t header_bytes = header.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&header_bytes), 8);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const auto& tensor : tensors) {
    out.write(reinterpret_cast<const char*>(tensor.data()), static_cast<std::streamsize>(tensor.size()));
  }
  CHECK(out.good(), "cannot write {}", path.string());
}

}  // namespace

const float* GoldenTensor::floats() const {
  CHECK(dtype == "F32", "a golden tensor of {} was read as F32", dtype);
  return reinterpret_cast<const float*>(bytes.data());
}

const int32_t* GoldenTensor::ints() const {
  CHECK(dtype == "I32", "a golden tensor of {} was read as I32", dtype);
  return reinterpret_cast<const int32_t*>(bytes.data());
}

const uint8_t* GoldenTensor::octets() const {
  CHECK(dtype == "U8", "a golden tensor of {} was read as U8", dtype);
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

const GoldenTensor& GoldenCase::tensor(const std::string& tensor_name) const {
  const auto found = tensors.find(tensor_name);
  CHECK(found != tensors.end(), "golden case {} has no tensor {}", name, tensor_name);
  return found->second;
}

const GoldenTensor& GoldenCase::of(int sequence, std::string_view what) const {
  return tensor(fmt::format("s{}.{}", sequence, what));
}

bool GoldenCase::has(int sequence, std::string_view what) const { return has(fmt::format("s{}.{}", sequence, what)); }

std::vector<int32_t> GoldenCase::integers(int sequence, std::string_view what) const {
  const GoldenTensor& list = of(sequence, what);
  return std::vector<int32_t>(list.ints(), list.ints() + list.rows());
}

std::filesystem::path golden_data_dir() { return std::filesystem::path(LANTERN_SOURCE_DIR) / "tests/golden/data"; }

GoldenCase load_golden_case(std::string_view name) {
  const std::filesystem::path dir = golden_data_dir() / name;
  GoldenCase golden;
  golden.name = name;
  golden.config_json = read_file(dir / "config.json");
  const json::object manifest = json::parse(read_file(dir / "tensors.json")).as_object();
  golden.salt = text_of(manifest.at("salt"));
  for (const json::value& entry : manifest.at("tensors").as_array()) {
    golden.recipes.push_back(recipe_of(entry.as_object()));
  }
  read_golden(read_file(dir / "golden.safetensors"), golden);
  const json::value margins = json::parse(golden.metadata.at("trap_margins_in_tolerances"));
  for (const auto& [trap, margin] : margins.as_object()) {
    golden.trap_margins[std::string(trap)] = margin.to_number<double>();
  }
  return golden;
}

HashVectors load_hash_vectors() {
  const json::object file = json::parse(read_file(golden_data_dir() / "hash_weights.json")).as_object();
  HashVectors vectors;
  vectors.salt = text_of(file.at("salt"));
  for (const json::value& entry : file.at("tensors").as_array()) {
    vectors.recipes.push_back(recipe_of(entry.as_object()));
    std::vector<uint32_t> bits;
    for (const json::value& value : entry.at("bits").as_array()) bits.push_back(value.to_number<uint32_t>());
    vectors.bits.push_back(std::move(bits));
  }
  return vectors;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lantern_golden_XXXXXX").string();
  CHECK(mkdtemp(pattern.data()) != nullptr, "cannot make a temporary folder {}", pattern);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

TemporaryCheckpoint::TemporaryCheckpoint(const GoldenCase& golden, int shards) {
  std::ofstream(dir() / "config.json") << golden.config_json;
  json::object weight_map;
  size_t total = 0;
  for (int shard = 0; shard < shards; ++shard) {
    std::vector<const TensorRecipe*> recipes;
    std::string file = "model.safetensors";
    if (shards > 1) {
      file = fmt::format("model-{:05d}-of-{:05d}.safetensors", shard + 1, shards);
    }
    // Round robin: neighbouring tensors, a weight and its scales among them, lie in different shards.
    for (size_t i = static_cast<size_t>(shard); i < golden.recipes.size(); i += static_cast<size_t>(shards)) {
      recipes.push_back(&golden.recipes[i]);
      weight_map[golden.recipes[i].name] = file;
    }
    write_shard(dir() / file, recipes, golden.salt);
    total += static_cast<size_t>(std::filesystem::file_size(dir() / file));
  }
  if (shards > 1) {
    const json::object index{{"metadata", json::object{{"total_size", total}}}, {"weight_map", weight_map}};
    std::ofstream(dir() / "model.safetensors.index.json") << json::serialize(index);
  }
}

}  // namespace lantern::golden
