#include "base/check.h"
#include "device/kernel_count.h"

namespace lantern {

int64_t cuda_kernel_count(const Graph& graph) {
  CHECK(false, "the graph of the {} is of no device in this build", to_string(graph.bucket()));
}

}  // namespace lantern
