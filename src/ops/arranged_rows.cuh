// Rows of x as bf16 in global memory, laid out as the warpgroup products want them in shared memory: for each eight
// rows and each chunk of kChunk columns 1024 neighbouring bytes, of which pieces of any number of rows can be copied
// whole. A row has 128 of them, pieces of 16 permuted by the row's number modulo 8; within a chunk the columns are in
// the order in which WeightTile multiplies them: step s takes columns 16 c + 4 s .. + 3 of the lanes c = 0..3.
#pragma once

#include "ops/weight_tile.cuh"

namespace lantern::cuda {

constexpr int kAtomBytes = 1024;  // of eight rows and a chunk

inline int64_t arranged_rows_bytes(int64_t rows, int64_t cols) { return (rows + 7) / 8 * 8 * cols * 2; }

// Where the pair of columns (col, col + 1) of a row lies; col is even.
__host__ __device__ inline int64_t arranged_at(int64_t row, int64_t col, int64_t cols) {
  const int64_t atom = row / 8 * (cols / kChunk) + col / kChunk;
  const auto r = static_cast<int>(row % 8), in_chunk = static_cast<int>(col % kChunk);
  const int c = in_chunk / 16, piece = in_chunk % 16 / 2;  // piece 2 s + h holds the columns 16 c + 4 s + 2 h, + 1
  return atom * kAtomBytes + r * 128 + (piece ^ r) * 16 + c * 4;
}

struct ArrangeRowsParams {
  const float* x;
  int64_t x_stride;       // a multiple of 4
  const int32_t* x_rows;  // optional; negative: no such row
  std::byte* out;         // arranged_rows_bytes()
  int64_t rows;
  int64_t cols;  // a multiple of kChunk
  RowCount real_rows;
};

// A thread for each piece of 16 bytes.
template <int kThreads>
__global__ void arrange_rows_kernel(ArrangeRowsParams p) {
  ptx::begin_overlapped();
  const int64_t r = blockIdx.y, at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t col = at / 8 * kChunk + at % 8 * 2;
  if (col >= p.cols || r >= p.real_rows.of(p.rows)) return;
  const int64_t row = p.x_rows != nullptr ? p.x_rows[r] : r;
  if (row < 0) return;
  const float* const from = p.x + row * p.x_stride + col;
  uint32_t pairs[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float2 v = *reinterpret_cast<const float2*>(from + 16 * c);
    pairs[c] = ptx::pack_bf16(v.x, v.y);
  }
  *reinterpret_cast<uint4*>(p.out + arranged_at(r, col, p.cols)) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

inline void arrange_rows(void* stream, const ArrangeRowsParams& p) {
  constexpr int kThreads = 256;
  launch_overlapped(stream, "arrange rows", &arrange_rows_kernel<kThreads>,
                    dim3(blocks_for(p.cols / 8, kThreads), static_cast<unsigned>(p.rows)), kThreads, 0, p);
}

}  // namespace lantern::cuda
