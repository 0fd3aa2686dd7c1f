// The product of a tile of weight rows with many rows of x on Hopper's warpgroup products, with the sums of WeightTile
// (weight_tile.cuh), bit by bit: the same columns in each step, the same runs of K, added in the same order. How runs
// are spread over warps there is here an order in time.
//
// A block has two warpgroups of 64 outputs each and a third that brings them weights and rows of x (arranged_rows.cuh)
// in a ring of stages in shared memory. Weights go on into registers, as WeightTile's do; the products read x where it
// lies. Where there would be too few blocks, those of a cluster share out the runs of K.
#pragma once

#include "ops/arranged_rows.cuh"

namespace lantern::cuda {

constexpr int kWideWorkers = 256;  // threads that multiply
constexpr int kWideLoaders = 128;
constexpr int kWideThreads = kWideWorkers + kWideLoaders;
constexpr int kWideOutputs = 128;  // of a block
// Registers a thread; 168 are launched with.
constexpr int kWideLoaderRegisters = 56, kWideWorkerRegisters = 224;

template <class T, int kRows>
struct WideShape {
  static constexpr bool kScaled = sizeof(T) == 1;
  static constexpr int kUnit = kScaled ? 2 : 1;  // chunks between two looks at the sums: 128 bytes of a weight row
  static constexpr int kUnitBytes = kUnit * kAtomBytes;
  static constexpr int kRowBytes = kRows / 8 * kUnitBytes, kWeightBytes = kWideOutputs * 128;
  static constexpr int kStageBytes = kRowBytes + kWeightBytes;
  static constexpr int kSumBytes = kRows * kWideOutputs * 4;
  static constexpr int kSlots = kRows > 64 ? 1 : 2;  // runs whose sums a block can keep apart
  static constexpr int kStages = ((226 << 10) - kSlots * kSumBytes - 1024) / kStageBytes;
  // In shared memory: the ring, sums of runs, barriers, and what it takes to begin at a multiple of 1024.
  static constexpr int kSums = kStages * kStageBytes;
  static constexpr int kBarriers = kSums + kSlots * kSumBytes;
  static constexpr int kBytes = kBarriers + 2 * kStages * 8 + 1024;
  static_assert(kStages >= 3 && kBytes <= 227 << 10);
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The places of a block's shared memory.
template <class T, int kRows>
struct WideMemory {
  using Shape = WideShape<T, kRows>;
  uint32_t base;

  __device__ explicit WideMemory(const std::byte* unaligned)
      : base((ptx::shared_address(unaligned) + 1023) / 1024 * 1024) {}
  __device__ uint32_t rows(int stage) const { return base + static_cast<uint32_t>(stage * Shape::kStageBytes); }
  // Piece `piece` of 16 bytes of a weight row: permuted so that two rows of lanes of a warp meet in no bank.
  __device__ uint32_t weights(int stage, int row, int piece) const {
    return rows(stage) +
           static_cast<uint32_t>(Shape::kRowBytes + row * 128 + (piece ^ row % 2 * (Shape::kScaled ? 4 : 1)) * 16);
  }
  __device__ uint32_t full(int stage) const { return base + static_cast<uint32_t>(Shape::kBarriers + 8 * stage); }
  __device__ uint32_t empty(int stage) const { return full(Shape::kStages + stage); }
  // Where four values of each worker lie.
  __device__ uint32_t sums(int slot, int i) const {
    return base + static_cast<uint32_t>(Shape::kSums + slot * Shape::kSumBytes) +
           (static_cast<uint32_t>(i) * kWideWorkers + threadIdx.x) * 16;
  }
  __device__ float4& own_sums(int slot, int i) const {
    return *static_cast<float4*>(__cvta_shared_to_generic(sums(slot, i)));
  }
  // By the whole block.
  __device__ void init_barriers() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Shape::kStages; ++i) {
        ptx::init_barrier(full(i), kWideLoaders + 1);
        ptx::init_barrier(empty(i), kWideWorkers);
      }
      ptx::fence_shared_for_products();
    }
    __syncthreads();
  }
};

// A place in the ring, and the parity of its barriers' phases.
template <int kStages>
struct WideStage {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Which runs of K a block has: those of the `rank`th of `spread` equal parts.
struct WideRuns {
  int rank, spread, splits;  // splits: runs in all, a multiple of spread; both are powers of two

  __device__ int each() const { return splits / spread; }
  __device__ int begin() const { return each() * rank; }
  __device__ int end() const { return begin() + each(); }
  // The first unit of a run, of so many.
  __device__ int unit(int run, int units) const { return units * run >> (__ffs(splits) - 1); }
};

// The rows of a weight of which worker warp w, lanes of g, multiplies one: row(w) = first + w * step + g, as its
// `half`th (0, 1: rows g and g + 8 of its products).
struct WideWeight {
  const QuantizedMatrix& matrix;
  int64_t first;
  int step;

  __device__ int64_t scales(int warp) const {
    const QuantizedMatrix& w = matrix;
    return w.block_rows > 0 ? min(first + warp * step, w.rows - 1) / w.block_rows * w.scale_row_stride : 0;
  }
};

// By the third warpgroup: units of weights, `half(i)` being its halves, and of `eights` times eight rows from `x` on,
// of `chunks` chunks.
template <class T, int kRows, class Half>
__device__ void bring_units(const Half& half, const std::byte* x, int eights, int chunks, const WideRuns& runs,
                            const WideMemory<T, kRows>& m) {
  using Shape = WideShape<T, kRows>;
  constexpr int kWorkerWarps = kWideWorkers / kWarp;
  const auto thread = static_cast<int>(threadIdx.x) - kWideWorkers;
  const int units = chunks / Shape::kUnit, first = runs.unit(runs.begin(), units);
  const int count = runs.unit(runs.end(), units) - first;
  // A piece of one row of each worker warp; rows behind the end are the last that there is.
  const int row = thread / 8, piece = thread % 8;
  const WideWeight weight = half(row / 8);
  const QuantizedMatrix& w = weight.matrix;
  const int64_t first_row = min(weight.first + row % 8, w.rows - 1);
  const auto last_warp = static_cast<int>(min(int64_t{kWorkerWarps - 1}, (w.rows - 1 - first_row) / weight.step));
  const int64_t warp_bytes = weight.step * w.row_bytes;
  const std::byte* from = w.data.get() + first_row * w.row_bytes + int64_t{first} * 128 + piece * 16;
  const std::byte* eight = x + (int64_t{thread} * chunks + first * Shape::kUnit) * kAtomBytes;

  WideStage<Shape::kStages> at;
  for (int i = 0; i < count; ++i, at.advance(), from += 128, eight += Shape::kUnitBytes) {
    ptx::wait_barrier(m.empty(at.stage), at.parity ^ 1);
    const uint32_t full = m.full(at.stage);
    if (thread == 0) ptx::arrive_and_expect(full, static_cast<uint32_t>(eights * Shape::kUnitBytes));
    __syncwarp();
    if (thread < eights) {
      ptx::copy_bulk(m.rows(at.stage) + static_cast<uint32_t>(thread * Shape::kUnitBytes), eight, Shape::kUnitBytes,
                     full);
    }
    const std::byte* of_warp = from;
#pragma unroll
    for (int warp = 0; warp < kWorkerWarps; ++warp) {
      ptx::copy_16(m.weights(at.stage, 16 * warp + row, piece), of_warp);
      if (warp < last_warp) of_warp += warp_bytes;
    }
    ptx::arrive_with_copies(full);
  }
  __syncwarp();
}

// The product of a worker's outputs: of rows g and g + 8 of its warp's 16.
template <class T, int kRows>
class WideTile {
  using Shape = WideShape<T, kRows>;
  static constexpr int kUnit = Shape::kUnit;
  static constexpr bool kScaled = Shape::kScaled;
  static constexpr int kValues = kRows / 2;  // of a thread

 public:
  template <class Half>
  __device__ WideTile(const Half& half, int64_t cols, const WideRuns& runs)
      : runs_(runs), units_(static_cast<int>(cols) / (kUnit * kChunk)) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const WideWeight weight = half(h);
      const QuantizedMatrix& w = weight.matrix;
      global_scale_[h] = w.global_scale;
      scale_dtype_[h] = w.scale_dtype;
      scales_[h] = w.scales.get() +
                   weight.scales(static_cast<int>(threadIdx.x) / kWarp) * (w.scale_dtype == DType::kF8E8M0 ? 1 : 4);
    }
  }

  // The sums of the block's runs to shared memory: all in the first slot, or each in one of its own.
  __device__ void multiply(const WideMemory<T, kRows>& m) {
    int run = runs_.begin(), unit = runs_.unit(run, units_), run_end = runs_.unit(run + 1, units_);
    const int end = runs_.unit(runs_.end(), units_);
    load_scales(min(unit, units_ - 1));
    for (; unit < end; ++unit) {
      for (; unit == run_end; run_end = runs_.unit(++run + 1, units_)) end_run(run, m);
      add(min(unit + 1, units_ - 1), m);
    }
    for (; run < runs_.end(); ++run) end_run(run, m);
  }

  // write(i, v) for the values that this block of the cluster is to write: v.x to v.w are of output g, rows 8 i + 2 c
  // and + 1, then of output g + 8.
  template <class Write>
  __device__ void reduce(const WideMemory<T, kRows>& m, const Write& write) const {
    constexpr int kQuads = kValues / 4;
    if (runs_.spread == 1) {
#pragma unroll 4
      for (int i = 0; i < kQuads; ++i) write(i, m.own_sums(0, i));
      return;
    }
    ptx::sync_cluster();
    for (int i = kQuads * runs_.rank / runs_.spread; i < kQuads * (runs_.rank + 1) / runs_.spread; ++i) {
      float4 sum{};
      for (int run = 0; run < runs_.splits; ++run) {
        const float4 v = ptx::load_in_cluster(
            ptx::cluster_address(m.sums(run % runs_.each(), i), static_cast<uint32_t>(run / runs_.each())));
        sum = run == 0 ? v : make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
      }
      write(i, sum);
    }
  }

 private:
  __device__ float run_sum(int i) const {
    if constexpr (kScaled) return total_[i];
    // The first product adds to nothing, where WeightTile's adds to 0: 0 is what -0 becomes there.
    return (begins_ ? 0.0f : part_[i] + 0.0f) * global_scale_[i % 4 / 2];
  }

  __device__ void load_scales(int unit) {
    if constexpr (kScaled) {
#pragma unroll
      for (int h = 0; h < 2; ++h) next_scale_[h] = scale_element(scales_[h], scale_dtype_[h], unit) * global_scale_[h];
    }
  }

  __device__ void add(int next, const WideMemory<T, kRows>& m) {
    const auto lane = static_cast<int>(threadIdx.x) % kWarp;
    const int row = static_cast<int>(threadIdx.x) / kWarp * 16 + lane / 4, c = lane % 4;
    const float scale[2] = {next_scale_[0], next_scale_[1]};
    load_scales(next);
    uint32_t weights[kUnit][4][4];
    ptx::wait_barrier(m.full(at_.stage), at_.parity);
#pragma unroll
    for (int u = 0; u < kUnit; ++u) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        Strip<T> strip;
#pragma unroll
        for (int i = 0; i < Strip<T>::kVectors; ++i) {
          const int piece = kScaled ? 4 * u + c : 2 * c + i;
          strip.vector[i] = ptx::load_shared_16(m.weights(at_.stage, row + 8 * h, piece));
        }
#pragma unroll
        for (int step = 0; step < 4; ++step) strip.get(step, weights[u][step][h], weights[u][step][2 + h]);
      }
      // The sums are on their way from the second chunk on.
      if (u == 0) {
        ptx::begin_products(part_, weights[u][0], weights[u][1], weights[u][2], weights[u][3]);
      } else {
        ptx::begin_products(weights[u][0], weights[u][1], weights[u][2], weights[u][3]);
      }
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const uint64_t rows = ptx::matrix_descriptor(
            m.rows(at_.stage) + static_cast<uint32_t>(u * kAtomBytes + 32 * step), 0, Shape::kUnitBytes);
        ptx::product_64xn<true>(part_, weights[u][step], rows, u > 0 || step > 0 || (!kScaled && !begins_));
      }
      ptx::end_product_group();
    }
    ptx::wait_for_products(part_);
#pragma unroll
    for (int u = 0; u < kUnit; ++u) {
#pragma unroll
      for (int step = 0; step < 4; ++step) ptx::keep_before(weights[u][step]);
    }
    ptx::arrive(m.empty(at_.stage));
    at_.advance();
    begins_ = false;
    if constexpr (kScaled) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) total_[i] = __fmaf_rn(part_[i], scale[i % 4 / 2], total_[i]);
    }
  }

  __device__ void end_run(int run, const WideMemory<T, kRows>& m) {
    const int slot = runs_.spread == 1 ? 0 : run - runs_.begin();
    const bool first = runs_.spread > 1 || run == 0;
#pragma unroll
    for (int i = 0; i < kValues / 4; ++i) {
      float4 sum = first ? float4{} : m.own_sums(slot, i);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float value = run_sum(4 * i + j);
        (&sum.x)[j] = first ? value : (&sum.x)[j] + value;
        if constexpr (kScaled) total_[4 * i + j] = 0;
      }
      m.own_sums(slot, i) = sum;
    }
    begins_ = true;
  }

  WideRuns runs_;
  int units_;
  WideStage<Shape::kStages> at_;
  const std::byte* scales_[2];
  DType scale_dtype_[2];
  float global_scale_[2], next_scale_[2];
  bool begins_ = true;                       // nothing of the run is added yet
  float part_[kValues];                      // of the unit; of the run where there are no scales
  float total_[kScaled ? kValues : 1] = {};  // of the run
};

#endif

}  // namespace lantern::cuda
