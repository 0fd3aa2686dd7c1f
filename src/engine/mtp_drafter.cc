#include "engine/mtp_drafter.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/embedding.h"
#include "ops/sampling.h"

namespace lantern {

Result<std::unique_ptr<MtpDrafter>> MtpDrafter::create(Device& device, Model& model, const EngineSettings& settings) {
  std::unique_ptr<MtpDrafter> drafter(new MtpDrafter(model, settings));
  RETURN_IF_ERROR(drafter->create_buffers(device, settings.limits));
  return drafter;
}

Status MtpDrafter::create_buffers(Device& device, const StepLimits& limits) {
  const int64_t requests = limits.max_requests;
  const int64_t logits_rows = model_.options().sample_rows;
  RETURN_IF_ERROR(arena_.create(device, "rows of drafts", [&](plan::IntArena& arena) {
    draft_rows_ = arena.take(requests);
    drafts_ = arena.take(requests);
    row_numbers_ = arena.take(requests);
    token_request_ = arena.take(limits.max_tokens);
    token_context_len_ = arena.take(limits.max_tokens);
    slot_mapping_ = arena.take(limits.max_tokens);
    next_token_ids_ = arena.take(limits.max_tokens);
  }));
  ASSIGN_OR_RETURN(greedy_, PersistentBuffer<SamplingSettings>::create(device, "greedy settings", logits_rows));
  ASSIGN_OR_RETURN(first_position_, PersistentBuffer<int64_t>::create(device, "positions of drafts", logits_rows));
  ASSIGN_OR_RETURN(hidden_, PersistentBuffer<float>::create(device, "hidden states of drafts",
                                                            requests * model_.config().hidden_size));
  ASSIGN_OR_RETURN(scratch_,
                   PersistentBuffer<std::byte>::create(device, "scratch of drafts",
                                                       sample_scratch_bytes(logits_rows, model_.config().vocab_size)));
  const std::vector<SamplingSettings> greedy(static_cast<size_t>(logits_rows), SamplingSettings{.temperature = 0.0f});
  device.copy_to_device(greedy_->fixed().data(), greedy.data(), greedy.size() * sizeof(SamplingSettings));
  std::vector<int32_t> numbers(static_cast<size_t>(requests));
  std::iota(numbers.begin(), numbers.end(), 0);
  device.copy_to_device(row_numbers_.data(), numbers.data(), numbers.size() * sizeof(int32_t));
  return {};
}

MtpInputs MtpDrafter::mtp_inputs() const {
  return {.token_request = token_request_,
          .token_context_len = token_context_len_,
          .slot_mapping = slot_mapping_,
          .next_token_ids = next_token_ids_};
}

void MtpDrafter::run(Stream& stream, const Step& step) {
  const MtpInputs mtp = mtp_inputs();
  prepare_mtp(stream, {.upload = step.upload,
                       .slots = step.slots,
                       .inputs = step.inputs,
                       .token_ids = step.token_ids,
                       .token_request = step.view.token_request,
                       .token_context_len = step.view.token_context_len,
                       .outcome = step.outcome,
                       .mtp = mtp,
                       .draft_rows = draft_rows_,
                       .tokens = step.view.tokens,
                       .num_sampling = step.num_sampling,
                       .block_size = block_size_});
  StepView view = step.view;
  view.key_offset = 1;
  view.token_request = Fixed<const int32_t>(token_request_);
  view.token_context_len = Fixed<const int32_t>(token_context_len_);
  view.slot_mapping = Fixed<const int32_t>(slot_mapping_);
  if (!step.runs) {
    model_.mtp_clear(stream, view);
    return;
  }
  const DevPtr<const int32_t> next_tokens = Fixed<const int32_t>(next_token_ids_);
  model_.mtp_forward(stream, view, next_tokens, Fixed<const float>(model_.activations().hidden));
  if (step.num_sampling == 0) return;

  // From here on one token for each sampling row.
  view.tokens = view.decode_tokens = step.num_sampling;
  for (int32_t pass = 1; pass <= step.draft_passes; ++pass) {
    sample_drafts(stream, pass == 1 ? draft_rows_ : row_numbers_, step.num_sampling);
    advance_drafts(stream, {.upload = step.upload,
                            .slots = step.slots,
                            .inputs = step.inputs,
                            .wanted_drafts = step.wanted_drafts,
                            .drafts = Fixed<const int32_t>(drafts_),
                            .mtp = mtp,
                            .num_sampling = step.num_sampling,
                            .pass = pass,
                            .block_size = block_size_});
    if (pass == step.draft_passes) break;
    DevPtr<const float> hidden = model_.mtp_hidden();
    if (pass == 1) {
      gather_rows(stream, {.x = hidden,
                           .x_stride = model_.config().hidden_size,
                           .rows = Fixed<const int32_t>(draft_rows_),
                           .y = hidden_->fixed(),
                           .count = step.num_sampling,
                           .cols = model_.config().hidden_size});
      hidden = Fixed<const float>(hidden_->fixed());
    }
    model_.mtp_forward(stream, view, next_tokens, hidden);
  }
}

void MtpDrafter::sample_drafts(Stream& stream, const Fixed<const int32_t>& all_rows, int32_t num_sampling) {
  const int32_t most = model_.options().sample_rows;
  for (int32_t begin = 0; begin < num_sampling; begin += most) {
    const int32_t rows = std::min(most, num_sampling - begin);
    model_.mtp_logits(stream, all_rows.sub(begin, rows), rows);
    sample(stream, {.logits = Fixed<const float>(model_.activations().logits),
                    .settings = Fixed<const SamplingSettings>(greedy_->fixed()),
                    .output_positions = Fixed<const int64_t>(first_position_->fixed()),
                    .tokens = drafts_.sub(begin, rows),
                    .rows = rows,
                    .vocab = model_.config().vocab_size,
                    .scratch = scratch_->fixed(),
                    .scratch_bytes = scratch_->capacity()});
  }
}

}  // namespace lantern
