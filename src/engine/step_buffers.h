// The fixed buffers of a one-sequence session: raw step inputs, the plan made from them, and the sampler's rows.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "attention/plan/step_inputs.h"
#include "attention/plan/step_plan_buffers.h"
#include "attention/step_view.h"
#include "device/persistent_buffer.h"
#include "device/stream.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "model/model.h"
#include "ops/sampling.h"

namespace lantern {

class StepBuffers {
 public:
  static constexpr int32_t kMaxTopLogprobs = 64;

  Status create(Device& device, const StepLimits& limits, int32_t sample_rows, int32_t vocab);

  // Plans a step of the one sequence: `tokens` at positions begin, begin + 1, ...
  void run_plan(Stream& stream, std::span<const int32_t> tokens, int32_t begin, bool decode);
  const StepView& view() const { return view_; }
  DevPtr<const int32_t> token_ids() const { return Fixed<const int32_t>(token_ids_->fixed()); }

  void set_sample_rows(Device& device, int32_t first_row, int32_t count);
  DevPtr<const int32_t> sample_rows() const { return Fixed<const int32_t>(sample_rows_->fixed()); }

  // The text that sample() continues, and its request's settings.
  void start_text(Stream& stream, const SlotStart& start) { sampler_->start_slot(stream, 0, start); }
  // Draws from the first row of the model's logits and adds the token to the text. The position is for messages.
  // Errors: logits that are no numbers; no token is left to draw.
  Result<int32_t> sample(Stream& stream, const Model& model, int64_t output_position);
  // Scores next[r] under row r of the model's logits, in order. The position of the first of these in the text is for
  // messages. Errors: logits that are no numbers.
  Status score_rows(Stream& stream, const Model& model, std::span<const int32_t> next, int64_t position, int32_t top_k,
                    const std::function<void(TokenScore)>& sink);

 private:
  // A plan that found a fault in what this class wrote is a broken invariant.
  void check_plan(Device& device) const;

  StepInputs inputs_;
  StepPlanBuffers plan_;
  StepView view_;
  template <class T>
  using Buffer = std::unique_ptr<PersistentBuffer<T>>;
  Buffer<int32_t> token_ids_;
  Buffer<int32_t> sample_rows_, scored_, top_tokens_;
  Buffer<float> logprobs_, top_logprobs_;
  std::unique_ptr<Sampler> sampler_;
  Buffer<int32_t> sample_request_;  // its one request: num_requests 1, sample_start_loc {0, 1}, slot 0
  Buffer<int32_t> sampled_;         // {token, number of tokens, status}
};

}  // namespace lantern
