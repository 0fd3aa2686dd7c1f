#include "engine/step_buffers.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace lantern {

Status StepBuffers::create(Device& device, const StepLimits& limits, int32_t sample_rows, int32_t vocab) {
  StepPlanConfig config;
  config.limits = limits;
  config.groups = {StepPlanConfig::group_of(limits)};
  RETURN_IF_ERROR(inputs_.create(device, config));
  RETURN_IF_ERROR(plan_.create(device, config));
  const auto make = [&]<class T>(Buffer<T>& buffer, const char* owner, int64_t capacity) -> Status {
    ASSIGN_OR_RETURN(buffer, PersistentBuffer<T>::create(device, owner, capacity));
    return {};
  };
  RETURN_IF_ERROR(make(token_ids_, "token_ids", limits.max_tokens));
  RETURN_IF_ERROR(make(sample_rows_, "sample_rows", sample_rows));
  RETURN_IF_ERROR(make(sampled_, "sampled", sample_rows));
  RETURN_IF_ERROR(make(scored_, "scored", sample_rows));
  RETURN_IF_ERROR(make(top_tokens_, "top_tokens", int64_t{sample_rows} * kMaxTopLogprobs));
  RETURN_IF_ERROR(make(output_positions_, "output_positions", sample_rows));
  RETURN_IF_ERROR(make(settings_, "sampling settings", sample_rows));
  RETURN_IF_ERROR(make(logprobs_, "logprobs", sample_rows));
  RETURN_IF_ERROR(make(top_logprobs_, "top_logprobs", int64_t{sample_rows} * kMaxTopLogprobs));
  RETURN_IF_ERROR(make(sample_scratch_, "sampler scratch", sample_scratch_bytes(1, vocab)));
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

std::optional<int32_t> StepBuffers::sample(Stream& stream, const Model& model, const SamplingSettings& settings,
                                           int64_t output_position) {
  Device& device = stream.device();
  device.copy_to_device(settings_->fixed().data(), &settings, sizeof(settings));
  device.copy_to_device(output_positions_->fixed().data(), &output_position, sizeof(output_position));
  SampleParams p;
  p.logits = Fixed<const float>(model.activations().logits);
  p.settings = Fixed<const SamplingSettings>(settings_->fixed());
  p.output_positions = Fixed<const int64_t>(output_positions_->fixed());
  p.tokens = sampled_->fixed();
  p.logprobs = logprobs_->fixed();
  p.rows = 1;
  p.vocab = model.config().vocab_size;
  p.scratch = sample_scratch_->fixed();
  p.scratch_bytes = sample_scratch_->capacity();
  lantern::sample(stream, p);
  stream.synchronize();
  check_plan(device);
  int32_t token = 0;
  float logprob = 0;
  device.copy_to_host(&token, sampled_->fixed().data(), sizeof(token));
  device.copy_to_host(&logprob, logprobs_->fixed().data(), sizeof(logprob));
  if (logprob == -std::numeric_limits<float>::infinity()) return std::nullopt;
  return token;
}

void StepBuffers::score_rows(Stream& stream, const Model& model, std::span<const int32_t> next, int32_t top_k,
                             const std::function<void(TokenScore)>& sink) {
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
    sink({row_logprobs[r],
          {top_tokens.begin() + first, top_tokens.begin() + last},
          {top_logprobs.begin() + first, top_logprobs.begin() + last}});
  }
}

}  // namespace lantern
