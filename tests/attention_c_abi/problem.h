// A batch over paged caches for attention.h, and what the ops must make of it, in float64 from the header's formulas
// and formats alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "lantern/attention.h"

namespace lantern::test {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;
using Doubles = std::vector<double>;

// Memory at multiples of 64 bytes.
template <class T>
class Aligned {
 public:
  explicit Aligned(size_t count, T value = {}) : memory_(count + 64 / sizeof(T), value) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = reinterpret_cast<T*>((address + 63) / 64 * 64);
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T operator[](size_t i) const { return data_[i]; }

 private:
  std::vector<T> memory_;
  T* data_;
};

// Element i of what is indexed by size_t.
template <class Values>
auto& at(Values& values, int64_t i) {
  return values[static_cast<size_t>(i)];
}

struct Destroy {
  void operator()(lantern_attention* attention) const { lantern_attention_destroy(attention); }
};
using Attention = std::unique_ptr<lantern_attention, Destroy>;

inline Attention make_attention(int32_t threads) {
  const lantern_attention_config config{sizeof(config), LANTERN_DEVICE_CPU, threads};
  lantern_attention* made = nullptr;
  lantern_attention_create(&config, &made);
  return Attention(made);
}

inline double e4m3_value(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}
// The nearest code, the even one of two; finite input within +-448.
inline uint8_t e4m3_code(double value) {
  int best = 0;
  for (int code = 0; code < 0x7f; ++code) {
    const double error = std::fabs(std::fabs(value) - e4m3_value(code));
    const double least = std::fabs(std::fabs(value) - e4m3_value(best));
    if (error < least || (error == least && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}
inline float bf16_value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
inline uint16_t bf16_code(float value) {
  const auto below = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  const auto above = static_cast<uint16_t>(below + 1);  // further from 0
  const double to_below = std::fabs(double{value} - bf16_value(below));
  const double to_above = std::fabs(bf16_value(above) - double{value});
  return to_below < to_above || (to_below == to_above && below % 2 == 0) ? below : above;
}
// 2^ceil(log2(x)), by trying.
inline double power_of_two_above(double x) {
  double power = std::ldexp(1.0, -40);
  while (power < x) power *= 2;
  return power;
}
inline double largest(const float* values, int32_t count) {
  double amax = 0;
  for (int32_t i = 0; i < count; ++i) amax = std::max(amax, std::fabs(double{values[i]}));
  return amax;
}
template <class T>
T read_as(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
template <class T>
void append(Bytes& to, T value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof(value));
}

inline Bytes encoded_latent(int32_t format, const float* latent, int32_t rank, int32_t rope) {
  Bytes row;
  if (format == LANTERN_LATENT_FP8) {
    Floats scales;
    for (int32_t g = 0; g < rank; g += 128) {
      const double scale = power_of_two_above(std::max(largest(latent + g, 128) / 448, 1e-4));
      for (int32_t i = g; i < g + 128; ++i) row.push_back(e4m3_code(latent[i] / scale));
      scales.push_back(static_cast<float>(scale));
    }
    for (const float scale : scales) append(row, scale);
  } else {
    for (int32_t i = 0; i < rank; ++i) append(row, bf16_code(latent[i]));
  }
  for (int32_t i = rank; i < rank + rope; ++i) append(row, bf16_code(latent[i]));
  return row;
}
inline Doubles decoded_latent(int32_t format, const uint8_t* row, int32_t rank, int32_t rope) {
  Doubles values;
  const uint8_t* rotated = row + 2 * rank;
  if (format == LANTERN_LATENT_FP8) {
    rotated = row + rank + 4 * (rank / 128);
    for (int32_t i = 0; i < rank; ++i) {
      values.push_back(e4m3_value(row[i]) * double{read_as<float>(row + rank + 4 * (i / 128))});
    }
  } else {
    for (int32_t i = 0; i < rank; ++i) values.push_back(bf16_value(read_as<uint16_t>(row + 2 * i)));
  }
  for (int32_t i = 0; i < rope; ++i) values.push_back(bf16_value(read_as<uint16_t>(rotated + 2 * i)));
  return values;
}

// Requests with their last tokens, in blocks at random places of the pool, and padding behind; block 0 is nobody's.
struct Batch {
  struct Request {
    int32_t seq_len, query_len;
  };
  std::vector<Request> requests;
  int32_t block_size, num_blocks = 1, stride = 1;
  Ints token_request, token_context_len, block_table, every_slot;  // every_slot: of all keys, request by request
  lantern_attention_step step{};

  Batch(std::vector<Request> of, int32_t size_of_block, int32_t padding)
      : requests(std::move(of)), block_size(size_of_block) {
    std::mt19937 random(7);
    for (const Request& r : requests) {
      stride = std::max(stride, (r.seq_len + block_size - 1) / block_size);
      num_blocks += (r.seq_len + block_size - 1) / block_size;
    }
    Ints free_blocks(static_cast<size_t>(num_blocks) - 1);
    std::iota(free_blocks.begin(), free_blocks.end(), 1);
    std::shuffle(free_blocks.begin(), free_blocks.end(), random);
    for (int32_t b = 0; b < static_cast<int32_t>(requests.size()); ++b) {
      const Request& r = at(requests, b);
      const size_t row = block_table.size();
      block_table.resize(row + static_cast<size_t>(stride), 0);
      for (int32_t i = 0; i < r.seq_len; ++i) {
        int32_t& block = block_table[row + static_cast<size_t>(i / block_size)];
        if (i % block_size == 0) {
          block = free_blocks.back();
          free_blocks.pop_back();
        }
        every_slot.push_back(block * block_size + i % block_size);
      }
      for (int32_t j = 0; j < r.query_len; ++j) {
        token_request.push_back(b);
        token_context_len.push_back(std::max(0, r.seq_len - r.query_len + 1 + j));
      }
    }
    token_request.resize(token_request.size() + static_cast<size_t>(padding), -1);
    token_context_len.resize(token_request.size(), 0);
    step = {sizeof(step),
            tokens(),
            static_cast<int32_t>(requests.size()),
            stride,
            token_request.data(),
            token_context_len.data(),
            block_table.data()};
  }
  int32_t tokens() const { return static_cast<int32_t>(token_request.size()); }
  int32_t slot(int32_t token, int32_t position) const {
    const auto row = static_cast<size_t>(at(token_request, token) * stride);
    return block_table[row + static_cast<size_t>(position / block_size)] * block_size + position % block_size;
  }
};

inline Floats random_floats(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace lantern::test
