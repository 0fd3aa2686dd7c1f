#include <fmt/format.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "model/safetensors.h"

namespace lantern {
namespace json = boost::json;
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxRank = 16;

// Receives the events of the JSON parser and builds tensors from them. A DOM would keep the last of two equal names
// and hide the other; a header with two is corrupt.
class HeaderHandler {
 public:
  // Limits that the parser asks for.
  static constexpr size_t max_object_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_array_size = kMaxRank;
  static constexpr size_t max_key_size = 4096;
  static constexpr size_t max_string_size = 1 << 20;

  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
  std::string problem;  // set when an event is refused

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }

  bool on_object_begin(json::error_code& code) {
    switch (state_) {
      case State::kStart: state_ = State::kNames; return true;
      case State::kTensorValue:
        state_ = State::kFields;
        has_dtype_ = has_shape_ = has_offsets_ = false;
        return true;
      case State::kMetadataValue: state_ = State::kMetadata; return true;
      default: return refuse(code, fmt::format("an object stands where {} is expected", expectation()));
    }
  }

  bool on_object_end(size_t, json::error_code& code) {
    switch (state_) {
      case State::kNames: state_ = State::kDone; return true;
      case State::kMetadata: state_ = State::kNames; return true;
      case State::kFields:
        if (!has_dtype_ || !has_shape_ || !has_offsets_) {
          return refuse(code, fmt::format("tensor '{}' has no '{}'", tensors.back().name,
                                          !has_dtype_   ? "dtype"
                                          : !has_shape_ ? "shape"
                                                        : "data_offsets"));
        }
        state_ = State::kNames;
        return true;
      default: return refuse(code, "an object ends too early");
    }
  }

  bool on_array_begin(json::error_code& code) {
    if (state_ == State::kShape || state_ == State::kOffsets) {
      if (in_array_)
        return refuse(code, fmt::format("a list stands inside the {} of '{}'", field_, tensors.back().name));
      in_array_ = true;
      numbers_.clear();
      return true;
    }
    return refuse(code, fmt::format("a list stands where {} is expected", expectation()));
  }

  bool on_array_end(size_t, json::error_code& code) {
    in_array_ = false;
    TensorInfo& tensor = tensors.back();
    if (state_ == State::kShape) {
      for (uint64_t extent : numbers_) {
        if (extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
          return refuse(code, fmt::format("tensor '{}' has an extent of {}", tensor.name, extent));
        }
        tensor.shape.push_back(static_cast<int64_t>(extent));
      }
    } else if (numbers_.size() != 2) {
      return refuse(code, fmt::format("tensor '{}' has {} data_offsets; expected 2", tensor.name, numbers_.size()));
    } else {
      tensor.begin = numbers_[0];
      tensor.end = numbers_[1];
    }
    state_ = State::kFields;
    return true;
  }

  bool on_key_part(json::string_view part, size_t, json::error_code&) {
    text_.append(part.data(), part.size());
    return true;
  }

  bool on_key(json::string_view part, size_t, json::error_code& code) {
    text_.append(part.data(), part.size());
    const std::string key = std::exchange(text_, {});
    if (state_ == State::kMetadata) {
      metadata_key_ = key;
      return true;
    }
    if (state_ == State::kNames) {
      if (!names_.insert(key).second) return refuse(code, fmt::format("'{}' is listed twice", key));
      if (key == "__metadata__") {
        state_ = State::kMetadataValue;
      } else {
        state_ = State::kTensorValue;
        tensors.emplace_back().name = key;
      }
      return true;
    }
    // A field of a tensor.
    field_ = key;
    bool* seen = nullptr;
    if (key == "dtype") {
      state_ = State::kDtype;
      seen = &has_dtype_;
    } else if (key == "shape") {
      state_ = State::kShape;
      seen = &has_shape_;
    } else if (key == "data_offsets") {
      state_ = State::kOffsets;
      seen = &has_offsets_;
    } else {
      return refuse(code, fmt::format("tensor '{}' has an unknown field '{}'", tensors.back().name, key));
    }
    if (*seen) return refuse(code, fmt::format("tensor '{}' has two fields '{}'", tensors.back().name, key));
    *seen = true;
    return true;
  }

  bool on_string_part(json::string_view part, size_t, json::error_code&) {
    text_.append(part.data(), part.size());
    return true;
  }

  bool on_string(json::string_view part, size_t, json::error_code& code) {
    text_.append(part.data(), part.size());
    std::string value = std::exchange(text_, {});
    if (state_ == State::kMetadata) {
      metadata[metadata_key_] = std::move(value);
      return true;
    }
    if (state_ == State::kDtype) {
      tensors.back().dtype_name = std::move(value);
      state_ = State::kFields;
      return true;
    }
    return refuse(code, fmt::format("a string stands where {} is expected", expectation()));
  }

  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t value, json::string_view, json::error_code& code) {
    if (!in_array_) return refuse(code, fmt::format("a number stands where {} is expected", expectation()));
    if (value < 0) return refuse(code, fmt::format("the {} of '{}' holds {}", field_, tensors.back().name, value));
    numbers_.push_back(static_cast<uint64_t>(value));
    return true;
  }
  bool on_uint64(uint64_t value, json::string_view, json::error_code& code) {
    if (!in_array_) return refuse(code, fmt::format("a number stands where {} is expected", expectation()));
    numbers_.push_back(value);
    return true;
  }
  bool on_double(double value, json::string_view, json::error_code& code) {
    return refuse(code, fmt::format("the number {} stands where {} is expected", value, expectation()));
  }
  bool on_bool(bool, json::error_code& code) {
    return refuse(code, fmt::format("a truth value stands where {} is expected", expectation()));
  }
  bool on_null(json::error_code& code) {
    return refuse(code, fmt::format("null stands where {} is expected", expectation()));
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  enum class State {
    kStart,
    kNames,
    kTensorValue,
    kFields,
    kDtype,
    kShape,
    kOffsets,
    kMetadataValue,
    kMetadata,
    kDone
  };

  std::string expectation() const {
    const std::string of = tensors.empty() ? "" : fmt::format(" of '{}'", tensors.back().name);
    switch (state_) {
      case State::kStart: return "an object of tensors";
      case State::kTensorValue: return "the description" + of;
      case State::kDtype: return "the dtype" + of;
      case State::kShape: return "the shape" + of;
      case State::kOffsets: return "the data_offsets" + of;
      case State::kMetadataValue: return "an object of strings, __metadata__,";
      case State::kMetadata: return fmt::format("the string '{}' of __metadata__", metadata_key_);
      default: return "something else";
    }
  }

  bool refuse(json::error_code& code, std::string what) {
    problem = std::move(what);
    code = json::error::extra_data;  // any code stops the parser; `problem` is what the user sees
    return false;
  }

  State state_ = State::kStart;
  bool in_array_ = false;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  std::string text_, field_, metadata_key_;
  std::vector<uint64_t> numbers_;
  std::unordered_set<std::string> names_;
};

Error corrupt(std::string what) { return Error(ErrorCode::kCorrupt, std::move(what)); }

// Checks one tensor against the format; fills its dtype.
Status check_tensor(TensorInfo& tensor, uint64_t data_bytes) {
  if (tensor.begin > tensor.end) {
    return corrupt(
        fmt::format("tensor '{}' begins at byte {} of the data and ends at {}", tensor.name, tensor.begin, tensor.end));
  }
  if (tensor.end > data_bytes) {
    return corrupt(fmt::format("tensor '{}' ends at byte {} of the data, but the file holds only {}: it is truncated",
                               tensor.name, tensor.end, data_bytes));
  }
  uint64_t count = 1;
  for (int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(extent), &count) || count > uint64_t{1} << 56) {
      return corrupt(fmt::format("tensor '{}' of shape {} has too many elements", tensor.name, tensor.shape_text()));
    }
  }
  const Result<DType> dtype = parse_dtype(tensor.dtype_name);
  if (!dtype.ok()) return {};
  tensor.dtype = *dtype;
  const uint64_t expected = dtype_bytes(*dtype, count);
  if (expected != tensor.bytes()) {
    return corrupt(fmt::format("tensor '{}' of dtype {} and shape {} takes {} bytes, but its data_offsets span {}",
                               tensor.name, tensor.dtype_name, tensor.shape_text(), expected, tensor.bytes()));
  }
  return {};
}

// The data must be covered once: no overlap and, as the format demands, no hole.
Status check_cover(const std::vector<TensorInfo>& tensors, uint64_t data_bytes) {
  uint64_t reached = 0;
  const TensorInfo* last = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin < reached) {
      return corrupt(fmt::format("tensors '{}' and '{}' overlap in the data", last->name, tensor.name));
    }
    if (tensor.begin > reached) {
      return corrupt(fmt::format("{} bytes of the data in front of tensor '{}' belong to no tensor",
                                 tensor.begin - reached, tensor.name));
    }
    reached = tensor.end;
    last = &tensor;
  }
  if (reached != data_bytes) {
    return corrupt(fmt::format("the last {} bytes of the file belong to no tensor", data_bytes - reached));
  }
  return {};
}

}  // namespace

int64_t TensorInfo::count() const {
  int64_t product = 1;
  for (int64_t extent : shape) product *= extent;
  return product;
}

std::string TensorInfo::shape_text() const { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head, uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || head.size() < kLengthBytes) {
    return corrupt(fmt::format("the file has {} bytes, too few for a safetensors file", file_bytes));
  }
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) header_bytes |= std::to_integer<uint64_t>(head[i]) << (8 * i);
  if (header_bytes > kMaxHeaderBytes) {
    return corrupt(
        fmt::format("the header claims {} bytes, more than the {} that the format allows; this is not a "
                    "safetensors file",
                    header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > file_bytes - kLengthBytes || header_bytes > head.size() - kLengthBytes) {
    return corrupt(
        fmt::format("the header claims {} bytes, but the file has only {}: it is truncated", header_bytes, file_bytes));
  }

  SafetensorsHeader header;
  header.data_begin = kLengthBytes + header_bytes;
  json::basic_parser<HeaderHandler> parser{json::parse_options{}};
  json::error_code code;
  const char* text = reinterpret_cast<const char*>(head.data() + kLengthBytes);
  const size_t used = parser.write_some(false, text, header_bytes, code);
  HeaderHandler& handler = parser.handler();
  if (!handler.problem.empty()) return corrupt("the header is wrong: " + handler.problem);
  if (code) return corrupt(fmt::format("the header is not valid JSON at its byte {}: {}", used, code.message()));
  // The format pads with spaces; anything else behind the object is not a header.
  if (std::string_view(text, header_bytes).find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
    return corrupt("the header is not valid JSON: there is something behind the object");
  }

  header.tensors = std::move(handler.tensors);
  header.metadata = std::move(handler.metadata);
  const uint64_t data_bytes = file_bytes - header.data_begin;
  for (TensorInfo& tensor : header.tensors) RETURN_IF_ERROR(check_tensor(tensor, data_bytes));
  std::ranges::sort(header.tensors, [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  RETURN_IF_ERROR(check_cover(header.tensors, data_bytes));
  return header;
}

}  // namespace lantern
