// The header of a safetensors file. The input is the file's first bytes; behind them lie as many as its first byte
// says times 4.
#include <span>

#include "base/check.h"
#include "fuzz_input.h"
#include "model/safetensors.h"

using namespace lantern;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  test::FuzzInput input(data, size);
  const uint64_t behind = uint64_t{4} * input.byte();
  const std::string_view head = input.rest();
  const uint64_t file_bytes = head.size() + behind;
  const Result<SafetensorsHeader> header =
      parse_safetensors_header(std::as_bytes(std::span(head.data(), head.size())), file_bytes);
  if (!header.ok()) {
    CHECK(!header.error().message().empty(), "a refusal says nothing");
    return 0;
  }
  CHECK(header->data_begin <= file_bytes, "the data begins behind the file");
  uint64_t end = 0;
  for (const TensorInfo& tensor : header->tensors) {
    CHECK(tensor.begin == end && tensor.end >= tensor.begin, "{} leaves a hole or overlaps", tensor.name);
    end = tensor.end;
    for (const int64_t extent : tensor.shape) CHECK(extent >= 0, "{} has an extent below 0", tensor.name);
    // CVE-2025-53630, CVE-2026-7482: what is read of a tensor is what its file has of it.
    if (tensor.dtype) {
      CHECK(dtype_bytes(*tensor.dtype, static_cast<size_t>(tensor.count())) == tensor.bytes(), "{} has other bytes",
            tensor.name);
    }
  }
  CHECK(header->data_begin + end == file_bytes, "the tensors end elsewhere than the file");
  return 0;
}
