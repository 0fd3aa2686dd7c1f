#include "attention/plan/plan_graphs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace lantern {
namespace {

std::vector<int32_t> read_all(Device& device, const StepPlanBuffers& buffers) {
  std::vector<int32_t> words(static_cast<size_t>(buffers.all().size()));
  device.copy_to_host(words.data(), buffers.all().data(), words.size() * sizeof(int32_t));
  return words;
}

}  // namespace

BucketShape shape_of(const BucketKey& bucket) { return {bucket.tokens, bucket.requests, bucket.query_width}; }

Result<std::unique_ptr<PlanGraphs>> PlanGraphs::capture(Device& device, const StepPlanConfig& config,
                                                        std::span<const BucketKey> buckets, const Step& step,
                                                        const StepImage* at_capture) {
  for (const BucketKey& bucket : buckets) RETURN_IF_ERROR(check_bucket(shape_of(bucket), config.limits));
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::create(device, size_t{1} << 16));
  std::unique_ptr<PlanGraphs> graphs(new PlanGraphs(device, std::move(workspace)));
  RETURN_IF_ERROR(graphs->inputs_.create(device, config));
  RETURN_IF_ERROR(graphs->buffers_.create(device, config));
  (at_capture != nullptr ? *at_capture : graphs->blank_image()).write(device, graphs->inputs_);
  for (const BucketKey& bucket : buckets) {
    const StepPlanParams params = graphs->buffers_.params(graphs->inputs_, shape_of(bucket));
    RETURN_IF_ERROR(graphs->graphs_.capture(graphs->stream_, bucket, [&](Stream& stream) -> Status {
      step(stream, params);
      return {};
    }));
  }
  graphs->stream_.set_poison_before_replay(true);
  return graphs;
}

std::vector<int32_t> PlanGraphs::replay(const BucketKey& bucket, const StepImage& image) {
  Graph* graph = graphs_.find(bucket);
  CHECK(graph != nullptr, "the {} was not captured", to_string(bucket));
  image.write(device_, inputs_);
  buffers_.poison(device_);
  graph->replay(stream_);
  stream_.synchronize();
  return read_all(device_, buffers_);
}

Result<std::vector<int32_t>> plan_from_scratch(Device& device, const StepPlanConfig& config, const BucketKey& bucket,
                                               const StepImage& image) {
  StepInputs inputs;
  StepPlanBuffers buffers;
  RETURN_IF_ERROR(inputs.create(device, config));
  RETURN_IF_ERROR(buffers.create(device, config));
  image.write(device, inputs);
  buffers.poison(device);
  Stream stream(device);
  plan_step(stream, buffers.params(inputs, shape_of(bucket)));
  stream.synchronize();
  return read_all(device, buffers);
}

std::string first_difference(std::span<const int32_t> got, std::span<const int32_t> want) {
  if (got.size() != want.size()) return fmt::format("{} words instead of {}", got.size(), want.size());
  const auto [in_got, in_want] = std::mismatch(got.begin(), got.end(), want.begin());
  if (in_got == got.end()) return {};
  return fmt::format("word {} of the plan's memory is {} instead of {}", in_got - got.begin(), *in_got, *in_want);
}

}  // namespace lantern
