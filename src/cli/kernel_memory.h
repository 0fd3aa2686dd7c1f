// What the cases of `bench kernels` are made of: device memory with random contents, never zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/mla.h"
#include "attention/step_view.h"
#include "device/stream.h"
#include "device/workspace.h"
#include "ops/quantized_matrix.h"
#include "ops/random_fill.h"

namespace lantern::cli {

// The memory of one case. The same code lays a case out twice: over a counting workspace, which only adds up, and over
// one of that size, which it then fills.
class KernelMemory {
 public:
  // Null `stream`: counts. Contents depend on `seed` alone.
  KernelMemory(Workspace& workspace, Stream* stream, uint64_t seed = 1)
      : workspace_(workspace), stream_(stream), seed_(seed) {}
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  bool counting() const { return stream_ == nullptr; }
  // Not while counting.
  Stream& stream() const { return *stream_; }

  // For results and scratch.
  template <class T>
  Fixed<T> room(int64_t count) {
    return workspace_.take<T>(count);
  }
  template <class T>
  Fixed<T> put(const std::vector<T>& values) {
    const Fixed<T> fixed = room<T>(std::ssize(values));
    if (!counting()) stream_->device().copy_to_device(fixed.data(), values.data(), values.size() * sizeof(T));
    return fixed;
  }
  // Uniform in [-width, width).
  Fixed<float> floats(int64_t count, float width = 1.0f);
  // New values for the same place.
  void refill(const Fixed<float>& floats, float width = 1.0f);
  QuantizedMatrix bf16(int64_t rows, int64_t cols);
  // e4m3 with one scale for each 128x128 block.
  QuantizedMatrix fp8(int64_t rows, int64_t cols);

 private:
  void fill(const Fixed<std::byte>& bytes, RandomValues values, float width);

  Workspace& workspace_;
  Stream* stream_;
  uint64_t seed_;
  uint64_t next_ = 0;
};

// Requests of equal length that decode; their blocks lie in random order.
struct DecodeShape {
  int32_t requests = 1;
  int32_t query_len = 1;
  int32_t context = 0;  // keys of each request, those of this step included

  int32_t tokens() const { return requests * query_len; }
  int64_t keys() const { return int64_t{requests} * context; }
  // Of a request; the pool has these and the null block.
  int32_t blocks() const { return (context + kBlockSize - 1) / kBlockSize; }
  int64_t pool_blocks() const { return int64_t{requests} * blocks() + 1; }

  static constexpr int32_t kBlockSize = 64;
};

struct DecodeStep {
  StepView view;
  std::vector<int32_t> block_table;  // the host's copy
  DecodeShape shape;
};
DecodeStep decode_step(KernelMemory& memory, const DecodeShape& shape);

// Every slot of the pool but the null block's written from random latents.
LatentCacheView latent_cache(KernelMemory& memory, const DecodeShape& shape, LatentLayout layout);
// The same for index keys in FP8; index_block_bytes() apart.
Fixed<const std::byte> index_cache(KernelMemory& memory, const DecodeShape& shape, int32_t dim);

// `top_k` random positions for each token, in ascending order.
struct KernelSelection {
  SelectionView view;
  int64_t distinct_keys = 0;  // a request's tokens may share some
};
KernelSelection random_selection(KernelMemory& memory, const DecodeStep& step, int32_t top_k);

}  // namespace lantern::cli
