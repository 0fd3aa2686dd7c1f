// The step kernels' launches on CUDA. Counts are read on the device: grids follow from the bucket alone.
#pragma once

#include "device/device_launch.h"
#include "engine/step_kernels.h"

namespace lantern {

struct CudaStepKernels {
  CudaLaunch<SlotChangesParams> apply_slot_changes;
  CudaLaunch<BuildInputsParams> build_step_inputs;
  CudaLaunch<MaskUnwrittenParams> mask_unwritten;
  CudaLaunch<PrepareSamplesParams> prepare_samples;
  CudaLaunch<PrepareScoresParams> prepare_scores;
  CudaLaunch<TraceSelectionsParams> trace_selections;
  CudaLaunch<AdvanceSlotsParams> advance_slots;
  CudaLaunch<PrepareMtpParams> prepare_mtp;
  CudaLaunch<AdvanceDraftsParams> advance_drafts;
};

// Null in builds without CUDA.
const CudaStepKernels* cuda_step_kernels();

}  // namespace lantern
