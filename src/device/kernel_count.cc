#include "device/kernel_count.h"

#include <iterator>

#include "device/host/host_stream.h"

namespace lantern {

int64_t kernel_count(const Graph& graph) {
  if (dynamic_cast<const HostGraph*>(&graph) != nullptr) return std::ssize(graph.launches());
  return cuda_kernel_count(graph);
}

}  // namespace lantern
