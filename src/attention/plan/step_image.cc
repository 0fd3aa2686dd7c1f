#include "attention/plan/step_image.h"

#include "base/check.h"

namespace lantern {

StepImage::StepImage(const StepInputs& inputs, int32_t groups)
    : words_(static_cast<size_t>(inputs.all().size()), kPlanPoison) {
  const auto place = [&](const Fixed<const int32_t>& part) {
    if (part.empty()) return Part{};
    return Part{static_cast<size_t>(part.data() - inputs.all().data()), static_cast<size_t>(part.size())};
  };
  num_requests_ = place(inputs.num_requests()).begin;
  num_tokens_ = place(inputs.num_tokens()).begin;
  query_start_loc_ = place(inputs.query_start_loc());
  seq_lens_ = place(inputs.seq_lens());
  prefilling_ = place(inputs.prefilling());
  accepted_ = place(inputs.accepted());
  for (int32_t g = 0; g < groups; ++g) {
    block_tables_.push_back(place(inputs.block_table(g)));
    strides_.push_back(static_cast<size_t>(inputs.block_table_stride(g)));
  }
}

std::span<int32_t> StepImage::block_table(int32_t group, int32_t request) {
  const auto g = static_cast<size_t>(group);
  return part(block_tables_[g]).subspan(static_cast<size_t>(request) * strides_[g], strides_[g]);
}

void StepImage::write(Device& device, const StepInputs& inputs) const {
  CHECK(static_cast<size_t>(inputs.all().size()) == words_.size(), "an image of {} words was written into {}",
        words_.size(), inputs.all().size());
  device.copy_to_device(inputs.all().data(), words_.data(), words_.size() * sizeof(int32_t));
}

}  // namespace lantern
