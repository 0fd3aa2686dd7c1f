#include "device/host/host_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "device/host/host_device.h"

namespace lantern {

HostGraph::HostGraph(GraphCapture capture, Recording recording)
    : Graph(std::move(capture)), recording_(std::move(recording)) {
  recording_.launches.shrink_to_fit();
  recording_.params.shrink_to_fit();
}

size_t HostGraph::bytes() const {
  return sizeof(*this) + recording_.launches.capacity() * sizeof(Launch) +
         recording_.params.capacity() * sizeof(std::max_align_t);
}

void HostGraph::run(StreamBackend& backend, LaunchLog& log) {
  HostContext& context = *backend.host_context();
  for (const Launch& launch : recording_.launches) {
    log.begin(launch.name, launch.params_bytes);
    launch.invoke(launch.kernel, recording_.params.data() + launch.params_begin, context);
    log.end();
  }
}

void HostStream::copy_to_device(void* destination, const void* source, size_t bytes) {
  HostDevice::copy(destination, source, bytes);
}

void HostStream::copy_to_host(void* destination, const void* source, size_t bytes) {
  HostDevice::copy(destination, source, bytes);
}

void HostStream::fill(void* destination, uint32_t pattern, size_t bytes) {
  // In blocks: workspaces are filled before each replay that poisons them.
  std::array<uint32_t, 1024> block;
  block.fill(pattern);
  auto* to = static_cast<std::byte*>(destination);
  for (size_t at = 0; at < bytes; at += sizeof(block)) {
    std::memcpy(to + at, block.data(), std::min(sizeof(block), bytes - at));
  }
}

Status HostStream::begin_capture() {
  recording_ = {};
  return {};
}

Result<std::unique_ptr<Graph>> HostStream::end_capture(GraphCapture capture) {
  return std::unique_ptr<Graph>(new HostGraph(std::move(capture), std::exchange(recording_, {})));
}

void HostStream::record(const HostLaunch& launch) {
  constexpr size_t kUnit = sizeof(std::max_align_t);
  const size_t begin = recording_.params.size();
  recording_.params.resize(begin + (launch.params_bytes + kUnit - 1) / kUnit);
  std::memcpy(recording_.params.data() + begin, launch.params, launch.params_bytes);
  recording_.launches.push_back({launch.name, launch.kernel, launch.invoke, begin, launch.params_bytes});
}

}  // namespace lantern
