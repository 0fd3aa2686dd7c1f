// Speed of linear_host() against the two things that bound it: the machine's read bandwidth when few rows use each
// weight (decode), and oneDNN's bf16 matmul when many do (prefill). Prints one JSON object.
//   gemm_bench [--threads N] [--repetitions N] [--gib N] [--only decode|prefill] [--require-impl NAME]
// Everything that is compared is measured in turns in the same run, so that a busy machine disturbs both sides alike;
// ratios are medians over the turns. "cpu" figures count processor time instead of wall time: they say the same on a
// quiet machine and remain meaningful on a shared one (with --threads 1).
#include <fmt/core.h>
#include <omp.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/median.h"
#include "ops/linear.h"
#include "ops/memory_read.h"

namespace lantern {
namespace {

struct Shape {
  const char* model;
  const char* name;
  int64_t outputs, cols;
  int per_token;  // times that one decoded token uses a matrix of this shape in one MoE layer
  bool expert;
};

// GLM-4.7-Flash and DeepSeek-V3, from their config.json files; gate and up are separate matrices.
constexpr Shape kShapes[] = {
    {"glm47-flash", "q_a", 768, 2048, 1, false},          {"glm47-flash", "q_b", 5120, 768, 1, false},
    {"glm47-flash", "kv_a", 576, 2048, 1, false},         {"glm47-flash", "o", 2048, 5120, 1, false},
    {"glm47-flash", "expert_gate", 1536, 2048, 10, true}, {"glm47-flash", "expert_down", 2048, 1536, 5, true},
    {"deepseek-v3", "q_a", 1536, 7168, 1, false},         {"deepseek-v3", "q_b", 24576, 1536, 1, false},
    {"deepseek-v3", "kv_a", 576, 7168, 1, false},         {"deepseek-v3", "o", 7168, 16384, 1, false},
    {"deepseek-v3", "expert_gate", 2048, 7168, 18, true}, {"deepseek-v3", "expert_down", 7168, 2048, 9, true},
};

struct Options {
  int threads = 0;
  int repetitions = 5;
  int64_t gib = 3;
  std::string only;
  std::string implementation;
};

double now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Seconds {
  double wall, cpu;
};

template <class Body>
Seconds timed(Body body) {
  const double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
  body();
  return {now(CLOCK_MONOTONIC) - wall, now(CLOCK_PROCESS_CPUTIME_ID) - cpu};
}

// OpenMP's threads spin for some milliseconds after their last work, and so for a while do ours. With a thread per core
// they would take half of the machine from whoever is measured next. After the pause cores need work to come up to
// speed again.
template <class Body>
Seconds timed_alone(Body body) {
  using namespace std::chrono_literals;
  std::this_thread::sleep_for(30ms);
  const auto start = std::chrono::steady_clock::now();
  do body();
  while (std::chrono::steady_clock::now() - start < 20ms);
  return timed(body);
}

struct Samples {
  std::vector<double> wall, cpu;
  void add(Seconds s) {
    wall.push_back(s.wall);
    cpu.push_back(s.cpu);
  }
};

double median_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return median(ratios);
}

double best(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

// Memory for all weights, in large pages, filled with plausible codes.
class Weights {
 public:
  explicit Weights(int64_t bytes) : bytes_(bytes) {
    void* address = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(address != MAP_FAILED, "{} bytes of memory are not to be had; lower --gib", bytes);
    madvise(address, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(address);
  }
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // Gaussian weights: bf16 of deviation 0.02; FP8 as quantised with the largest of a block at 448.
  void fill(DType dtype, ThreadPool& threads) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<std::byte> table(1 << 20);
    for (size_t i = 0; i < table.size(); i += 2) {
      if (dtype == DType::kBF16) {
        const bf16_t value = to_bf16(0.02f * normal(random));
        std::memcpy(&table[i], &value, 2);
      } else {
        table[i] = std::byte{to_e4m3_saturate(105.0f * normal(random)).bits};
        table[i + 1] = std::byte{to_e4m3_saturate(105.0f * normal(random)).bits};
      }
    }
    constexpr int64_t kPiece = 1 << 18;
    threads.parallel_for(bytes_ / kPiece, 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const size_t offset = static_cast<size_t>(i * 7919 % 12) << 16;
        std::memcpy(data_ + i * kPiece, table.data() + offset, kPiece);
      }
    });
  }

 private:
  int64_t bytes_;
  std::byte* data_;
};

QuantizedMatrix matrix(const Shape& shape, DType dtype, const std::byte* data, const std::vector<float>& scales) {
  QuantizedMatrix w;
  w.dtype = dtype;
  w.rows = shape.outputs;
  w.cols = shape.cols;
  w.row_bytes = shape.cols * (dtype == DType::kBF16 ? 2 : 1);
  w.data = borrow_fixed(data, w.rows * w.row_bytes);
  if (dtype == DType::kF8E4M3) {
    w.block_rows = w.block_cols = 128;
    w.scale_row_stride = (w.cols + 127) / 128;
    w.scales = borrow_fixed(reinterpret_cast<const std::byte*>(scales.data()), static_cast<int64_t>(scales.size() * 4));
  }
  return w;
}

// Activations, outputs and scratch for calls of up to `tasks` products.
struct Buffers {
  Buffers(int64_t tasks, int64_t rows, int64_t most_outputs, int64_t most_cols)
      : rows_(rows),
        outputs_(most_outputs),
        cols_(most_cols),
        x(static_cast<size_t>(rows * most_cols)),
        y(static_cast<size_t>(tasks * rows * most_outputs)),
        scratch_each(linear_scratch_bytes(rows, most_cols)),
        scratch(static_cast<size_t>(tasks * scratch_each)),
        scales(1 << 20, 0.0002f) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(random);
  }
  LinearParams task(int64_t index, const Shape& shape, DType dtype, const std::byte* data, int64_t rows) {
    LinearParams p;
    p.x = borrow_fixed(static_cast<const float*>(x.data()), static_cast<int64_t>(x.size()));
    p.x_stride = shape.cols;
    p.y = borrow_fixed(y.data() + index * rows_ * outputs_, rows_ * outputs_);
    p.y_stride = shape.outputs;
    p.rows = rows;
    p.weight = matrix(shape, dtype, data, scales);
    p.scratch = borrow_fixed(scratch.data() + index * scratch_each, scratch_each);
    p.scratch_bytes = scratch_each;
    return p;
  }
  int64_t rows_, outputs_, cols_;
  std::vector<float> x, y;
  int64_t scratch_each;
  std::vector<std::byte> scratch;
  std::vector<float> scales;
};

int64_t shape_bytes(const Shape& s, DType dtype) { return s.outputs * s.cols * (dtype == DType::kBF16 ? 2 : 1); }

// One token through as many layers as fill the memory: every matrix is read once from memory.
std::string decode(const Options& options, ThreadPool& threads, Weights& weights, std::string_view model, DType dtype) {
  Buffers buffers(18, 1, 24576, 16384);
  std::vector<std::vector<LinearParams>> calls;
  int64_t used = 0;
  for (bool full = false; !full;) {
    for (const Shape& s : kShapes) {
      if (model != s.model) continue;
      std::vector<LinearParams> tasks;
      for (int i = 0; i < s.per_token; ++i) {
        if (used + shape_bytes(s, dtype) > weights.bytes()) {
          full = true;
          break;
        }
        tasks.push_back(buffers.task(i, s, dtype, weights.data() + used, 1));
        used += shape_bytes(s, dtype);
      }
      if (!tasks.empty()) calls.push_back(std::move(tasks));
    }
  }
  HostContext context{threads};
  Samples ours, read;
  for (int i = 0; i < options.repetitions; ++i) {
    read.add(timed([&] { measure_read_bandwidth(threads, std::span(weights.data(), static_cast<size_t>(used)), 1); }));
    ours.add(timed([&] {
      for (const auto& tasks : calls) linear_host(tasks, context);
    }));
  }
  // measure_read_bandwidth() reads once to warm up and once to measure.
  for (double& s : read.wall) s /= 2.0;
  for (double& s : read.cpu) s /= 2.0;
  return fmt::format(
      "{{\"model\": \"{}\", \"dtype\": \"{}\", \"bytes\": {}, \"calls\": {}, \"gb_per_second\": {:.2f}, "
      "\"read_gb_per_second\": {:.2f}, \"bandwidth_ratio\": {:.3f}, \"cpu_bandwidth_ratio\": {:.3f}, "
      "\"best_gb_per_second\": {:.2f}, \"best_read_gb_per_second\": {:.2f}, \"best_cpu_ratio\": {:.3f}}}",
      model, to_string(dtype), used, calls.size(), static_cast<double>(used) / median(ours.wall) * 1e-9,
      static_cast<double>(used) / median(read.wall) * 1e-9, median_ratio(read.wall, ours.wall),
      median_ratio(read.cpu, ours.cpu), static_cast<double>(used) / best(ours.wall) * 1e-9,
      static_cast<double>(used) / best(read.wall) * 1e-9, best(read.cpu) / best(ours.cpu));
}

// oneDNN's matmul with weights in the layout it likes best, packed beforehand.
class OneDnn {
 public:
  OneDnn(int64_t rows, const Shape& shape, int64_t copies, const std::byte* weights)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dt = dnnl::memory::data_type;
    using tag = dnnl::memory::format_tag;
    const dnnl::memory::desc x({rows, shape.cols}, dt::bf16, tag::ab);
    const dnnl::memory::desc any({shape.cols, shape.outputs}, dt::bf16, tag::any);
    const dnnl::memory::desc plain({shape.cols, shape.outputs}, dt::bf16, tag::ba);
    const dnnl::memory::desc y({rows, shape.outputs}, dt::f32, tag::ab);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(x, any, y), engine_);
    implementation_ = description.impl_info_str();
    matmul_ = dnnl::matmul(description);
    x_ = dnnl::memory(x, engine_);
    y_ = dnnl::memory(y, engine_);
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    auto* values = static_cast<uint16_t*>(x_.get_data_handle());
    for (int64_t i = 0; i < rows * shape.cols; ++i) values[i] = to_bf16(normal(random)).bits;
    for (int64_t i = 0; i < copies; ++i) {
      dnnl::memory from(plain, engine_, const_cast<std::byte*>(weights + i * shape_bytes(shape, DType::kBF16)));
      packed_.emplace_back(description.weights_desc(), engine_);
      dnnl::reorder(from, packed_.back()).execute(stream_, from, packed_.back());
    }
    stream_.wait();
  }
  void run(size_t copy) {
    matmul_.execute(stream_, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, packed_[copy]}, {DNNL_ARG_DST, y_}});
    stream_.wait();
  }
  const std::string& implementation() const { return implementation_; }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  dnnl::memory x_, y_;
  std::vector<dnnl::memory> packed_;
  std::string implementation_;
};

std::string prefill(const Options& options, ThreadPool& threads, Weights& weights, const Shape& shape, int64_t rows) {
  // Distinct matrices, as in a model; a few suffice where the product is bound by arithmetic.
  const int64_t copies = std::clamp<int64_t>((rows < 64 ? 512 << 20 : 128 << 20) / shape_bytes(shape, DType::kBF16), 1,
                                             rows < 64 ? 64 : 4);
  OneDnn dnnl(rows, shape, copies, weights.data());
  Buffers buffers(1, rows, shape.outputs, shape.cols);
  HostContext context{threads};
  Samples bf16, fp8, peer;
  const auto ours = [&](DType dtype, int64_t copy) {
    const LinearParams task = buffers.task(0, shape, dtype, weights.data() + copy * shape_bytes(shape, dtype), rows);
    linear_host({&task, 1}, context);
  };
  for (int i = -1; i < options.repetitions; ++i) {
    const Seconds p = timed_alone([&] {
      for (int64_t c = 0; c < copies; ++c) dnnl.run(static_cast<size_t>(c));
    });
    const Seconds b = timed_alone([&] {
      for (int64_t c = 0; c < copies; ++c) ours(DType::kBF16, c);
    });
    const Seconds f = timed_alone([&] {
      for (int64_t c = 0; c < copies; ++c) ours(DType::kF8E4M3, c);
    });
    if (i < 0) continue;  // warm-up
    peer.add(p);
    bf16.add(b);
    fp8.add(f);
  }
  const double flops = 2.0 * static_cast<double>(rows * shape.outputs * shape.cols * copies);
  return fmt::format(
      "{{\"model\": \"{}\", \"name\": \"{}\", \"rows\": {}, \"outputs\": {}, \"cols\": {}, \"matrices\": {}, "
      "\"bf16_gflops\": {:.0f}, \"fp8_gflops\": {:.0f}, \"onednn_gflops\": {:.0f}, \"bf16_ratio\": {:.3f}, "
      "\"fp8_ratio\": {:.3f}, \"bf16_cpu_ratio\": {:.3f}, \"fp8_cpu_ratio\": {:.3f}, \"bf16_best_cpu_gflops\": {:.0f}, "
      "\"fp8_best_cpu_gflops\": {:.0f}, \"onednn_best_cpu_gflops\": {:.0f}, \"onednn\": \"{}\"}}",
      shape.model, shape.name, rows, shape.outputs, shape.cols, copies, flops / median(bf16.wall) * 1e-9,
      flops / median(fp8.wall) * 1e-9, flops / median(peer.wall) * 1e-9, median_ratio(peer.wall, bf16.wall),
      median_ratio(peer.wall, fp8.wall), median_ratio(peer.cpu, bf16.cpu), median_ratio(peer.cpu, fp8.cpu),
      flops / best(bf16.cpu) * 1e-9, flops / best(fp8.cpu) * 1e-9, flops / best(peer.cpu) * 1e-9,
      dnnl.implementation());
}

int run(const Options& options) {
  ThreadPool threads(options.threads);
  omp_set_num_threads(threads.thread_count());  // oneDNN's
  if (const Status forced = force_linear_host_implementation(options.implementation); !forced.ok()) {
    fmt::print(stderr, "{}\n", forced.error().message());
    return 1;
  }
  Weights weights(options.gib << 30);
  fmt::print("{{\"implementation\": \"{}\", \"threads\": {}, \"repetitions\": {}, \"last_level_cache_bytes\": {},\n",
             linear_host_implementation(), threads.thread_count(), options.repetitions, last_level_cache_bytes());
  const char* separator = "";
  fmt::print(" \"decode\": [");
  if (options.only != "prefill") {
    for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
      weights.fill(dtype, threads);
      for (const char* model : {"glm47-flash", "deepseek-v3"}) {
        fmt::print("{}\n  {}", separator, decode(options, threads, weights, model, dtype));
        std::fflush(stdout);
        separator = ",";
      }
    }
  }
  fmt::print("],\n \"prefill\": [");
  separator = "";
  if (options.only != "decode") {
    weights.fill(DType::kF8E4M3, threads);  // as bf16 these are finite as well; speed does not depend on values
    for (const Shape& shape : kShapes) {
      for (const int64_t rows : {512, 32}) {
        if (rows == 32 && !shape.expert) continue;
        fmt::print("{}\n  {}", separator, prefill(options, threads, weights, shape, rows));
        std::fflush(stdout);
        separator = ",";
      }
    }
  }
  fmt::print("]}}\n");
  return 0;
}

}  // namespace
}  // namespace lantern

int main(int argc, char** argv) {
  lantern::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (flag == "--threads") {
      options.threads = std::atoi(value);
    } else if (flag == "--repetitions") {
      options.repetitions = std::max(1, std::atoi(value));
    } else if (flag == "--gib") {
      options.gib = std::max(1, std::atoi(value));
    } else if (flag == "--only") {
      options.only = value;
    } else if (flag == "--require-impl") {
      options.implementation = value;
    } else {
      fmt::print(stderr, "unknown flag {}; flags: --threads --repetitions --gib --only --require-impl\n", flag);
      return 2;
    }
  }
  return lantern::run(options);
}
