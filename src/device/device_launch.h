// Launches an op where the stream's device runs it: the host kernel, or the entry of its room's table of CUDA
// launches. A room's table is null in builds without CUDA, which have no CUDA device either.
#pragma once

#include "device/stream.h"

namespace lantern {

// Launches on a cudaStream_t; grids and blocks follow from the parameters' host values alone.
template <class Params>
using CudaLaunch = void (*)(void* cuda_stream, const Params& params);

template <LaunchParams Params, class Table>
void launch_on_device(Stream& stream, const char* name, HostKernel<Params> host, const Table* cuda_table,
                      CudaLaunch<Params> Table::* cuda, const Params& params) {
  void* cuda_stream = stream.native_handle();
  if (cuda_stream == nullptr) return stream.launch(name, host, params);
  stream.note_launch(name, &params, sizeof(Params));
  (cuda_table->*cuda)(cuda_stream, params);
}

}  // namespace lantern
