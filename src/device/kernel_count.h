// How many kernels a captured step is made of.
#pragma once

#include <cstdint>

#include "device/graph.h"

namespace lantern {

// That one replay runs. An op's launch is one on the host device, and on others as many as it takes.
int64_t kernel_count(const Graph& graph);

// Of a graph of a CUDA device: for kernel_count().
int64_t cuda_kernel_count(const Graph& graph);

}  // namespace lantern
