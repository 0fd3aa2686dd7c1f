// For the tests of attention: paged problems with traps laid out beyond everything that may be read, and a float64
// implementation of MLA written from the formulas alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "attention/cache_layout.h"
#include "attention/mla.h"
#include "attention/step_view.h"
#include "device/device.h"
#include "device/stream.h"

namespace lantern::test {

template <class T>
Fixed<T> fixed(std::vector<T>& values) {
  return borrow_fixed(values.data(), static_cast<int64_t>(values.size()));
}
template <class T>
DevPtr<const T> in(std::vector<T>& values) {
  return Fixed<const T>(fixed(values));
}

class Host {
 public:
  explicit Host(int threads) : device(make_host_device(threads)), stream(*device), threads_(threads) {}
  int threads() const { return threads_; }
  std::unique_ptr<Device> device;
  Stream stream;

 private:
  int threads_;
};

struct RequestShape {
  int32_t seq_len = 0;    // keys after this step
  int32_t query_len = 0;  // tokens of this step
};

struct Case {
  std::string name;
  int32_t heads = 4;
  int32_t kv_lora_rank = 128;
  int32_t rope_dim = 16;
  int32_t nope_dim = 24;
  int32_t v_dim = 20;
  LatentLayout layout = LatentLayout::kF32;
  DType weight_dtype = DType::kF32;
  DType scale_dtype = DType::kF32;  // of an e4m3 weight
  std::vector<RequestShape> requests;
  int32_t padding = 0;  // padded tokens behind the others
  int32_t block_size = 64;
  bool shuffled = true;  // blocks in random order
  int32_t top_k = 0;     // 0: no selection lists
  int32_t key_offset = 0;
  uint32_t seed = 1;

  // How GoogleTest names the case.
  friend void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name; }
};

// A case made concrete: inputs in memory, caches written, everything that must not be read poisoned.
class Problem {
 public:
  explicit Problem(const Case& c);

  StepView step() const;
  LatentCacheView cache_view();
  KvUpProjection kv_b();
  SelectionView selection();

  Case shape;
  int32_t tokens = 0;
  int64_t row_bytes = 0;
  std::vector<int32_t> token_request, token_context_len, slot_mapping, block_table;
  int32_t block_table_stride = 0;
  std::vector<std::byte> cache;
  std::vector<float> q;           // [tokens, heads, nope + rope]
  std::vector<std::byte> weight;  // kv_b_proj, encoded
  std::vector<std::byte> scales;
  std::vector<double> weight_value;  // [heads * (nope + v), kv_lora_rank], decoded
  std::vector<int32_t> positions, slots, counts;
  float scale = 0.0f;

  int64_t slot(int32_t request, int32_t position) const;
  // The cache row of a position, decoded by the reference.
  std::vector<double> key(int32_t request, int32_t position) const;
};

struct Reference {
  std::vector<double> out;  // [tokens, heads, v_dim]
  std::vector<double> lse;  // [tokens, heads]
};
// Attention as the expanded formula says, in float64, over the decoded cache.
Reference reference_mla(const Problem& problem);

struct MlaResult {
  std::vector<float> out;  // [tokens, heads, v_dim]
  std::vector<float> lse;
  std::vector<float> out_latent;  // of the absorbed form
};
MlaResult run_absorbed(Problem& problem, Host& host);
MlaResult run_expanded(Problem& problem, Host& host, ExpandLatents expand = nullptr);
MlaResult run_expanded_without_amx(Problem& problem, Host& host);

// The largest |got - want| / (|want| + floor); infinity where only one of the two is finite (equal infinities are 0).
double worst_error(const std::vector<float>& got, const std::vector<double>& want, double floor);
bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

std::vector<float> random_floats(std::mt19937& generator, size_t count, float scale = 1.0f);

}  // namespace lantern::test
