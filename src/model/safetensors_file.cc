#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/json_error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "model/safetensors.h"

namespace lantern {
namespace json = boost::json;
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;

// The file of each tensor, from an index.
Result<std::map<std::string, std::string>> read_index(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxIndexBytes));
  json::error_code code;
  const json::value value = json::parse(text, code);
  if (code) return json_error(text).within(path.string());
  const json::value* map = value.is_object() ? value.get_object().if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object() || map->get_object().empty()) {
    return Error(
        ErrorCode::kCorrupt,
        fmt::format("{}: 'weight_map' is missing; expected an object of tensor names and files", path.string()));
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, shard] : map->get_object()) {
    // A name with a folder in it could point anywhere.
    const std::string file_name = shard.is_string() ? std::string(shard.get_string()) : "";
    if (file_name.empty() || file_name.find('/') != std::string::npos || file_name == "." || file_name == ".." ||
        file_name.find('\0') != std::string::npos) {
      return Error(ErrorCode::kCorrupt, fmt::format("{}: the file of tensor '{}' is {}; expected the name of a file "
                                                    "beside the index",
                                                    path.string(), std::string_view(name), json_text(shard)));
    }
    files.emplace(name, file_name);
  }
  return files;
}

}  // namespace

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open(const std::filesystem::path& path) {
  // A pipe of that name must not make this wait for somebody to write into it.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const int reason = errno;
    return Error(reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 fmt::format("{} cannot be opened: {}", path.string(), std::strerror(reason)));
  }
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile());
  file->path_ = path;
  struct stat status{};
  const bool readable = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const auto bytes = readable ? static_cast<uint64_t>(status.st_size) : 0;
  void* address = bytes > 0 ? ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
  const int reason = errno;
  ::close(descriptor);
  if (!readable) return Error(ErrorCode::kIo, fmt::format("{} is not a regular file", path.string()));
  if (bytes == 0) return Error(ErrorCode::kCorrupt, fmt::format("{} is empty", path.string()));
  if (address == MAP_FAILED) {
    return Error(ErrorCode::kIo,
                 fmt::format("{} of {} bytes cannot be mapped: {}", path.string(), bytes, std::strerror(reason)));
  }
  file->mapping_ = {static_cast<const std::byte*>(address), bytes};
  Result<SafetensorsHeader> header = parse_safetensors_header(file->mapping_, bytes);
  if (!header.ok()) return std::move(header).error().within(path.string());
  file->header_ = std::move(header).value();
  file->by_name_.reserve(file->header_.tensors.size());
  for (const TensorInfo& tensor : file->header_.tensors) file->by_name_.emplace(tensor.name, &tensor);
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (!mapping_.empty()) ::munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size());
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it != by_name_.end() ? it->second : nullptr;
}

const Checkpoint::Tensor* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it != tensors_.end() ? &it->second : nullptr;
}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& dir) {
  Checkpoint checkpoint;
  checkpoint.dir_ = dir;
  std::error_code ignored;
  if (std::filesystem::exists(dir / kSingleName, ignored)) {
    ASSIGN_OR_RETURN(auto file, SafetensorsFile::open(dir / kSingleName));
    for (const TensorInfo& tensor : file->tensors()) checkpoint.tensors_[tensor.name] = {&tensor, file.get()};
    checkpoint.shards_.push_back(std::move(file));
    return checkpoint;
  }
  if (!std::filesystem::exists(dir / kIndexName, ignored)) {
    for (const auto& entry : std::filesystem::directory_iterator(dir, ignored)) {
      if (entry.path().extension() != ".safetensors") continue;
      return Error(ErrorCode::kNotFound, fmt::format("{} is missing, which says what {} and the other files hold",
                                                     (dir / kIndexName).string(), entry.path().filename().string()));
    }
    return Error(ErrorCode::kNotFound,
                 fmt::format("{} holds neither {} nor {}; Lantern reads safetensors checkpoints only", dir.string(),
                             kSingleName, kIndexName));
  }
  ASSIGN_OR_RETURN(const auto files, read_index(dir / kIndexName));
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [name, file_name] : files) {
    const SafetensorsFile*& shard = opened[file_name];
    if (shard == nullptr) {
      if (!std::filesystem::exists(dir / file_name, ignored)) {
        return Error(ErrorCode::kNotFound, fmt::format("{} is missing; {} says that it holds '{}'",
                                                       (dir / file_name).string(), kIndexName, name));
      }
      ASSIGN_OR_RETURN(auto file, SafetensorsFile::open(dir / file_name));
      shard = file.get();
      checkpoint.shards_.push_back(std::move(file));
    }
    const TensorInfo* tensor = shard->find(name);
    if (tensor == nullptr) {
      return Error(ErrorCode::kNotFound, fmt::format("{} holds no tensor '{}', though {} says so",
                                                     (dir / file_name).string(), name, kIndexName));
    }
    checkpoint.tensors_[name] = {tensor, shard};
  }
  for (const auto& shard : checkpoint.shards_) {
    const auto missing = std::ranges::find_if(
        shard->tensors(), [&](const TensorInfo& tensor) { return !checkpoint.contains(tensor.name); });
    if (missing != shard->tensors().end()) {
      log_warning("{} holds tensors that {} does not list ('{}' is the first); they are not used",
                  shard->path().string(), kIndexName, missing->name);
    }
  }
  return checkpoint;
}

}  // namespace lantern
