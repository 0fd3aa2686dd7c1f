#include "engine/prompt_scorer.h"

#include <algorithm>

#include "engine/make_buffer.h"

namespace lantern {

Status PromptScorer::create(Device& device, int32_t max_tokens, int32_t max_logprobs) {
  if (max_logprobs < 0) return {};
  width_ = max_logprobs;
  const int64_t rows = max_tokens;
  RETURN_IF_ERROR(make_buffer(device, "scored tokens", rows, token_rows_));
  RETURN_IF_ERROR(make_buffer(device, "slots of scored tokens", rows, row_slots_));
  RETURN_IF_ERROR(make_buffer(device, "positions of scored tokens", rows, positions_));
  RETURN_IF_ERROR(make_buffer(device, "logprobs of scored tokens", rows, counts_));
  RETURN_IF_ERROR(make_buffer(device, "tokens behind scored tokens", rows, targets_));
  RETURN_IF_ERROR(make_buffer(device, "prompt logprobs", rows, logprobs_));
  RETURN_IF_ERROR(make_buffer(device, "ranks of prompt tokens", rows, ranks_));
  RETURN_IF_ERROR(make_buffer(device, "most likely prompt tokens", rows * width_, top_tokens_));
  RETURN_IF_ERROR(make_buffer(device, "their prompt logprobs", rows * width_, top_logprobs_));
  return {};
}

void PromptScorer::run(Stream& stream, const Model& model, const SamplerSlots& texts,
                       const DevPtr<const int32_t>& upload, const SlotArrays& slots, int32_t rows) {
  if (rows == 0) return;
  prepare_scores(stream, {.upload = upload,
                          .slots = slots,
                          .token_rows = token_rows_->fixed(),
                          .row_slots = row_slots_->fixed(),
                          .positions = positions_->fixed(),
                          .counts = counts_->fixed(),
                          .rows = rows});
  prompt_targets(stream, {.slots = texts,
                          .row_slots = Fixed<const int32_t>(row_slots_->fixed()),
                          .positions = Fixed<const int32_t>(positions_->fixed()),
                          .targets = targets_->fixed(),
                          .rows = rows});
  const int32_t most = model.options().sample_rows;
  const int64_t k = width_;
  for (int32_t begin = 0; begin < rows; begin += most) {
    const int32_t some = std::min(most, rows - begin);
    model.logits(stream, Fixed<const int32_t>(token_rows_->fixed().sub(begin, some)), some);
    lantern::logprobs(stream, {.logits = Fixed<const float>(model.activations().logits),
                               .tokens = Fixed<const int32_t>(targets_->fixed().sub(begin, some)),
                               .counts = Fixed<const int32_t>(counts_->fixed().sub(begin, some)),
                               .logprobs = logprobs_->fixed().sub(begin, some),
                               .ranks = ranks_->fixed().sub(begin, some),
                               .top_tokens = top_tokens_->fixed().sub(begin * k, some * k),
                               .top_logprobs = top_logprobs_->fixed().sub(begin * k, some * k),
                               .rows = some,
                               .vocab = model.config().vocab_size,
                               .k = width_});
  }
}

void PromptScorer::copy_to_host(Stream& stream, Logprobs& to, int32_t rows) const {
  if (rows == 0) return;
  const auto count = static_cast<size_t>(rows);
  const size_t listed = count * static_cast<size_t>(width_);
  stream.copy_to_host(to.logprobs.data(), logprobs_->fixed().data(), count * sizeof(float));
  stream.copy_to_host(to.ranks.data(), ranks_->fixed().data(), count * sizeof(int32_t));
  if (listed == 0) return;
  stream.copy_to_host(to.top_tokens.data(), top_tokens_->fixed().data(), listed * sizeof(int32_t));
  stream.copy_to_host(to.top_logprobs.data(), top_logprobs_->fixed().data(), listed * sizeof(float));
}

}  // namespace lantern
