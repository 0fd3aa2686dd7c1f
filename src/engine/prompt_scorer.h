// The log-probabilities of prompts: every position's logits are needed, and exist a few rows at a time. Its memory is
// that of the step's tokens, whatever the length of the prompts.
#pragma once

#include <memory>

#include "device/persistent_buffer.h"
#include "device/stream.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"
#include "engine/step_kernels.h"
#include "model/model.h"

namespace lantern {

class PromptScorer {
 public:
  // For steps of up to `max_tokens` tokens with `max_logprobs` most likely tokens each; -1: none, and no memory.
  // Errors: out_of_memory with numbers.
  Status create(Device& device, int32_t max_tokens, int32_t max_logprobs);

  // After Model::forward() and before advance_slots(): scores the step's `rows` rows. Uses the model's logits.
  void run(Stream& stream, const Model& model, const SamplerSlots& texts, const DevPtr<const int32_t>& upload,
           const SlotArrays& slots, int32_t rows);
  // The first `rows` rows of the last run; `to` is theirs when the stream is through. Precondition: `to` has room.
  void copy_to_host(Stream& stream, Logprobs& to, int32_t rows) const;

 private:
  template <class T>
  using Buffer = std::unique_ptr<PersistentBuffer<T>>;

  int32_t width_ = 0;  // most likely tokens of each row
  Buffer<int32_t> token_rows_, row_slots_, positions_, counts_, targets_;
  Buffer<float> logprobs_, top_logprobs_;
  Buffer<int32_t> ranks_, top_tokens_;
};

}  // namespace lantern
