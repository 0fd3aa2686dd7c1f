#include "model/quantize.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fstream>
#include <mutex>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "model/config.h"
#include "model/quantize_block.h"
#include "model/safetensors.h"
#include "model/weight_source.h"
#include "model/weights.h"

namespace lantern {
namespace fs = std::filesystem;
namespace json = boost::json;
namespace {

constexpr uint64_t kCopyBytes = 8 << 20;            // one piece of a tensor that is copied
constexpr uint64_t kMaxSideFileBytes = 256u << 20;  // a larger file beside the weights is not a tokenizer

int64_t blocks(int64_t extent) { return (extent + kQuantizeBlock - 1) / kQuantizeBlock; }

bool is_quantized(const TensorInfo& tensor) {
  return tensor.shape.size() == 2 && matrix_use(tensor.name) == MatrixUse::kProjection;
}

// JSON with two spaces an indentation level, as published files have it.
void append_pretty(const json::value& value, size_t indent, std::string& text) {
  const std::string inner(indent + 2, ' ');
  if (value.is_object() && !value.get_object().empty()) {
    const char* separator = "{\n";
    for (const auto& [key, item] : value.get_object()) {
      text += fmt::format("{}{}{}: ", std::exchange(separator, ",\n"), inner, json::serialize(key));
      append_pretty(item, indent + 2, text);
    }
    text += fmt::format("\n{}}}", std::string(indent, ' '));
  } else if (value.is_array() && !value.get_array().empty()) {
    const char* separator = "[\n";
    for (const json::value& item : value.get_array()) {
      text += fmt::format("{}{}", std::exchange(separator, ",\n"), inner);
      append_pretty(item, indent + 2, text);
    }
    text += fmt::format("\n{}]", std::string(indent, ' '));
  } else {
    text += json_text(value);
  }
}

Result<std::string> quantized_config(const fs::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxSideFileBytes));
  json::error_code code;
  json::value config = json::parse(text, code);
  if (code || !config.is_object()) {
    return Error(ErrorCode::kIo, fmt::format("{} has changed since it was read first", path.string()));
  }
  config.get_object()["quantization_config"] = {{"quant_method", "fp8"},
                                                {"fmt", "e4m3"},
                                                {"activation_scheme", "dynamic"},
                                                {"weight_block_size", {kQuantizeBlock, kQuantizeBlock}},
                                                {"scale_fmt", "ue8m0"}};
  std::string pretty;
  append_pretty(config, 0, pretty);
  pretty += "\n";
  return pretty;
}

// A directory beside the target that becomes it by one rename, or goes away.
class StagingDir {
 public:
  static Result<std::unique_ptr<StagingDir>> create(const fs::path& target) {
    std::error_code failed;
    if (fs::exists(fs::symlink_status(target, failed))) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{} exists already; remove it or name another directory", target.string()));
    }
    std::unique_ptr<StagingDir> staging(new StagingDir);
    // "out/" names the directory "out".
    staging->target_ = target.has_filename() ? target : target.parent_path();
    const fs::path parent = fs::absolute(staging->target_, failed).parent_path();
    fs::create_directories(parent, failed);
    staging->path_ = parent / fmt::format(".{}.partial-{}", staging->target_.filename().string(), ::getpid());
    fs::remove_all(staging->path_, failed);
    if (!fs::create_directory(staging->path_, failed)) {
      const fs::path path = std::exchange(staging->path_, fs::path());
      return Error(ErrorCode::kIo, fmt::format("{} cannot be created: {}", path.string(), failed.message()));
    }
    return staging;
  }
  ~StagingDir() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }
  Status commit() {
    std::error_code failed;
    fs::rename(path_, target_, failed);
    if (failed) {
      return Error(ErrorCode::kIo,
                   fmt::format("{} cannot be renamed to {}: {}", path_.string(), target_.string(), failed.message()));
    }
    path_.clear();
    return {};
  }

 private:
  StagingDir() = default;
  fs::path path_, target_;
};

// Tokenizer, generation settings, templates, licences: everything beside the weights that is not a weight.
Status copy_side_files(const fs::path& source, const fs::path& target) {
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(source, failed)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    const bool weights = extension == ".safetensors" || extension == ".bin" || extension == ".pt" ||
                         extension == ".pth" || extension == ".gguf" || name.ends_with(".index.json");
    std::error_code ignored;
    if (weights || name == "config.json" || name.starts_with(".") || !entry.is_regular_file(ignored) ||
        entry.file_size(ignored) > kMaxSideFileBytes) {
      continue;
    }
    std::error_code copy_failed;
    fs::copy_file(entry.path(), target / name, copy_failed);
    if (copy_failed) {
      return Error(ErrorCode::kIo, fmt::format("{} cannot be copied to {}: {}", entry.path().string(), target.string(),
                                               copy_failed.message()));
    }
  }
  if (failed) return Error(ErrorCode::kIo, fmt::format("{} cannot be listed: {}", source.string(), failed.message()));
  return {};
}

// Declares what the target will hold; refuses what cannot be quantised.
Status declare_all(const Checkpoint& checkpoint, SafetensorsWriter& writer, QuantizeSummary& summary) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const TensorInfo& info = *tensor.info;
    const std::string where = tensor.file->path().string();
    if (!info.dtype) {
      return Error(ErrorCode::kUnsupported,
                   fmt::format("{}: '{}' has dtype {}, which Lantern does not know", where, name, info.dtype_name));
    }
    ++summary.tensors;
    summary.bytes_before += static_cast<int64_t>(info.bytes());
    if (!is_quantized(info)) {
      summary.bytes_after += static_cast<int64_t>(info.bytes());
      RETURN_IF_ERROR(writer.declare(name, *info.dtype, info.shape));
      continue;
    }
    if (*info.dtype != DType::kBF16 && *info.dtype != DType::kF16 && *info.dtype != DType::kF32) {
      return Error(
          ErrorCode::kUnsupported,
          fmt::format("{}: '{}' is {}; only BF16, F16 and F32 weights can be quantised", where, name, info.dtype_name));
    }
    ++summary.quantized_tensors;
    const int64_t rows = info.shape[0];
    const int64_t cols = info.shape[1];
    summary.bytes_after += rows * cols + 4 * blocks(rows) * blocks(cols);
    RETURN_IF_ERROR(writer.declare(name, DType::kF8E4M3, info.shape));
    RETURN_IF_ERROR(writer.declare(name + "_scale_inv", DType::kF32, {blocks(rows), blocks(cols)}));
  }
  return {};
}

Status check_space(const fs::path& dir, int64_t bytes) {
  std::error_code failed;
  const fs::space_info space = fs::space(dir, failed);
  if (failed || space.available >= static_cast<uintmax_t>(bytes)) return {};
  return Error(ErrorCode::kIo, fmt::format("{} has {:.2f} GiB free, but the quantised weights take {:.2f} GiB",
                                           dir.parent_path().string(), static_cast<double>(space.available) / kGiB,
                                           static_cast<double>(bytes) / kGiB));
}

Status copy_tensor(const Checkpoint::Tensor& tensor, SafetensorsWriter& writer) {
  const std::span<const std::byte> data = tensor.data();
  for (uint64_t begin = 0; begin < data.size(); begin += kCopyBytes) {
    RETURN_IF_ERROR(
        writer.write(tensor.info->name, data.subspan(begin, std::min(kCopyBytes, data.size() - begin)), begin));
  }
  return {};
}

// Strips of 128 rows, one a thread at a time.
Status quantize_tensor(const Checkpoint::Tensor& tensor, SafetensorsWriter& writer, ThreadPool& threads) {
  const TensorInfo& info = *tensor.info;
  const int64_t rows = info.shape[0];
  const int64_t cols = info.shape[1];
  const auto row_bytes = static_cast<int64_t>(dtype_bytes(*info.dtype, static_cast<size_t>(cols)));
  std::vector<float> scales(static_cast<size_t>(blocks(rows) * blocks(cols)));
  std::mutex mutex;
  std::optional<Error> problem;
  threads.parallel_for(blocks(rows), 1, [&](int64_t begin, int64_t end, int) {
    std::vector<std::byte> codes;
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t first = strip * kQuantizeBlock;
      const int64_t count = std::min<int64_t>(kQuantizeBlock, rows - first);
      codes.resize(static_cast<size_t>(count * cols));
      const int64_t bad = quantize_strip(tensor.data().data() + first * row_bytes, *info.dtype, count, cols,
                                         codes.data(), scales.data() + strip * blocks(cols));
      Status status;
      if (bad >= 0) {
        status = Error(ErrorCode::kCorrupt,
                       fmt::format("{}: '{}' holds a value that is not finite at [{}, {}]; it cannot be quantised",
                                   tensor.file->path().string(), info.name, first + bad / cols, bad % cols));
      } else {
        status = writer.write(info.name, codes, static_cast<uint64_t>(first * cols));
      }
      if (!status.ok()) {
        const std::scoped_lock lock(mutex);
        problem = std::move(status).error();
        return;
      }
    }
  });
  if (problem) return *std::move(problem);
  return writer.write(info.name + "_scale_inv", std::as_bytes(std::span(scales)));
}

}  // namespace

Result<QuantizeSummary> quantize_checkpoint(const fs::path& source_dir, const fs::path& target_dir,
                                            const QuantizeOptions& options, const QuantizeProgress& progress) {
  ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(source_dir));
  if (!config.quantization.method.empty()) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{} is quantised already ({}); quantise the unquantised checkpoint", source_dir.string(),
                             config.quantization.method));
  }
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(source_dir));
  ASSIGN_OR_RETURN(const auto staging, StagingDir::create(target_dir));
  QuantizeSummary summary;
  {
    SafetensorsWriter writer(staging->path(), {.max_shard_bytes = options.max_shard_bytes});
    RETURN_IF_ERROR(declare_all(checkpoint, writer, summary));
    if (summary.quantized_tensors == 0) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{} holds no weight that could be quantised", source_dir.string()));
    }
    RETURN_IF_ERROR(check_weights(checkpoint, config));
    RETURN_IF_ERROR(check_space(staging->path(), summary.bytes_after));
    RETURN_IF_ERROR(writer.begin());
    ThreadPool threads(options.threads);
    int64_t done = 0;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      RETURN_IF_ERROR(is_quantized(*tensor.info) ? quantize_tensor(tensor, writer, threads)
                                                 : copy_tensor(tensor, writer));
      done += static_cast<int64_t>(tensor.info->bytes());
      if (progress && !progress(done, summary.bytes_before)) {
        return Error(ErrorCode::kIo,
                     fmt::format("stopped before {} was whole; nothing is left of it", target_dir.string()));
      }
    }
    RETURN_IF_ERROR(writer.finish());
  }
  ASSIGN_OR_RETURN(const std::string config_text, quantized_config(source_dir / "config.json"));
  std::ofstream config_file(staging->path() / "config.json", std::ios::binary);
  config_file << config_text;
  config_file.close();
  if (!config_file) {
    return Error(ErrorCode::kIo, fmt::format("{}/config.json cannot be written", staging->path().string()));
  }
  RETURN_IF_ERROR(copy_side_files(source_dir, staging->path()));
  RETURN_IF_ERROR(staging->commit());
  return summary;
}

}  // namespace lantern
