#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/json/serialize.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "model/safetensors.h"

namespace lantern {
namespace json = boost::json;

struct SafetensorsWriter::Declared {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  size_t shard = 0;
  uint64_t begin = 0;  // in the data of its shard
  std::unique_ptr<std::atomic<uint64_t>> written = std::make_unique<std::atomic<uint64_t>>(0);
};

struct SafetensorsWriter::Shard {
  std::vector<size_t> tensors;  // in file order
  std::filesystem::path path;
  int descriptor = -1;
  uint64_t data_begin = 0;
  uint64_t data_bytes = 0;
};

namespace {

std::string json_string(std::string_view text) { return json::serialize(json::string_view(text.data(), text.size())); }

Error write_error(const std::filesystem::path& path) {
  return Error(ErrorCode::kIo, fmt::format("{} cannot be written: {}", path.string(), std::strerror(errno)));
}

Status write_all(int descriptor, const std::filesystem::path& path, std::span<const std::byte> data, uint64_t offset) {
  while (!data.empty()) {
    const ssize_t written = ::pwrite(descriptor, data.data(), data.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return write_error(path);
    data = data.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path dir, SafetensorsWriterOptions options)
    : dir_(std::move(dir)), options_(std::move(options)) {}

SafetensorsWriter::~SafetensorsWriter() {
  for (const Shard& shard : shards_) {
    if (shard.descriptor >= 0) ::close(shard.descriptor);
  }
}

Status SafetensorsWriter::declare(std::string name, DType dtype, std::vector<int64_t> shape) {
  CHECK(!begun_, "tensor '{}' was declared after begin()", name);
  Declared tensor;
  uint64_t count = 1;
  for (int64_t extent : shape) {
    CHECK(extent >= 0, "tensor '{}' has an extent of {}", name, extent);
    CHECK(!__builtin_mul_overflow(count, static_cast<uint64_t>(extent), &count), "tensor '{}' is too large", name);
  }
  if (name == "__metadata__" || !by_name_.emplace(name, tensors_.size()).second) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("tensor '{}' is written twice", name));
  }
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.bytes = dtype_bytes(dtype, count);
  tensors_.push_back(std::move(tensor));
  return {};
}

// An upper bound of the tensor's entry in a header.
uint64_t SafetensorsWriter::header_bytes(const Declared& tensor) const {
  return json_string(tensor.name).size() + tensor.shape.size() * 21 + 100;
}

std::string SafetensorsWriter::header_json(const Shard& shard) const {
  std::string text = "{";
  if (!options_.metadata.empty()) {
    text += "\"__metadata__\":{";
    const char* separator = "";
    for (const auto& [key, value] : options_.metadata) {
      text += fmt::format("{}{}:{}", std::exchange(separator, ","), json_string(key), json_string(value));
    }
    text += "}";
  }
  for (size_t index : shard.tensors) {
    const Declared& tensor = tensors_[index];
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", text.size() > 1 ? "," : "",
                        json_string(tensor.name), to_string(tensor.dtype), fmt::join(tensor.shape, ","), tensor.begin,
                        tensor.begin + tensor.bytes);
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');  // the data begins aligned
  return text;
}

Status SafetensorsWriter::begin() {
  CHECK(!begun_, "begin() was called twice");
  begun_ = true;
  uint64_t fixed_bytes = 16;
  for (const auto& [key, value] : options_.metadata)
    fixed_bytes += json_string(key).size() + json_string(value).size() + 16;
  uint64_t used = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const uint64_t needed = tensors_[i].bytes + header_bytes(tensors_[i]);
    if (shards_.empty() || (used > fixed_bytes && used + needed > options_.max_shard_bytes)) {
      shards_.emplace_back();
      used = fixed_bytes;
    }
    tensors_[i].shard = shards_.size() - 1;
    shards_.back().tensors.push_back(i);
    used += needed;
  }
  if (shards_.empty()) shards_.emplace_back();

  for (size_t s = 0; s < shards_.size(); ++s) {
    Shard& shard = shards_[s];
    std::ranges::stable_sort(shard.tensors, [&](size_t a, size_t b) {
      return dtype_bits(tensors_[a].dtype) > dtype_bits(tensors_[b].dtype);
    });
    for (size_t index : shard.tensors) {
      tensors_[index].begin = shard.data_bytes;
      shard.data_bytes += tensors_[index].bytes;
    }
    shard.path = dir_ / (shards_.size() == 1 ? std::string("model.safetensors")
                                             : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards_.size()));
    shard.descriptor = ::open(shard.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (shard.descriptor < 0) return write_error(shard.path);
    const std::string header = header_json(shard);
    std::byte length[8];
    for (size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(header.size() >> (8 * i));
    shard.data_begin = sizeof length + header.size();
    RETURN_IF_ERROR(write_all(shard.descriptor, shard.path, length, 0));
    RETURN_IF_ERROR(write_all(shard.descriptor, shard.path, std::as_bytes(std::span(header)), sizeof length));
    if (::ftruncate(shard.descriptor, static_cast<off_t>(shard.data_begin + shard.data_bytes)) != 0) {
      return write_error(shard.path);
    }
  }
  return {};
}

Status SafetensorsWriter::write(std::string_view name, std::span<const std::byte> data, uint64_t offset) {
  CHECK(begun_, "write() was called before begin()");
  const auto it = by_name_.find(std::string(name));
  CHECK(it != by_name_.end(), "tensor '{}' was not declared", name);
  Declared& tensor = tensors_[it->second];
  CHECK(offset <= tensor.bytes && data.size() <= tensor.bytes - offset,
        "bytes [{}, {}) were written to tensor '{}' of {} bytes", offset, offset + data.size(), name, tensor.bytes);
  const Shard& shard = shards_[tensor.shard];
  RETURN_IF_ERROR(write_all(shard.descriptor, shard.path, data, shard.data_begin + tensor.begin + offset));
  tensor.written->fetch_add(data.size());
  return {};
}

Status SafetensorsWriter::write_index() const {
  uint64_t total = 0;
  std::map<std::string_view, std::string> files;
  for (const Declared& tensor : tensors_) {
    total += tensor.bytes;
    files[tensor.name] = shards_[tensor.shard].path.filename().string();
  }
  std::string text = fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total);
  const char* separator = "\n";
  for (const auto& [name, file] : files) {
    text += fmt::format("{}    {}: {}", std::exchange(separator, ",\n"), json_string(name), json_string(file));
  }
  text += "\n  }\n}\n";
  const std::filesystem::path path = dir_ / "model.safetensors.index.json";
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return write_error(path);
  return {};
}

Status SafetensorsWriter::finish() {
  CHECK(begun_, "finish() was called before begin()");
  for (const Declared& tensor : tensors_) {
    CHECK(tensor.written->load() == tensor.bytes, "{} of the {} bytes of tensor '{}' were written",
          tensor.written->load(), tensor.bytes, tensor.name);
  }
  for (Shard& shard : shards_) {
    const bool flushed = ::fsync(shard.descriptor) == 0;
    const bool closed = ::close(shard.descriptor) == 0;
    shard.descriptor = -1;
    if (!flushed || !closed) return write_error(shard.path);
  }
  return shards_.size() > 1 ? write_index() : Status();
}

}  // namespace lantern
