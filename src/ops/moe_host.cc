#include "ops/moe.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/check.h"
#include "ops/cuda_ops.h"
#include "ops/cuda_scratch.h"
#include "ops/pass_sizes.h"
#include "ops/row_math_host.h"

namespace lantern {
namespace {

constexpr int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Hands out parts of a launch's scratch; with a null base it only adds up.
class Scratch {
 public:
  explicit Scratch(std::byte* base) : base_(base) {}

  template <class T>
  DevPtr<T> take(int64_t count) {
    T* address = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += aligned(count * static_cast<int64_t>(sizeof(T)));
    return borrow_fixed(address, count);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

// gate = silu(gate) * up over contiguous memory.
void silu_multiply(DevPtr<float> gate, DevPtr<float> up, int64_t count, HostContext& context) {
  context.threads.parallel_for(count, 8192, [&](int64_t begin, int64_t end, int) {
    silu_multiply_row(gate.get() + begin, up.get() + begin, end - begin);
  });
}

struct MlpScratch {
  DevPtr<float> gate;  // [tokens of a pass, intermediate]
  DevPtr<float> up;
  DevPtr<std::byte> linear[2];  // gate and up run together; down uses the first
  int64_t linear_bytes = 0;
  int64_t bytes = 0;

  MlpScratch(std::byte* base, int64_t tokens, int64_t hidden, int64_t intermediate) {
    tokens = std::min(tokens, kTokensPerPass);
    Scratch scratch(base);
    gate = scratch.take<float>(tokens * intermediate);
    up = scratch.take<float>(tokens * intermediate);
    linear_bytes = linear_scratch_bytes(tokens, std::max(hidden, intermediate));
    for (DevPtr<std::byte>& part : linear) part = scratch.take<std::byte>(linear_bytes);
    bytes = std::max(scratch.used(), cuda_mlp_scratch_bytes(tokens, hidden, intermediate));
  }
};

void mlp_kernel(const MlpParams& p, HostContext& context) {
  const int64_t hidden = p.weights.gate.cols;
  const int64_t intermediate = p.weights.gate.rows;
  const MlpScratch scratch(p.scratch.get(), p.tokens, hidden, intermediate);
  const int64_t real = p.real_tokens.of(p.tokens);
  for (int64_t begin = 0; begin < real; begin += kTokensPerPass) {
    const int64_t tokens = std::min(kTokensPerPass, real - begin);
    LinearParams in;
    in.x = borrow_fixed(p.x.get() + begin * hidden, tokens * hidden);
    in.x_stride = hidden;
    in.y = scratch.gate;
    in.y_stride = intermediate;
    in.rows = tokens;
    in.weight = p.weights.gate;
    in.scratch = scratch.linear[0];
    in.scratch_bytes = scratch.linear_bytes;
    std::array<LinearParams, 2> gate_up{in, in};
    gate_up[1].y = scratch.up;
    gate_up[1].weight = p.weights.up;
    gate_up[1].scratch = scratch.linear[1];
    linear_host(gate_up, context);

    silu_multiply(scratch.gate, scratch.up, tokens * intermediate, context);

    LinearParams down = in;
    down.x = borrow_fixed<const float>(scratch.gate.get(), tokens * intermediate);
    down.x_stride = intermediate;
    down.y = borrow_fixed(p.y.get() + begin * hidden, tokens * hidden);
    down.y_stride = hidden;
    down.weight = p.weights.down;
    down.accumulate = p.accumulate;
    linear_host(std::span<const LinearParams>(&down, 1), context);
  }
}

struct MoeScratch {
  DevPtr<int32_t> expert_begin;  // [num_experts + 1]: first sorted row of each expert
  DevPtr<int32_t> row_token;     // [pairs]: token of a sorted row, within the pass
  DevPtr<int32_t> pair_row;      // [pairs]: sorted row of (token, j), or -1
  DevPtr<LinearParams> tasks;    // [2 * active experts at most]
  DevPtr<float> gate;            // [pairs, intermediate]
  DevPtr<float> up;              // [pairs, intermediate]
  DevPtr<float> down;            // [pairs, hidden]
  DevPtr<std::byte> linear;
  int64_t linear_bytes = 0;
  int64_t bytes = 0;

  MoeScratch(std::byte* base, int64_t tokens, int32_t experts_per_token, int32_t num_experts, int64_t hidden,
             int64_t intermediate) {
    const int64_t pairs = std::min(tokens, kTokensPerPass) * experts_per_token;
    const int64_t active = std::min<int64_t>(pairs, num_experts);
    Scratch scratch(base);
    expert_begin = scratch.take<int32_t>(num_experts + 1);
    row_token = scratch.take<int32_t>(pairs);
    pair_row = scratch.take<int32_t>(pairs);
    tasks = scratch.take<LinearParams>(2 * active);
    gate = scratch.take<float>(pairs * intermediate);
    up = scratch.take<float>(pairs * intermediate);
    down = scratch.take<float>(pairs * hidden);
    // One expert with every row must fit (then a wave holds a single expert). With a need that grows as a constant
    // plus a multiple of the rows, rounded up to tiles, this also holds all experts in one wave.
    const int64_t cols = std::max(hidden, intermediate);
    linear_bytes = 2 * (aligned(linear_scratch_bytes(pairs, cols)) + active * aligned(linear_scratch_bytes(1, cols)));
    linear = scratch.take<std::byte>(linear_bytes);
    bytes = scratch.used() + rounded_rows_bytes(std::min(tokens, kTokensPerPass), hidden);
  }
};

// One pass over `tokens` tokens from token `first`.
class MoePass {
 public:
  MoePass(const MoeParams& params, const MoeScratch& scratch, int64_t first, int64_t tokens, HostContext& context)
      : p_(params),
        s_(scratch),
        first_(first),
        tokens_(tokens),
        pairs_(tokens * params.experts_per_token),
        context_(context) {}

  void run() {
    sort_by_expert();
    for (int32_t e = 0; e < p_.num_experts; ++e) {
      if (rows_of(e) > 0) add_gate_up(e);
    }
    flush();
    silu_multiply(s_.gate, s_.up, int64_t{s_.expert_begin[p_.num_experts]} * p_.intermediate, context_);
    for (int32_t e = 0; e < p_.num_experts; ++e) {
      if (rows_of(e) > 0) add_down(e);
    }
    flush();
    combine();
  }

 private:
  int64_t rows_of(int32_t e) const { return s_.expert_begin[e + 1] - s_.expert_begin[e]; }

  // A counting sort of the (token, j) pairs; within an expert rows keep the order of tokens.
  void sort_by_expert() {
    const int32_t* ids = p_.expert_ids.get() + first_ * p_.experts_per_token;
    std::fill_n(s_.expert_begin.get(), p_.num_experts + 1, 0);
    for (int64_t i = 0; i < pairs_; ++i) {
      CHECK(ids[i] < p_.num_experts, "expert {} was chosen among {}", ids[i], p_.num_experts);
      if (ids[i] >= 0) ++s_.expert_begin[ids[i] + 1];
    }
    for (int32_t e = 0; e < p_.num_experts; ++e) s_.expert_begin[e + 1] += s_.expert_begin[e];
    // expert_begin[e] serves as the place of the next row of e, and ends as the begin of e + 1.
    for (int64_t i = 0; i < pairs_; ++i) {
      s_.pair_row[i] = ids[i] >= 0 ? s_.expert_begin[ids[i]]++ : -1;
      if (ids[i] >= 0) s_.row_token[s_.pair_row[i]] = static_cast<int32_t>(i / p_.experts_per_token);
    }
    for (int32_t e = p_.num_experts; e > 0; --e) s_.expert_begin[e] = s_.expert_begin[e - 1];
    s_.expert_begin[0] = 0;
  }

  void add_gate_up(int32_t e) {
    const int64_t begin = s_.expert_begin[e];
    LinearParams task;
    task.x = borrow_fixed(p_.x.get() + first_ * p_.hidden, tokens_ * p_.hidden);
    task.x_stride = p_.hidden;
    task.x_rows = borrow_fixed<const int32_t>(s_.row_token.get() + begin, rows_of(e));
    task.y_stride = p_.intermediate;
    task.rows = rows_of(e);
    task.y = borrow_fixed(s_.gate.get() + begin * p_.intermediate, task.rows * p_.intermediate);
    task.weight = p_.experts[e].gate;
    LinearParams up = task;
    up.y = borrow_fixed(s_.up.get() + begin * p_.intermediate, task.rows * p_.intermediate);
    up.weight = p_.experts[e].up;
    add(task);
    add(up);
  }

  void add_down(int32_t e) {
    const int64_t begin = s_.expert_begin[e];
    LinearParams task;
    task.rows = rows_of(e);
    task.x = borrow_fixed<const float>(s_.gate.get() + begin * p_.intermediate, task.rows * p_.intermediate);
    task.x_stride = p_.intermediate;
    task.y = borrow_fixed(s_.down.get() + begin * p_.hidden, task.rows * p_.hidden);
    task.y_stride = p_.hidden;
    task.weight = p_.experts[e].down;
    add(task);
  }

  // Tasks run in waves: as many together as their scratch allows.
  void add(LinearParams& task) {
    task.scratch_bytes = aligned(linear_scratch_bytes(task.rows, task.weight.cols));
    if (used_bytes_ + task.scratch_bytes > s_.linear_bytes) flush();
    CHECK(task.scratch_bytes <= s_.linear_bytes, "an expert's {} rows need {} bytes of scratch, of {}", task.rows,
          task.scratch_bytes, s_.linear_bytes);
    task.scratch = borrow_fixed(s_.linear.get() + used_bytes_, task.scratch_bytes);
    used_bytes_ += task.scratch_bytes;
    std::construct_at(s_.tasks.get() + task_count_++, task);
  }

  void flush() {
    linear_host(std::span<const LinearParams>(s_.tasks.get(), task_count_), context_);
    task_count_ = 0;
    used_bytes_ = 0;
  }

  // y[t, :] += sum over j of weight * row, in order of j.
  void combine() {
    const int64_t grain = std::max<int64_t>(1, 8192 / (p_.experts_per_token * p_.hidden));
    context_.threads.parallel_for(tokens_, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) combine_token(t);
    });
  }

  void combine_token(int64_t t) const {
    constexpr int64_t kBlock = 512;
    std::array<float, kBlock> sum;
    const float* weights = p_.expert_weights.get() + (first_ + t) * p_.experts_per_token;
    const int32_t* rows = s_.pair_row.get() + t * p_.experts_per_token;
    float* y = p_.y.get() + (first_ + t) * p_.hidden;
    for (int64_t begin = 0; begin < p_.hidden; begin += kBlock) {
      const int64_t count = std::min(kBlock, p_.hidden - begin);
      sum.fill(0.0f);
      for (int32_t j = 0; j < p_.experts_per_token; ++j) {
        if (rows[j] < 0) continue;
        const float* row = s_.down.get() + rows[j] * p_.hidden + begin;
        const float weight = weights[j];
        for (int64_t i = 0; i < count; ++i) sum[static_cast<size_t>(i)] += weight * row[i];
      }
      for (int64_t i = 0; i < count; ++i) y[begin + i] += sum[static_cast<size_t>(i)];
    }
  }

  const MoeParams& p_;
  const MoeScratch& s_;
  int64_t first_;
  int64_t tokens_;
  int64_t pairs_;
  HostContext& context_;
  size_t task_count_ = 0;
  int64_t used_bytes_ = 0;
};

void moe_kernel(const MoeParams& p, HostContext& context) {
  const MoeScratch scratch(p.scratch.get(), p.tokens, p.experts_per_token, p.num_experts, p.hidden, p.intermediate);
  for (int64_t first = 0; first < p.tokens; first += kTokensPerPass) {
    MoePass(p, scratch, first, std::min(kTokensPerPass, p.tokens - first), context).run();
  }
}

}  // namespace

int64_t mlp_scratch_bytes(int64_t max_tokens, int64_t hidden, int64_t intermediate) {
  return MlpScratch(nullptr, max_tokens, hidden, intermediate).bytes;
}

void mlp(Stream& stream, const MlpParams& params) {
  const ExpertWeights& w = params.weights;
  CHECK(
      w.up.rows == w.gate.rows && w.up.cols == w.gate.cols && w.down.rows == w.gate.cols && w.down.cols == w.gate.rows,
      "an MLP of gate [{}, {}], up [{}, {}], down [{}, {}]", w.gate.rows, w.gate.cols, w.up.rows, w.up.cols,
      w.down.rows, w.down.cols);
  const int64_t needed = mlp_scratch_bytes(params.tokens, w.gate.cols, w.gate.rows);
  CHECK(params.scratch_bytes >= needed, "an MLP of {} tokens has {} bytes of scratch and needs {}", params.tokens,
        params.scratch_bytes, needed);
  launch_op(stream, "mlp", &mlp_kernel, &CudaOps::mlp, params);
}

int64_t moe_scratch_bytes(int64_t max_tokens, int32_t experts_per_token, int32_t num_experts, int64_t hidden,
                          int64_t intermediate) {
  return MoeScratch(nullptr, max_tokens, experts_per_token, num_experts, hidden, intermediate).bytes;
}

void moe(Stream& stream, const MoeParams& params) {
  const MoeParams& p = params;
  const int64_t needed = moe_scratch_bytes(p.tokens, p.experts_per_token, p.num_experts, p.hidden, p.intermediate);
  CHECK(p.scratch_bytes >= needed, "{} experts and {} tokens have {} bytes of scratch and need {}", p.num_experts,
        p.tokens, p.scratch_bytes, needed);
  launch_op(stream, "moe", &moe_kernel, &CudaOps::moe, params);
}

}  // namespace lantern
