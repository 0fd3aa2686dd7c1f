// The rows of a pass of moe(): (token, j) pairs sorted by expert, and the tiles that kernels take of them.
#pragma once

#include <utility>

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/launch.cuh"
#include "ops/cuda_scratch.h"
#include "ops/moe.h"

namespace lantern::cuda {

// Where a pass keeps things in the launch's scratch.
struct MoeScratch {
  int32_t* expert_begin;  // [num_experts + 1]: first sorted row of each expert
  int32_t* tile_expert;   // [tiles]: of each tile of up to tile_rows sorted rows; -1: no tile
  int32_t* tile_row;      // [tiles]: its first sorted row
  int32_t* tile_eight;    // [tiles]: its first eight of arranged rows, where these are
  int32_t* row_token;     // [pairs]: token of a sorted row; [arranged rows] where these are, -1: none
  int32_t* pair_row;      // [pairs]: sorted row of (token, j), or -1
  float* activation;      // [pairs, intermediate]; as bf16 by the tile kernels
  float* down;            // [pairs, hidden]; before that the arranged rows of x
  bf16_t* rounded;        // [tokens, hidden]: x, for the tile kernels
  int32_t tile_rows;
  int64_t arranged_rows;  // at most, each expert's beginning with an eight of its own; 0: none
  int64_t bytes;
};

inline MoeScratch moe_scratch(std::byte* base, const MoeParams& p, int64_t tokens, int64_t tiles, int32_t tile_rows,
                              bool wide) {
  const int64_t pairs = tokens * p.experts_per_token;
  int64_t used = 0;
  const auto take = [&](int64_t count) {
    std::byte* const at = base + used;
    used += (count * int64_t{4} + 255) / 256 * 256;
    return at;
  };
  MoeScratch s{};
  s.arranged_rows = wide ? pairs + 7 * int64_t{p.num_experts} : 0;
  s.expert_begin = reinterpret_cast<int32_t*>(take(p.num_experts + 1));
  s.tile_expert = reinterpret_cast<int32_t*>(take(tiles));
  s.tile_row = reinterpret_cast<int32_t*>(take(tiles));
  s.tile_eight = reinterpret_cast<int32_t*>(take(wide ? tiles : 0));
  s.row_token = reinterpret_cast<int32_t*>(take(std::max(pairs, s.arranged_rows)));
  s.pair_row = reinterpret_cast<int32_t*>(take(pairs));
  s.activation = reinterpret_cast<float*>(take(pairs * p.intermediate));
  s.down = reinterpret_cast<float*>(take(pairs * p.hidden));
  s.rounded = reinterpret_cast<bf16_t*>(take((tokens * p.hidden + 1) / 2));
  s.tile_rows = tile_rows;
  s.bytes = used;
  return s;
}

constexpr int kSortThreads = 1024;
constexpr int kCountWarps = 8;  // that count pairs, each those of a part of the tokens

// Sorts the pairs by expert and lists the tiles; within an expert rows keep the order of tokens. One block of
// kSortThreads, a thread for each expert. A template, so that every file may have it.
template <int kExperts>
__global__ void sort_pairs_kernel(MoeParams p, MoeScratch s, int64_t first_token, int64_t tokens, int64_t tiles) {
  static_assert(kExperts <= kSortThreads);
  __shared__ int32_t next[kCountWarps][kExperts];  // pairs of a warp; then where its next one goes
  __shared__ int32_t token_shift[kExperts];        // from a pair's row to its place in row_token
  __shared__ int32_t shared[kSortThreads / kWarp];
  ptx::begin_overlapped();
  const int32_t* ids = p.expert_ids.get() + first_token * p.experts_per_token;
  const auto pairs = static_cast<int32_t>(tokens * p.experts_per_token);
  const auto thread = static_cast<int32_t>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  for (int32_t i = thread; i < kCountWarps * kExperts; i += kSortThreads) (&next[0][0])[i] = 0;
  __syncthreads();

  // visit(i, expert, row) for each pair i of this warp, in order: row is the expert's next one, and the one behind it
  // the next then.
  const auto each_pair = [&](const auto& visit) {
    if (warp >= kCountWarps) return;
    const int32_t part = (pairs + kCountWarps * kWarp - 1) / (kCountWarps * kWarp) * kWarp;
    for (int32_t first = warp * part; first < min(pairs, (warp + 1) * part); first += kWarp) {
      const int32_t i = first + lane;
      const int32_t id = i < pairs ? ids[i] : -1, expert = id >= 0 && id < p.num_experts ? id : -1;
      const unsigned same = __match_any_sync(~0u, expert);
      const int before = __popc(same & ((1u << lane) - 1));
      if (i < pairs) visit(i, expert, expert < 0 ? -1 : next[warp][expert] + before);
      __syncwarp();
      if (expert >= 0 && before == 0) next[warp][expert] += __popc(same);
      __syncwarp();
    }
  };
  each_pair([](int32_t, int32_t, int32_t) {});
  __syncthreads();

  int32_t count = 0;
  if (thread < p.num_experts) {
    for (auto& of_warp : next) count += std::exchange(of_warp[thread], count);
  }
  const int32_t own_tiles = (count + s.tile_rows - 1) / s.tile_rows;
  int32_t rows = 0, all_tiles = 0, eights = 0;
  const int32_t begin = block_exclusive_sum(count, shared, &rows);
  const int32_t tile = block_exclusive_sum(own_tiles, shared, &all_tiles);
  const int32_t eight = block_exclusive_sum((count + 7) / 8, shared, &eights);
  const bool arranged = s.arranged_rows > 0;
  if (thread < p.num_experts) {
    s.expert_begin[thread] = begin;
    for (int32_t k = 0; k < own_tiles; ++k) {
      s.tile_expert[tile + k] = thread;
      s.tile_row[tile + k] = begin + k * s.tile_rows;
      if (arranged) s.tile_eight[tile + k] = eight + k * s.tile_rows / 8;
    }
    for (auto& of_warp : next) of_warp[thread] += begin;
    token_shift[thread] = arranged ? 8 * eight - begin : 0;
    for (int32_t k = count; arranged && k % 8 != 0; ++k) s.row_token[8 * eight + k] = -1;
  }
  if (thread == 0) s.expert_begin[p.num_experts] = rows;
  for (int64_t i = all_tiles + thread; i < tiles; i += kSortThreads) s.tile_expert[i] = -1;
  for (int64_t i = 8 * eights + thread; i < s.arranged_rows; i += kSortThreads) s.row_token[i] = -1;
  __syncthreads();

  each_pair([&](int32_t i, int32_t expert, int32_t row) {
    s.pair_row[i] = row;
    if (expert >= 0) s.row_token[row + token_shift[expert]] = i / p.experts_per_token;
  });
}

inline void sort_pairs(void* stream, const MoeParams& p, const MoeScratch& s, int64_t first_token, int64_t tokens,
                       int64_t tiles) {
  CHECK(p.num_experts <= kMaxRouterExperts, "{} experts; at most {} can be sorted", p.num_experts, kMaxRouterExperts);
  launch_overlapped(stream, "moe sort", &sort_pairs_kernel<kMaxRouterExperts>, 1, kSortThreads, 0, p, s, first_token,
                    tokens, tiles);
}

}  // namespace lantern::cuda
