// Who computes which range of keys: the schedules that public kernels read. Formats: DeepGEMM's paged MQA logits (its
// sm90 and sm100 forms) and FlashMLA's tile scheduler.
#pragma once

#include <cstdint>

#include "attention/plan/plan_math.h"

namespace lantern::plan {

constexpr int32_t kMqaSplitKeys = 256;  // keys of one unit of the logits kernels
constexpr int32_t kMlaBlockKeys = 64;   // keys of one block of the MLA kernels
constexpr int32_t kMlaTileInts = 8;

// Requests of the sm90 logits kernel come in atoms of at most two query rows.
LANTERN_HOST_DEVICE constexpr int32_t mqa_atoms(int32_t query_width) {
  return ceil_div(query_width, min_of(query_width, 2));
}

// First unit of worker s: the last total % workers of the workers take one unit more.
LANTERN_HOST_DEVICE constexpr int64_t mqa_start_sm90(int64_t total, int32_t workers, int32_t s) {
  const int64_t rest = total % workers;
  const int64_t extra = s - (workers - rest);
  return s * (total / workers) + (extra > 0 ? extra : 0);
}

// First unit of worker s: the first total % workers of the workers take one unit more.
LANTERN_HOST_DEVICE constexpr int64_t mqa_start_sm100(int64_t total, int32_t workers, int32_t s) {
  const int64_t rest = total % workers;
  return s * (total / workers) + (s < rest ? s : rest);
}

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
