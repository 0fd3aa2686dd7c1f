// The safetensors container: an 8-byte little-endian header length, a JSON header
// {"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {...}}, then the data without holes.
// Files are mapped, never read ahead; every number of a header is checked before it is used.
// Source of the format: https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"

namespace lantern {

struct TensorInfo {
  std::string name;
  std::optional<DType> dtype;  // empty: a dtype that Lantern does not know, an error only when the tensor is used
  std::string dtype_name;      // as spelled in the file
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the data, i.e. of the first byte after the header
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
  int64_t count() const;           // product of the shape
  std::string shape_text() const;  // "[576, 2048]"
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // offset of the data in the file
};

// Reads the header of a file of `file_bytes` bytes, whose first bytes are `head` (all of the file, or at least the
// header). Corrupt when it contradicts itself, the format or the file size.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head, uint64_t file_bytes);

// One mapped file. The mapping lives as long as the object, at one address.
class SafetensorsFile {
 public:
  static Result<std::unique_ptr<SafetensorsFile>> open(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorInfo* find(std::string_view name) const;  // null when there is none
  // `info` belongs to this file.
  std::span<const std::byte> data(const TensorInfo& info) const {
    return mapping_.subspan(header_.data_begin + info.begin, info.bytes());
  }
  // The whole file.
  std::span<const std::byte> mapping() const { return mapping_; }

 private:
  SafetensorsFile() = default;

  std::filesystem::path path_;
  std::span<const std::byte> mapping_;
  SafetensorsHeader header_;
  std::unordered_map<std::string_view, const TensorInfo*> by_name_;
};

// A model's shards: model.safetensors, or the files that model.safetensors.index.json names.
class Checkpoint {
 public:
  struct Tensor {
    const TensorInfo* info = nullptr;
    const SafetensorsFile* file = nullptr;
    std::span<const std::byte> data() const { return file->data(*info); }
  };

  static Result<Checkpoint> open(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return dir_; }
  const std::vector<std::unique_ptr<SafetensorsFile>>& shards() const { return shards_; }
  // All tensors, by name.
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  const Tensor* find(std::string_view name) const;  // null when there is none

 private:
  std::filesystem::path dir_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

struct SafetensorsWriterOptions {
  // Bound on the size of one file, header included. A tensor larger than it gets a file of its own.
  uint64_t max_shard_bytes = uint64_t{5} << 30;
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
};

// Writes a checkpoint without holding it in memory: declare every tensor, begin(), write the data in any order and in
// pieces, finish(). One file is called model.safetensors; several are model-00001-of-0000N.safetensors with an index.
// Within a file wide elements come first, so that every tensor is aligned to its element size.
class SafetensorsWriter {
 public:
  // `dir` must exist.
  explicit SafetensorsWriter(std::filesystem::path dir, SafetensorsWriterOptions options = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  Status declare(std::string name, DType dtype, std::vector<int64_t> shape);
  // Creates the files. No declaration afterwards.
  Status begin();
  // `data` goes to byte `offset` of the tensor. Thread-safe for disjoint ranges.
  Status write(std::string_view name, std::span<const std::byte> data, uint64_t offset = 0);
  // Flushes the files and writes the index.
  Status finish();

 private:
  struct Declared;
  struct Shard;
  uint64_t header_bytes(const Declared& tensor) const;
  std::string header_json(const Shard& shard) const;
  Status write_index() const;

  std::filesystem::path dir_;
  SafetensorsWriterOptions options_;
  std::vector<Declared> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
  std::vector<Shard> shards_;
  bool begun_ = false;
};

}  // namespace lantern
