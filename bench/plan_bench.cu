// Times the step plan on a GPU, captured in a graph as a decode step has it. Every batch of replays is timed by CUDA
// events on the stream; the figure is time per plan, minimum and median over the batches.
//
//   one_per_graph    a graph of one plan: replays follow each other as steps would with nothing in between
//   in_a_graph       a graph of 20 plans: a plan's own share of a longer graph, which is what a step pays
//   host_*           time of the submitting thread per call, nothing waited for
//
// Prints one JSON object. --commit TEXT and --clocks TEXT are entered in it as they are.
//   build/release/bench/plan_bench [--batches 20] [--replays 100] [--commit ID] [--clocks TEXT]
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attention/plan/step_inputs.h"
#include "attention/plan/step_plan_buffers.h"
#include "base/check.h"
#include "device/device.h"
#include "device/graph.h"
#include "device/stream.h"

namespace lantern {
namespace {

constexpr int32_t kBlockSize = 64;
constexpr int32_t kPlansInGraph = 20;
constexpr int32_t kDraftWidth = 4;

struct Options {
  int32_t batches = 20;
  int32_t replays = 100;
  std::string commit = "unknown", clocks = "unknown", command;
};

struct Case {
  std::string name;
  int32_t requests = 128;
  int32_t seq_len = 2560 * kBlockSize;
  int32_t max_model_len = 2560 * kBlockSize;
  bool every_view = false;
};

struct Spread {
  double least = 0;
  double median = 0;
};

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2]};
}

void must(cudaError_t error, const char* what) {
  CHECK(error == cudaSuccess, "{}: {}", what, cudaGetErrorString(error));
}

template <class T>
T take(Result<T> result) {
  CHECK(result.ok(), "{}", result.error().message());
  return std::move(result).value();
}
void take(const Status& status) { CHECK(status.ok(), "{}", status.error().message()); }

// One bucket of one configuration, its batch in place.
class Bench {
 public:
  Bench(Device& device, const Case& c) : device_(device), stream_(device), case_(c) {
    StepPlanConfig config;
    StepLimits& limits = config.limits;
    limits.max_requests = c.requests;
    limits.max_query_len = kDraftWidth;
    limits.max_tokens = c.requests * kDraftWidth;
    limits.block_size = kBlockSize;
    limits.max_model_len = c.max_model_len;
    limits.max_blocks_per_request = c.max_model_len / kBlockSize;
    limits.num_blocks = 1 << 20;
    config.groups = {StepPlanConfig::group_of(limits)};
    config.workers = device.worker_count();
    config.mla = MlaTiles{.parts = std::max(1, device.worker_count() / kDraftWidth / 2), .topk = 2048};
    config.drafts = true;
    if (c.every_view) {
      config.flattened = config.per_request = true;
      config.dcp = ContextShard{2, 0, 1};
      config.groups[0].compress_ratio = 4;
    }
    take(inputs_.create(device, config));
    take(buffers_.create(device, config));
    buffers_.poison(device);
    fill();
    params_ = buffers_.params(inputs_, {c.requests * kDraftWidth, c.requests, kDraftWidth});
    plan_step(stream_, params_);
    stream_.synchronize();
    CHECK(buffers_.num_errors(device) == 0, "{}: the batch has faults", c.name);
  }

  // Microseconds of a plan in graphs of `plans` of them.
  Spread graph_us(const Options& options, int32_t plans) {
    const auto graph = take(capture_graph(stream_, {}, [&](Stream& stream) -> Status {
      for (int32_t i = 0; i < plans; ++i) plan_step(stream, params_);
      return {};
    }));
    return timed(options, plans, [&] { graph->replay(stream_); });
  }

  Spread eager_us(const Options& options) {
    return timed(options, 1, [&] { plan_step(stream_, params_); });
  }

  // Of the submitting thread. The queue is emptied often enough never to be full.
  Spread host_us(const std::function<void()>& submit) {
    std::vector<double> times;
    for (int32_t i = 0; i < 2000; ++i) {
      if (i % 50 == 0) stream_.synchronize();
      const auto start = std::chrono::steady_clock::now();
      submit();
      times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    stream_.synchronize();
    return spread_of(std::move(times));
  }
  Spread host_eager_us() {
    return host_us([&] { plan_step(stream_, params_); });
  }
  Spread host_graph_us() {
    const auto graph = take(capture_graph(stream_, {}, [&](Stream& stream) -> Status {
      plan_step(stream, params_);
      return {};
    }));
    return host_us([&] { graph->replay(stream_); });
  }

 private:
  void fill() {
    const auto requests = static_cast<size_t>(case_.requests);
    std::vector<int32_t> starts, lens(requests, case_.seq_len), nobody(requests, 0), accepted(requests, 2);
    for (int32_t b = 0; b <= case_.requests; ++b) starts.push_back(b * kDraftWidth);
    inputs_.write(device_, {.num_requests = case_.requests,
                            .num_tokens = case_.requests * kDraftWidth,
                            .query_start_loc = starts,
                            .seq_lens = lens,
                            .prefilling = nobody,
                            .accepted = accepted});
    std::vector<int32_t> row(static_cast<size_t>(case_.seq_len / kBlockSize));
    uint32_t random = 1;
    for (int32_t b = 0; b < case_.requests; ++b) {
      for (int32_t& block : row) block = 1 + static_cast<int32_t>((random = random * 1664525u + 1013904223u) >> 13);
      inputs_.write_block_table(device_, 0, b, row);
    }
  }

  Spread timed(const Options& options, int32_t plans, const std::function<void()>& submit) {
    auto* stream = static_cast<cudaStream_t>(stream_.native_handle());
    cudaEvent_t begin = nullptr, end = nullptr;
    must(cudaEventCreate(&begin), "make an event");
    must(cudaEventCreate(&end), "make an event");
    for (int32_t i = 0; i < options.replays; ++i) submit();
    std::vector<double> times;
    for (int32_t batch = 0; batch < options.batches; ++batch) {
      stream_.synchronize();
      must(cudaEventRecord(begin, stream), "record an event");
      for (int32_t i = 0; i < options.replays; ++i) submit();
      must(cudaEventRecord(end, stream), "record an event");
      must(cudaEventSynchronize(end), "wait for an event");
      float ms = 0;
      must(cudaEventElapsedTime(&ms, begin, end), "read an event");
      times.push_back(1e3 * static_cast<double>(ms) / options.replays / plans);
    }
    must(cudaEventDestroy(begin), "free an event");
    must(cudaEventDestroy(end), "free an event");
    return spread_of(std::move(times));
  }

  Device& device_;
  Stream stream_;
  Case case_;
  StepInputs inputs_;
  StepPlanBuffers buffers_;
  StepPlanParams params_;
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c < ' ' ? ' ' : c;
  }
  out += '"';
  return out;
}
std::string json(const Spread& s) { return fmt::format("{{\"min\": {:.2f}, \"median\": {:.2f}}}", s.least, s.median); }

std::string measure(Device& device, const Case& c, const Options& options, bool host) {
  Bench bench(device, c);
  std::string text = fmt::format(
      "{{\"case\": {}, \"requests\": {}, \"tokens\": {}, \"blocks_per_request\": {}, \"max_model_len\": {}, "
      "\"every_view\": {}, \"one_per_graph_us\": {}, \"in_a_graph_us\": {}, \"eager_us\": {}",
      quoted(c.name), c.requests, c.requests * kDraftWidth, c.seq_len / kBlockSize, c.max_model_len, c.every_view,
      json(bench.graph_us(options, 1)), json(bench.graph_us(options, kPlansInGraph)), json(bench.eager_us(options)));
  if (host) {
    text += fmt::format(", \"host_graph_us\": {}, \"host_eager_us\": {}", json(bench.host_graph_us()),
                        json(bench.host_eager_us()));
  }
  text += '}';
  return text;
}

std::vector<Case> cases() {
  std::vector<Case> list = {{.name = "decode"}, {.name = "every view", .every_view = true}};
  for (const int32_t requests : {1, 16, 32, 64, 128, 256, 512}) {
    list.push_back({.name = "rows", .requests = requests, .seq_len = 8192});
  }
  for (const int32_t len : {8192, 32768, 131072, 1048576}) {
    list.push_back({.name = "max_model_len", .seq_len = 8192, .max_model_len = len});
  }
  return list;
}

Options parse(int argc, char** argv) {
  Options options;
  options.command = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--batches") {
      options.batches = std::max(1, std::atoi(value));
    } else if (name == "--replays") {
      options.replays = std::max(1, std::atoi(value));
    } else if (name == "--commit") {
      options.commit = value;
    } else if (name == "--clocks") {
      options.clocks = value;
    } else {
      fmt::print(stderr, "plan_bench: {} is not known; use --batches, --replays, --commit, --clocks\n", name);
      std::exit(2);
    }
  }
  return options;
}

int run(const Options& options) {
  Result<std::unique_ptr<Device>> device = make_cuda_device();
  if (!device.ok()) {
    fmt::print(stderr, "plan_bench: {}\n", device.error().message());
    return 1;
  }
  int driver = 0, runtime = 0;
  must(cudaDriverGetVersion(&driver), "ask for the driver's version");
  must(cudaRuntimeGetVersion(&runtime), "ask for the runtime's version");
  std::vector<std::string> results;
  for (const Case& c : cases()) {
    results.push_back(measure(**device, c, options, c.name == "decode" || c.name == "every view"));
  }
  fmt::print(
      "{{\"benchmark\": \"plan\", \"device\": {}, \"cuda_driver\": {}, \"cuda_runtime\": {}, \"clocks\": {}, "
      "\"commit\": {}, \"command\": {}, \"batches\": {}, \"replays\": {}, \"results\": [\n  {}\n]}}\n",
      quoted((*device)->description()), driver, runtime, quoted(options.clocks), quoted(options.commit),
      quoted(options.command), options.batches, options.replays, fmt::join(results, ",\n  "));
  return 0;
}

}  // namespace
}  // namespace lantern

int main(int argc, char** argv) { return lantern::run(lantern::parse(argc, argv)); }
