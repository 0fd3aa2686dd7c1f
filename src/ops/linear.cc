#include "ops/linear.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "ops/cuda_ops.h"
#include "ops/cuda_scratch.h"
#include "ops/gemm_kernel.h"
#include "ops/host_choice.h"

namespace lantern {
namespace {

// Best first; the last takes every weight on every machine.
constexpr std::array kKernels = {&gemm_amx_kernel, &gemm_avx512bf16_kernel, &gemm_highway_kernel, &gemm_simple_kernel};

// Index of the first kernel that may be chosen; -1: the machine has not been asked yet.
std::atomic<int> first_kernel{-1};

int best_kernel() {
  int i = 0;
  while (kKernels[static_cast<size_t>(i)]().missing_on_machine() != nullptr) ++i;
  return i;
}

int first_allowed() {
  int first = first_kernel.load(std::memory_order_relaxed);
  if (first < 0) {
    first = best_kernel();
    first_kernel.store(first, std::memory_order_relaxed);
  }
  return first;
}

Refusal refuse(size_t index, const QuantizedMatrix& weight, LinearInput input) {
  const GemmKernel& kernel = kKernels[index]();
  if (const char* missing = kernel.missing_on_machine(); missing != nullptr) return cannot(missing);
  if (index < static_cast<size_t>(first_allowed())) return cannot("a later one was asked for");
  const char* refused = kernel.refuses(weight, input);
  return {.reason = refused, .by_choice = input == LinearInput::kExact};
}

const GemmKernel& choose(const QuantizedMatrix& weight, LinearInput input) {
  for (size_t i = 0; i < kKernels.size(); ++i) {
    if (!refuse(i, weight, input)) return kKernels[i]();
  }
  CHECK(false, "no implementation of linear takes a {} weight", to_string(weight.dtype));
  return gemm_simple_kernel();
}

constexpr int64_t kPanelAlignment = 64;

void check_task(const LinearParams& p) {
  const QuantizedMatrix& w = p.weight;
  CHECK(w.dtype == DType::kF32 || w.dtype == DType::kF16 || w.dtype == DType::kBF16 || w.dtype == DType::kF8E4M3,
        "linear cannot read weights of dtype {}", to_string(w.dtype));
  CHECK(w.row_bytes >= static_cast<int64_t>(dtype_bytes(w.dtype, static_cast<size_t>(w.cols))),
        "rows of {} {} columns lie {} bytes apart", w.cols, to_string(w.dtype), w.row_bytes);
  CHECK(w.cols > 0, "a weight of {} rows has no columns", w.rows);
  CHECK(w.zero == 0, "float weights have no zero point, but {} was given", w.zero);
  if (w.block_rows != 0) {
    CHECK(w.block_rows > 0 && w.block_cols > 0 && w.scales, "scale blocks of {}x{}", w.block_rows, w.block_cols);
    CHECK(w.scale_row_stride >= (w.cols + w.block_cols - 1) / w.block_cols, "{} scales a row for {} columns",
          w.scale_row_stride, w.cols);
    CHECK(w.scale_dtype == DType::kF32 || w.scale_dtype == DType::kF8E8M0, "scales of dtype {}",
          to_string(w.scale_dtype));
  }
  CHECK(p.scratch_bytes >= linear_scratch_bytes(p.rows, w.cols),
        "linear of {} rows and {} columns has {} scratch bytes", p.rows, w.cols, p.scratch_bytes);
}

// A panel of one task, and where its outputs lie in the common range of work.
struct Job {
  const LinearParams* params;
  const GemmKernel* kernel;
  GemmPanel panel;
  int64_t unit_begin;   // in units of kernel->out_block outputs, counted over all jobs
  int64_t group_begin;  // in groups of kGemmGroupRows rows, counted over all jobs
};

constexpr size_t kMaxJobs = 64;
// Below this many elements of x one thread packs faster than two can agree to.
constexpr int64_t kPackAlone = 1 << 16;

struct Batch {
  std::array<Job, kMaxJobs> jobs;
  size_t count = 0;
  int64_t units = 0;
  int64_t groups = 0;
  int64_t pack_elements = 0;
  int64_t weight_bytes = 0;
  int64_t most_rows = 0;

  void add(const LinearParams& p, const GemmKernel& kernel, int64_t row_begin) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(p.scratch.get());
    const int64_t shift = static_cast<int64_t>((kPanelAlignment - address % kPanelAlignment) % kPanelAlignment);
    const GemmPanel panel{p.scratch.get() + shift, row_begin, std::min(kGemmPanelRows, p.rows - row_begin)};
    jobs[count++] = {&p, &kernel, panel, units, groups};
    units += (p.weight.rows + kernel.out_block - 1) / kernel.out_block;
    groups += panel.groups();
    pack_elements += panel.rows * p.weight.cols;
    weight_bytes += p.weight.rows * p.weight.row_bytes;
    most_rows = std::max(most_rows, panel.rows);
  }

  // Calls visit(job, first, last) for the parts of [begin, end), a range counted over all jobs from start_of(job).
  template <class Start, class Visit>
  void split(int64_t begin, int64_t end, int64_t total, Start start_of, Visit visit) const {
    for (size_t i = 0; i < count && start_of(jobs[i]) < end; ++i) {
      const int64_t start = start_of(jobs[i]);
      const int64_t stop = i + 1 < count ? start_of(jobs[i + 1]) : total;
      if (stop > begin) visit(jobs[i], std::max(begin, start) - start, std::min(end, stop) - start);
    }
  }

  void pack(int64_t begin, int64_t end) const {
    split(
        begin, end, groups, [](const Job& j) { return j.group_begin; },
        [](const Job& j, int64_t first, int64_t last) { j.kernel->pack(*j.params, j.panel, first, last); });
  }

  void multiply(int64_t begin, int64_t end) const {
    split(
        begin, end, units, [](const Job& j) { return j.unit_begin; },
        [](const Job& j, int64_t first, int64_t last) {
          const int64_t block = j.kernel->out_block;
          j.kernel->multiply(*j.params, j.panel, first * block, std::min(last * block, j.params->weight.rows));
        });
  }

  void run(ThreadPool& threads) const {
    if (units == 0) return;
    const int workers = threads.thread_count();
    if (workers == 1 || pack_elements <= kPackAlone) {
      pack(0, groups);
    } else {
      threads.parallel_for(groups, std::max<int64_t>(1, groups / (workers * 4)),
                           [this](int64_t begin, int64_t end, int) { pack(begin, end); });
    }
    // A piece is long enough to stream, short enough that the last one does not keep the others waiting.
    constexpr int64_t kLeastBytes = 256 << 10, kMostBytes = 1 << 20;
    const int64_t unit_bytes = std::max<int64_t>(1, weight_bytes / units);
    const int64_t least = std::min((units + workers - 1) / workers, kLeastBytes / unit_bytes + 1);
    int64_t grain = std::max(least, std::min(units / (workers * 32), kMostBytes / unit_bytes));
    // Pieces of whole scale blocks stream best; where many rows pass, a piece of four units uses them often enough.
    if (grain > 4 || (most_rows > 2 * kGemmGroupRows && units >= 4 * workers)) {
      grain = std::max<int64_t>(4, grain - grain % 4);
    }
    threads.parallel_for(units, grain, [this](int64_t begin, int64_t end, int) { multiply(begin, end); });
  }
};

void linear_kernel(const LinearParams& params, HostContext& context) {
  LinearParams task = params;
  task.rows = params.real_rows.of(params.rows);
  linear_host({&task, 1}, context);
}

}  // namespace

int64_t linear_scratch_bytes(int64_t max_rows, int64_t max_cols) {
  int64_t bytes = 0;
  for (const auto& kernel : kKernels) {
    bytes = std::max(bytes, kernel().panel_bytes(std::min(max_rows, kGemmPanelRows), max_cols));
  }
  return std::max(bytes + kPanelAlignment, cuda_linear_scratch_bytes(max_rows, max_cols));
}

void linear(Stream& stream, const LinearParams& params) {
  launch_op(stream, "linear", &linear_kernel, &CudaOps::linear, params);
}

void linear_host(std::span<const LinearParams> tasks, HostContext& context) {
  for (size_t begin = 0; begin < tasks.size(); begin += kMaxJobs) {
    const auto chunk = tasks.subspan(begin, std::min(kMaxJobs, tasks.size() - begin));
    int64_t most_rows = 0;
    for (const LinearParams& task : chunk) {
      if (task.rows > 0) check_task(task);
      most_rows = std::max(most_rows, task.rows);
    }
    for (int64_t row_begin = 0; row_begin < most_rows; row_begin += kGemmPanelRows) {
      Batch batch;
      for (const LinearParams& task : chunk) {
        if (row_begin < task.rows) batch.add(task, choose(task.weight, task.input), row_begin);
      }
      batch.run(context.threads);
    }
  }
}

const char* linear_host_implementation() { return kKernels[static_cast<size_t>(first_allowed())]().name; }

std::vector<LinearImplementation> linear_host_implementations() {
  std::vector<LinearImplementation> list;
  list.reserve(std::size(kKernels));
  for (const auto& kernel : kKernels) list.push_back({kernel().name, kernel().missing_on_machine()});
  return list;
}

std::vector<Considered> consider_linear_host(const QuantizedMatrix& weight, LinearInput input) {
  std::vector<Considered> all;
  all.reserve(kKernels.size());
  for (size_t i = 0; i < kKernels.size(); ++i) all.push_back({kKernels[i]().name, refuse(i, weight, input)});
  return all;
}

Status force_linear_host_implementation(std::string_view name) {
  if (name.empty()) {
    first_kernel.store(-1, std::memory_order_relaxed);
    return {};
  }
  std::string known;
  for (size_t i = 0; i < kKernels.size(); ++i) {
    const GemmKernel& kernel = kKernels[i]();
    known += fmt::format("{}{}", i == 0 ? "" : ", ", kernel.name);
    if (name != kernel.name) continue;
    if (const char* missing = kernel.missing_on_machine(); missing != nullptr) {
      return Error(ErrorCode::kUnsupported,
                   fmt::format("linear implementation '{}' cannot run here: {}", name, missing));
    }
    first_kernel.store(static_cast<int>(i), std::memory_order_relaxed);
    return {};
  }
  return Error(ErrorCode::kNotFound,
               fmt::format("no linear implementation is called '{}'; there are: {}", name, known));
}

}  // namespace lantern
