// Who computes which range of keys: the schedules that public kernels read. Formats: DeepGEMM's paged MQA logits (its
// sm90 and sm100 forms) and FlashMLA's tile scheduler.
#pragma once

#include <cstdint>
#include <type_traits>

#include "attention/plan/plan_math.h"

namespace lantern::plan {

constexpr int32_t kMqaSplitKeys = 256;  // keys of one unit of the logits kernels
constexpr int32_t kMlaBlockKeys = 64;   // keys of one block of the MLA kernels
constexpr int32_t kMlaTileInts = 8;

// Requests of the sm90 logits kernel come in atoms of at most two query rows.
LANTERN_HOST_DEVICE constexpr int32_t mqa_atoms(int32_t query_width) { return (query_width + 1) / 2; }

// `total` units in order to `workers`, all but equally.
template <class Int>
struct MqaShare {
  Int each;      // units that every worker takes
  int32_t more;  // workers that take one more

  LANTERN_HOST_DEVICE constexpr MqaShare(Int total, int32_t workers)
      : each(total / workers), more(static_cast<int32_t>(total - each * workers)) {}
};
// First unit of worker s: the last `more` workers are those that take one more.
template <class Int>
LANTERN_HOST_DEVICE constexpr Int mqa_start_sm90(const MqaShare<Int>& share, int32_t workers, int32_t s) {
  return s * share.each + max_of(0, s - (workers - share.more));
}
// First unit of worker s: the first `more` workers are those that take one more.
template <class Int>
LANTERN_HOST_DEVICE constexpr Int mqa_start_sm100(const MqaShare<Int>& share, int32_t s) {
  return s * share.each + min_of(s, share.more);
}

// Division of 0 .. 2^30 by a number > 0 that is found on the device, for quotients below 2^20: two roundings to 24 bits
// are off by less than one there, which is put right.
struct StepDivider {
  int32_t step;
  float inverse;

  LANTERN_HOST_DEVICE constexpr explicit StepDivider(int32_t by) : step(by), inverse(1.0f / static_cast<float>(by)) {}
  LANTERN_HOST_DEVICE constexpr int32_t quotient(int32_t value) const {
    const auto guess = static_cast<int32_t>(static_cast<float>(value) * inverse);
    const int32_t rest = value - guess * step;
    return guess + (rest >= step ? 1 : 0) - (rest < 0 ? 1 : 0);
  }
};
LANTERN_HOST_DEVICE constexpr int32_t quotient(int32_t value, const StepDivider& by) { return by.quotient(value); }
LANTERN_HOST_DEVICE constexpr int64_t quotient(int64_t value, int64_t by) { return value / by; }

// The parts of a line that is cut greedily (see plan_schedules_kernel.h): they start at points of step `step`, shifted
// where they meet the boundary of a request. `step`, `by_step`, `overhead` do not change.
template <class Int>
struct Lattice {
  using Divisor = std::conditional_t<sizeof(Int) == sizeof(int32_t), StepDivider, Int>;

  Int step;
  Divisor by_step;
  Int overhead;
  Int phase = 0;     // of the points, modulo step
  Int boundary = 0;  // passed last

  LANTERN_HOST_DEVICE Lattice(Int by, Int fixed) : step(by), by_step(by), overhead(fixed) {}

  LANTERN_HOST_DEVICE Int phase_of(Int point) const { return point - quotient(point, by_step) * step; }
  // Whether points of phase `at` meet a boundary of phase `of`: one lies on it or at most `overhead` before it. Without
  // a branch; a `reach` of 0 in place of overhead + 1 makes it false.
  using Unsigned = std::make_unsigned_t<Int>;
  LANTERN_HOST_DEVICE bool meet(Int at, Int of, Unsigned reach) const {
    const Int ahead = of - at;  // in (-step, step)
    const auto once = static_cast<Unsigned>(ahead), again = static_cast<Unsigned>(ahead + step);
    return (once < again ? once : again) < reach;
  }
  LANTERN_HOST_DEVICE Unsigned reach() const { return static_cast<Unsigned>(overhead) + 1; }
  // The first point at a boundary or later, of points of phase `at`, the boundary being of phase `of`.
  LANTERN_HOST_DEVICE Int first_from(Int from, Int at, Int of) const {
    const Int ahead = at - of;
    return from + (ahead < 0 ? ahead + step : ahead);
  }
  // Goes on to the next boundary and returns the first point from there on.
  LANTERN_HOST_DEVICE Int pass(Int cost) {
    boundary += cost;
    const Int of = phase_of(boundary);
    if (meet(phase, of, reach())) phase = of;
    return first_from(boundary, phase, of);
  }
};

// Keys that FlashMLA's scheduler counts for a request. A sparse kernel takes a request without keys as one key.
LANTERN_HOST_DEVICE constexpr int32_t mla_keys(int32_t seq_len, int32_t topk) {
  return topk == 0 ? seq_len : max_of(1, min_of(seq_len, topk));
}
// A request without keys still owns a block, so that somebody writes its output.
LANTERN_HOST_DEVICE constexpr int32_t mla_blocks(int32_t keys) { return max_of(1, ceil_div(keys, kMlaBlockKeys)); }

// Walks requests and parts together. `keys_of(b)` gives mla_keys of request b < requests; `tile(part)` gives the eight
// ints of a part, `splits(b)` the place of num_splits[b]. `rows` is what unused parts and the tail are written for.
template <class KeysOf, class Tile, class Splits>
LANTERN_HOST_DEVICE void mla_tiles(int32_t requests, int32_t rows, int32_t parts, int32_t overhead,
                                   const KeysOf& keys_of, const Tile& tile, const Splits& splits) {
  int64_t total = 0;
  for (int32_t b = 0; b < requests; ++b) total += mla_blocks(keys_of(b)) + overhead;
  const int64_t payload = total / parts + (total % parts != 0 ? 1 : 0) + overhead;
  int32_t request = 0, block = 0, split = 0, cumulative = 0;
  splits(0) = 0;
  for (int32_t part = 0; part < parts; ++part) {
    int32_t* t = tile(part);
    if (request == requests) {
      t[0] = rows;
      t[1] = rows - 1;
      for (int32_t i = 2; i < kMlaTileInts; ++i) t[i] = 0;
      continue;
    }
    const int32_t first = request, first_block = block, first_split = split;
    int64_t remaining = payload;
    while (request < requests) {
      const int32_t blocks = mla_blocks(keys_of(request)) - block;
      if (remaining >= blocks + overhead) {
        cumulative += split + 1;
        splits(request + 1) = cumulative;
        remaining -= blocks + overhead;
        ++request;
        block = split = 0;
        continue;
      }
      if (remaining > overhead) {
        block += static_cast<int32_t>(remaining - overhead);
        ++split;
      }
      break;
    }
    // Both ends of the part; a request that the next part goes on with ends where this part stops.
    const int32_t last = block > 0 ? request : request - 1;
    const int32_t last_keys = keys_of(last);
    const int32_t last_block = block > 0 ? block : (last_keys == 0 ? 0 : mla_blocks(last_keys));
    int32_t first_is_split = first_block > 0 ? 1 : 0;
    int32_t last_is_split = block > 0 ? 1 : 0;
    if (first == last) first_is_split = last_is_split = first_is_split | last_is_split;
    t[0] = first;
    t[1] = last;
    t[2] = first_block;
    t[3] = last_block;
    t[4] = first_split;
    t[5] = first_is_split;
    t[6] = last_is_split;
    t[7] = 0;
  }
  for (int32_t b = requests; b < rows; ++b) splits(b + 1) = cumulative;
}

}  // namespace lantern::plan
