#include "device/cuda/cuda_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "device/kernel_count.h"
#include "device/launch_log.h"

namespace lantern {
namespace {

__global__ void fill_words(uint32_t* words, uint32_t pattern, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) words[i] = pattern;
}

int64_t count_kernels(cudaGraph_t graph) {
  size_t count = 0;
  LANTERN_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count), "count the nodes of a graph");
  std::vector<cudaGraphNode_t> nodes(count);
  LANTERN_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count), "list the nodes of a graph");
  return std::count_if(nodes.begin(), nodes.end(), [](cudaGraphNode_t node) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    LANTERN_CUDA_CHECK(cudaGraphNodeGetType(node, &type), "tell what a node of a graph is");
    return type == cudaGraphNodeTypeKernel;
  });
}

Error refused(const char* what, cudaError_t error) {
  cudaGetLastError();  // it has been heard
  return Error(ErrorCode::kUnsupported,
               fmt::format("CUDA could not {}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error)));
}

}  // namespace

CudaGraph::CudaGraph(GraphCapture capture, const CudaDevice& device, cudaGraphExec_t instance, size_t bytes,
                     int64_t kernels)
    : Graph(std::move(capture)), device_(device), instance_(instance), bytes_(bytes), kernels_(kernels) {}

int64_t cuda_kernel_count(const Graph& graph) { return static_cast<const CudaGraph&>(graph).kernels(); }

CudaGraph::~CudaGraph() {
  device_.make_current();
  cudaGraphExecDestroy(instance_);
}

void CudaGraph::run(StreamBackend& backend, LaunchLog& log) {
  size_t params_bytes = 0;
  for (const GraphCapture::Launch& launch : launches()) params_bytes += launch.params_bytes;
  log.begin("graph", params_bytes);
  LANTERN_CUDA_CHECK(cudaGraphLaunch(instance_, static_cast<cudaStream_t>(backend.native_handle())),
                     "launch the graph of the {}", to_string(bucket()));
}

CudaStream::CudaStream(CudaDevice& device) : device_(device) {
  device_.make_current();
  LANTERN_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  device_.add_stream(stream_);
}

CudaStream::~CudaStream() {
  device_.remove_stream(stream_);
  device_.make_current();
  cudaStreamDestroy(stream_);
}

void CudaStream::synchronize() { LANTERN_CUDA_CHECK(cudaStreamSynchronize(stream_), "wait for a stream"); }

void CudaStream::copy_to_device(void* destination, const void* source, size_t bytes) {
  LANTERN_CUDA_CHECK(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, stream_), "copy {} bytes",
                     bytes);
}

void CudaStream::copy_to_host(void* destination, const void* source, size_t bytes) {
  LANTERN_CUDA_CHECK(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToHost, stream_), "copy {} bytes",
                     bytes);
}

void CudaStream::fill(void* destination, uint32_t pattern, size_t bytes) {
  constexpr unsigned kThreads = 256, kMostBlocks = 1024;
  const size_t words = bytes / sizeof(pattern);
  auto* to = static_cast<std::byte*>(destination);
  if (words > 0) {
    const auto blocks = static_cast<unsigned>(std::min<size_t>((words + kThreads - 1) / kThreads, kMostBlocks));
    fill_words<<<blocks, kThreads, 0, stream_>>>(reinterpret_cast<uint32_t*>(to), pattern, words);
    LANTERN_CUDA_CHECK(cudaGetLastError(), "fill {} bytes", bytes);
  }
  for (size_t at = words * sizeof(pattern); at < bytes; ++at) {  // little-endian, as the words are
    const auto byte = static_cast<int>((pattern >> (8 * (at % sizeof(pattern)))) & 0xffu);
    LANTERN_CUDA_CHECK(cudaMemsetAsync(to + at, byte, 1, stream_), "fill {} bytes", bytes);
  }
}

Status CudaStream::begin_capture() {
  device_.make_current();
  device_.set_capturing(stream_, true);
  const cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  if (error == cudaSuccess) return {};
  device_.set_capturing(stream_, false);
  return refused("begin a capture", error);
}

Result<std::unique_ptr<Graph>> CudaStream::end_capture(GraphCapture capture) {
  device_.make_current();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
  device_.set_capturing(stream_, false);
  if (ended != cudaSuccess) return refused("end a capture", ended);
  size_t free_before = 0, free_after = 0, total = 0;
  cudaGraphExec_t instance = nullptr;
  cudaError_t error = cudaMemGetInfo(&free_before, &total);
  if (error == cudaSuccess) error = cudaGraphInstantiate(&instance, graph, 0);
  // What a first launch would otherwise do.
  if (error == cudaSuccess) error = cudaGraphUpload(instance, stream_);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free_after, &total);
  const int64_t kernels = error == cudaSuccess ? count_kernels(graph) : 0;
  cudaGraphDestroy(graph);
  if (error != cudaSuccess) {
    if (instance != nullptr) cudaGraphExecDestroy(instance);
    return refused("make a graph of a capture", error);
  }
  const size_t bytes = free_before > free_after ? free_before - free_after : 0;
  return std::unique_ptr<Graph>(std::make_unique<CudaGraph>(std::move(capture), device_, instance, bytes, kernels));
}

void CudaStream::abandon_capture() {
  device_.make_current();
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream_, &graph);
  device_.set_capturing(stream_, false);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();  // what was wrong with the capture is known by other means
}

void CudaStream::record(const HostLaunch& launch) {
  CHECK(false, "the host kernel '{}' was recorded on {}", launch.name, device_.description());
}

}  // namespace lantern
