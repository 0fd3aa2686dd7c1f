// The choice from rows of scores: exactly the top_k largest, the lower position first among equals, in ascending order
// of positions. A block for each row, which it keeps in shared memory, piece by piece where it is longer. The threshold
// is found by counting: the range of the scores is cut into 2048 equal parts, the part with the k-th largest becomes
// the range, until it is one value.
#include "attention/cuda_launches.h"
#include "attention/indexer_cuda.cuh"
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/float_order.cuh"
#include "device/cuda/launch.cuh"

namespace lantern::cuda {
namespace {

constexpr unsigned kThreads = 1024;
constexpr int32_t kBins = 2048;
constexpr int32_t kMaxPiece = 48 << 10;  // scores in shared memory at a time

struct ChooseShared {
  uint32_t counts[kBins];
  uint32_t words[kThreads / kWarp];
  uint64_t sums[kThreads / kWarp];
  uint32_t bin;
  int32_t left;
};

class Row {
 public:
  __device__ Row(const float* scores, int32_t count, uint32_t* orders, int32_t piece)
      : scores_(scores), count_(count), orders_(orders), piece_(piece) {}

  // function(first position, orders, count) for each piece, by all threads, in order.
  template <class Function>
  __device__ void for_each_piece(const Function& function) {
    for (int32_t first = 0; first < count_; first += piece_) {
      const int32_t count = min(piece_, count_ - first);
      if (loaded_ != first) {
        __syncthreads();  // the earlier piece is done with
        for (auto i = static_cast<int32_t>(threadIdx.x) * 4; i < count; i += static_cast<int32_t>(kThreads) * 4) {
          // Rows are of a multiple of four floats.
          const float4 v = *reinterpret_cast<const float4*>(scores_ + first + i);
          *reinterpret_cast<uint4*>(orders_ + i) =
              make_uint4(order_of(v.x), order_of(v.y), order_of(v.z), order_of(v.w));
        }
        loaded_ = first;
        __syncthreads();
      }
      function(first, static_cast<const uint32_t*>(orders_), count);
    }
  }

 private:
  const float* scores_;
  int32_t count_;
  uint32_t* orders_;
  int32_t piece_;
  int32_t loaded_ = -1;
};

// The order of the k-th largest; *left: how many of its equals are among the k; *numbers: whether no score is NaN.
__device__ uint32_t find_threshold(Row& row, int32_t k, ChooseShared& s, int32_t* left, bool* numbers) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  uint32_t low = ~0u, high = 0;
  row.for_each_piece([&](int32_t, const uint32_t* orders, int32_t count) {
    for (int32_t i = thread; i < count; i += static_cast<int32_t>(kThreads)) {
      low = min(low, orders[i]);
      high = max(high, orders[i]);
    }
  });
  low = block_reduce(low, ~0u, s.words, [](uint32_t a, uint32_t b) { return min(a, b); });
  high = block_reduce(high, 0u, s.words, [](uint32_t a, uint32_t b) { return max(a, b); });
  *numbers = low >= order_of(-INFINITY) && high <= order_of(INFINITY);
  *left = k;
  while (low < high) {
    const int shift = max(0, 32 - __clz(static_cast<int>(high - low)) - 11);
    for (int32_t b = thread; b < kBins; b += static_cast<int32_t>(kThreads)) s.counts[b] = 0;
    __syncthreads();
    row.for_each_piece([&](int32_t, const uint32_t* orders, int32_t count) {
      for (int32_t i = thread; i < count; i += static_cast<int32_t>(kThreads)) {
        const uint32_t order = orders[i];
        if (order >= low && order <= high) atomicAdd(s.counts + ((order - low) >> shift), 1u);
      }
    });
    __syncthreads();
    // Two bins for each thread, from the largest on.
    const int32_t bin = kBins - 1 - 2 * thread;
    const auto first = static_cast<int32_t>(s.counts[bin]), second = static_cast<int32_t>(s.counts[bin - 1]);
    uint32_t total = 0;
    const auto before =
        static_cast<int32_t>(block_exclusive_sum(static_cast<uint32_t>(first + second), s.words, &total));
    if (before < *left && *left <= before + first + second) {
      const bool in_first = *left <= before + first;
      s.bin = static_cast<uint32_t>(in_first ? bin : bin - 1);
      s.left = *left - before - (in_first ? 0 : first);
    }
    __syncthreads();
    low += s.bin << shift;
    high = min(high, low + ((1u << shift) - 1));
    *left = s.left;
  }
  return low;
}

__global__ void __launch_bounds__(kThreads)
    choose_kernel(IndexSelectParams p, IndexScratch scratch, int32_t first_token, int32_t piece) {
  ptx::begin_overlapped();
  extern __shared__ __align__(16) uint32_t orders[];
  __shared__ ChooseShared s;
  const auto g = static_cast<int32_t>(blockIdx.x);
  const int32_t t = first_token + g;
  int32_t* positions = p.positions.get() + int64_t{t} * p.top_k;
  int32_t* slots = p.slots.get() + int64_t{t} * p.top_k;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  constexpr auto kStep = static_cast<int32_t>(kThreads);
  const int32_t context = context_len(p, t);
  const int32_t taken = min(context, p.top_k);
  if (must_score(p, t)) {
    const auto keys = static_cast<int32_t>(min(int64_t{context}, scratch.row_stride));
    Row row(scratch.scores + g * scratch.row_stride, keys, orders, piece);
    int32_t equals = 0;
    bool numbers = true;
    const uint32_t threshold = find_threshold(row, p.top_k, s, &equals, &numbers);
    for (int32_t h = thread; p.attention_q && !numbers && h < p.attention_heads; h += kStep) {
      p.attention_q[t * p.q_token_stride + h * p.q_head_stride] = NAN;
    }
    int32_t above = 0, equal = 0;  // before the piece
    row.for_each_piece([&](int32_t first, const uint32_t* values, int32_t count) {
      // A run of neighbours for each thread, of an odd length: no two lanes read one bank.
      const int32_t length = (count + kStep - 1) / kStep | 1;
      const int32_t begin = min(count, thread * length), end = min(count, begin + length);
      uint64_t own = 0;
      for (int32_t i = begin; i < end; ++i) {
        own += static_cast<uint64_t>(values[i] > threshold) | static_cast<uint64_t>(values[i] == threshold) << 32;
      }
      uint64_t total = 0;
      const uint64_t before = block_exclusive_sum(own, s.sums, &total);
      int32_t a = above + static_cast<int32_t>(before & 0xffffffffu), e = equal + static_cast<int32_t>(before >> 32);
      for (int32_t i = begin; i < end; ++i) {
        if (values[i] > threshold) {
          positions[a++ + min(e, equals)] = first + i;
        } else if (values[i] == threshold) {
          if (e < equals) positions[a + e] = first + i;
          ++e;
        }
      }
      above += static_cast<int32_t>(total & 0xffffffffu);
      equal += static_cast<int32_t>(total >> 32);
    });
  } else {
    for (int32_t i = thread; i < taken; i += kStep) positions[i] = context - taken + i;
  }
  __syncthreads();
  for (int32_t i = thread; i < p.top_k; i += kStep) {
    if (i >= taken) positions[i] = -1;
    slots[i] = i < taken ? static_cast<int32_t>(p.step.slot_of(table_of(p, t), positions[i])) : -1;
  }
  if (thread == 0) p.counts[t] = taken;
}

// One block, a row at a time: a row's source is never before it.
__global__ void keep_selection_kernel(KeepSelectionParams p) {
  ptx::begin_overlapped();
  for (int32_t i = 0; i < p.count; ++i) {
    const int64_t from = p.rows[i];
    const int32_t count = from < 0 ? 0 : p.counts[from];
    for (auto j = static_cast<int32_t>(threadIdx.x); j < count && from > i; j += static_cast<int32_t>(kThreads)) {
      p.positions[int64_t{i} * p.top_k + j] = p.positions[from * p.top_k + j];
      p.slots[int64_t{i} * p.top_k + j] = p.slots[from * p.top_k + j];
    }
    __syncthreads();
    if (threadIdx.x == 0) p.counts[i] = count;
    __syncthreads();
  }
}

}  // namespace

void index_choose(void* stream, const IndexSelectParams& p, const IndexScratch& s, int32_t first, int32_t tokens) {
  const int64_t room = (device_traits().most_shared_bytes - static_cast<int64_t>(sizeof(ChooseShared)) - 1024) / 16 * 4;
  const auto piece = static_cast<int32_t>(std::min<int64_t>({s.row_stride, kMaxPiece, room}));
  const size_t shared = p.mode == IndexSelectParams::Mode::kScore ? static_cast<size_t>(piece) * 4 : 0;
  launch_overlapped(stream, "index top-k", &choose_kernel, static_cast<unsigned>(tokens), kThreads, shared, p, s, first,
                    piece);
}

void keep_selection(void* stream, const KeepSelectionParams& p) {
  launch_overlapped(stream, "keep_selection", &keep_selection_kernel, 1, kThreads, 0, p);
}

}  // namespace lantern::cuda
