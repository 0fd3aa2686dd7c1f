#include "engine/step_buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "engine/make_buffer.h"

namespace lantern {
namespace {

Error no_number(std::string_view what, std::string_view of, int64_t position) {
  return Error(ErrorCode::kCorrupt,
               fmt::format("the model gives no number as {} of {} {}: its weights hold values that are not finite, or "
                           "do not belong to its config",
                           what, of, position));
}

}  // namespace

Status StepBuffers::create(Device& device, const StepLimits& limits, int32_t sample_rows, int32_t vocab) {
  StepPlanConfig config;
  config.limits = limits;
  config.groups = {StepPlanConfig::group_of(limits)};
  RETURN_IF_ERROR(inputs_.create(device, config));
  RETURN_IF_ERROR(plan_.create(device, config));
  RETURN_IF_ERROR(make_buffer(device, "token_ids", limits.max_tokens, token_ids_));
  RETURN_IF_ERROR(make_buffer(device, "sample_rows", sample_rows, sample_rows_));
  RETURN_IF_ERROR(make_buffer(device, "sampled request", 4, sample_request_));
  RETURN_IF_ERROR(make_buffer(device, "sampled token", 3, sampled_));
  const int32_t request[] = {1, 0, 1, 0};
  device.copy_to_device(sample_request_->fixed().data(), request, sizeof(request));
  ASSIGN_OR_RETURN(sampler_, Sampler::create(device, {.max_model_len = limits.max_model_len, .vocab = vocab}));
  RETURN_IF_ERROR(make_buffer(device, "scored", sample_rows, scored_));
  RETURN_IF_ERROR(make_buffer(device, "top_tokens", int64_t{sample_rows} * kMaxTopLogprobs, top_tokens_));
  RETURN_IF_ERROR(make_buffer(device, "logprobs", sample_rows, logprobs_));
  RETURN_IF_ERROR(make_buffer(device, "top_logprobs", int64_t{sample_rows} * kMaxTopLogprobs, top_logprobs_));
  // The sequence owns every block but the null block, in order.
  std::vector<int32_t> table(static_cast<size_t>(limits.max_blocks_per_request));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i) + 1;
  inputs_.write_block_table(device, 0, 0, table);
  return {};
}

void StepBuffers::run_plan(Stream& stream, std::span<const int32_t> tokens, int32_t begin, bool decode) {
  Device& device = stream.device();
  const auto count = static_cast<int32_t>(tokens.size());
  const StepLimits& limits = plan_.config().limits;
  CHECK(count >= 1 && count <= limits.max_tokens, "a step of {} tokens was planned, but buffers hold {}", count,
        limits.max_tokens);
  device.copy_to_device(token_ids_->fixed().data(), tokens.data(), tokens.size_bytes());
  const int32_t starts[2] = {0, count};
  const int32_t seq_len = begin + count;
  const int32_t prefilling = decode ? 0 : 1;
  inputs_.write(device, {.num_requests = 1,
                         .num_tokens = count,
                         .query_start_loc = starts,
                         .seq_lens = {&seq_len, 1},
                         .prefilling = {&prefilling, 1}});
  const BucketShape bucket{.tokens = count, .requests = 1, .query_width = 1};
  plan_step(stream, plan_.params(inputs_, bucket));
  view_ = plan_.view(inputs_, bucket, decode ? count : 0);
}

void StepBuffers::check_plan(Device& device) const {
  const int32_t errors = plan_.num_errors(device);
  CHECK(errors == 0, "the step plan found {} faults in a step of one sequence", errors);
}

void StepBuffers::set_sample_rows(Device& device, int32_t first_row, int32_t count) {
  CHECK(count <= sample_rows_->capacity(), "{} rows were asked for, but buffers hold {}", count,
        sample_rows_->capacity());
  std::vector<int32_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), first_row);
  device.copy_to_device(sample_rows_->fixed().data(), rows.data(), rows.size() * sizeof(int32_t));
}

Result<int32_t> StepBuffers::sample(Stream& stream, const Model& model, int64_t output_position) {
  const Fixed<const int32_t> request(sample_request_->fixed());
  const Fixed<int32_t> sampled = sampled_->fixed();
  sampler_->begin(stream, {.requests = {.num_requests = request.sub(0, 1),
                                        .sample_start_loc = request.sub(1, 2),
                                        .slots = request.sub(3, 1),
                                        .max_requests = 1},
                           .rows = 1});
  sampler_->sample(stream, Fixed<const float>(model.activations().logits), 0, 1);
  sampler_->verify(stream, sampled.sub(0, 1), sampled.sub(1, 1), sampled.sub(2, 1));
  stream.synchronize();
  Device& device = stream.device();
  check_plan(device);
  std::array<int32_t, 3> outcome{};
  device.copy_to_host(outcome.data(), sampled.data(), sizeof(outcome));
  switch (static_cast<RowStatus>(outcome[2])) {
    case RowStatus::kOk: return outcome[0];
    case RowStatus::kNotFinite: return no_number("a logit", "output token", output_position);
    case RowStatus::kNoToken: break;
  }
  return Error(ErrorCode::kInvalidArgument,
               "logit_bias, bad_words and min_tokens together leave no token to choose; allow some");
}

Status StepBuffers::score_rows(Stream& stream, const Model& model, std::span<const int32_t> next, int64_t position,
                               int32_t top_k, const std::function<void(TokenScore)>& sink) {
  Device& device = stream.device();
  device.copy_to_device(scored_->fixed().data(), next.data(), next.size_bytes());
  const int32_t k = std::min(top_k, model.config().vocab_size);
  LogprobParams p;
  p.logits = Fixed<const float>(model.activations().logits);
  p.tokens = Fixed<const int32_t>(scored_->fixed());
  p.logprobs = logprobs_->fixed();
  p.top_tokens = top_tokens_->fixed();
  p.top_logprobs = top_logprobs_->fixed();
  p.rows = static_cast<int64_t>(next.size());
  p.vocab = model.config().vocab_size;
  p.k = k;
  lantern::logprobs(stream, p);
  stream.synchronize();
  check_plan(device);
  const auto rows = next.size();
  const auto width = static_cast<size_t>(k);
  std::vector<float> row_logprobs(rows), top_logprobs(rows * width);
  std::vector<int32_t> top_tokens(rows * width);
  device.copy_to_host(row_logprobs.data(), logprobs_->fixed().data(), rows * sizeof(float));
  device.copy_to_host(top_logprobs.data(), top_logprobs_->fixed().data(), rows * width * sizeof(float));
  device.copy_to_host(top_tokens.data(), top_tokens_->fixed().data(), rows * width * sizeof(int32_t));
  for (size_t r = 0; r < rows; ++r) {
    const auto first = static_cast<std::ptrdiff_t>(r * width);
    const auto last = static_cast<std::ptrdiff_t>((r + 1) * width);
    if (!std::isfinite(row_logprobs[r]) || !std::all_of(top_logprobs.begin() + first, top_logprobs.begin() + last,
                                                        [](float value) { return std::isfinite(value); })) {
      return no_number("the log-probability", "token", position + static_cast<int64_t>(r));
    }
    sink({row_logprobs[r],
          {top_tokens.begin() + first, top_tokens.begin() + last},
          {top_logprobs.begin() + first, top_logprobs.begin() + last}});
  }
  return {};
}

}  // namespace lantern
