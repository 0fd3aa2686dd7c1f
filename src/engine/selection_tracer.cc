#include "engine/selection_tracer.h"

#include <fmt/format.h>

#include <vector>

#include "attention/plan/step_plan_buffers.h"
#include "engine/make_buffer.h"
#include "engine/step_kernels.h"

namespace lantern {

Result<int32_t> choose_traced_layer(const ModelConfig& config, int32_t asked) {
  int32_t last = -1;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    if (config.computes_selection(layer)) last = layer;
  }
  if (last < 0) return Error(ErrorCode::kUnsupported, "this model has no sparse attention: no layer can be traced");
  if (asked == -1) return last;
  if (asked >= 0 && asked < config.num_layers && config.computes_selection(asked)) return asked;
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("traced_layer is {}, and that layer of {} makes no choice of its own; the last that does is "
                           "{}",
                           asked, config.num_layers, last));
}

Result<std::unique_ptr<SelectionTracer>> SelectionTracer::create(Device& device, const EngineSettings& settings,
                                                                 int32_t layer) {
  std::unique_ptr<SelectionTracer> tracer(new SelectionTracer(layer, settings.traced_record_words()));
  RETURN_IF_ERROR(make_buffer(device, "traced selections", settings.traced_words(), tracer->records_));
  return tracer;
}

void SelectionTracer::run(Stream& stream, int32_t layer, const DevPtr<const int32_t>& upload,
                          const Activations& activations) const {
  if (layer != layer_) return;
  trace_selections(stream, {.upload = upload,
                            .positions = Fixed<const int32_t>(activations.selected_positions),
                            .counts = Fixed<const int32_t>(activations.selected_counts),
                            .top_k = record_words_ - 1,
                            .records = records_->fixed()});
}

void SelectionTracer::copy_to_host(Stream& stream, std::span<int32_t> to, int32_t rows) const {
  if (rows == 0) return;
  const Fixed<int32_t> from = records(rows);
  stream.copy_to_host(to.data(), from.data(), static_cast<size_t>(from.size()) * sizeof(int32_t));
}

void SelectionTracer::poison(Device& device) const {
  const Fixed<int32_t> all = records_->fixed();
  const std::vector<int32_t> values(static_cast<size_t>(all.size()), kPlanPoison);
  device.copy_to_device(all.data(), values.data(), values.size() * sizeof(int32_t));
}

}  // namespace lantern
