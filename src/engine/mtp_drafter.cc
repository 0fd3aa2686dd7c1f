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
    token_request_ = arena.take(limits.max_tokens);
    token_context_len_ = arena.take(limits.max_tokens);
    slot_mapping_ = arena.take(limits.max_tokens);
    next_token_ids_ = arena.take(limits.max_tokens);
  }));
  ASSIGN_OR_RETURN(row_numbers_, PersistentBuffer<int32_t>::create(device, "numbers of draft rows", requests));
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
  device.copy_to_device(row_numbers_->fixed().data(), numbers.data(), numbers.size() * sizeof(int32_t));
  return {};
}

MtpInputs MtpDrafter::mtp_inputs() const {
  return {.token_request = token_request_,
          .token_context_len = token_context_len_,
          .slot_mapping = slot_mapping_,
          .next_token_ids = next_token_ids_};
}

StepView MtpDrafter::view_of(const StepView& step) const {
  StepView view = step;
  view.key_offset = 1;
  view.token_request = Fixed<const int32_t>(token_request_);
  view.token_context_len = Fixed<const int32_t>(token_context_len_);
  view.slot_mapping = Fixed<const int32_t>(slot_mapping_);
  return view;
}

void MtpDrafter::fill(Stream& stream, const Step& step, const StepView& view, int32_t rows, bool runs,
                      PieceRunner* pieces) {
  prepare_mtp(stream, {.upload = step.upload,
                       .slots = step.slots,
                       .inputs = step.inputs,
                       .token_ids = step.token_ids,
                       .token_request = view.token_request,
                       .token_context_len = view.token_context_len,
                       .outcome = step.outcome,
                       .mtp = mtp_inputs(),
                       .draft_rows = draft_rows_,
                       .tokens = view.tokens,
                       .num_sampling = rows,
                       .block_size = block_size_});
  if (!runs) return model_.mtp_clear(stream, view_of(view));
  model_.mtp_forward(stream, view_of(view), Fixed<const int32_t>(next_token_ids_),
                     Fixed<const float>(model_.activations().hidden), nullptr, Model::MtpSelection::kComputed, pieces);
}

void MtpDrafter::draft(Stream& stream, const Step& step, int32_t rows, int32_t passes) {
  if (rows == 0) return;
  const RowCount real_rows{.count = step.num_sampling};
  const bool shares = model_.config().mtp_shares_selection;
  const auto selection = shares ? Model::MtpSelection::kReused : Model::MtpSelection::kComputed;
  // One token for each sampling row; which request is whose is in token_request_.
  StepView view = view_of({});
  view.tokens = view.decode_tokens = rows;
  view.real_tokens = real_rows;
  view.requests = model_.options().limits.max_requests;
  view.block_size = block_size_;
  view.block_table_stride = step.inputs.block_table_stride;
  view.block_table = step.block_table;
  for (int32_t pass = 1; pass <= passes; ++pass) {
    sample_drafts(stream, pass == 1 ? draft_rows_ : row_numbers_->fixed(), rows, real_rows);
    advance_drafts(stream, {.upload = step.upload,
                            .slots = step.slots,
                            .inputs = step.inputs,
                            .wanted_drafts = step.wanted_drafts,
                            .drafts = Fixed<const int32_t>(drafts_),
                            .mtp = mtp_inputs(),
                            .num_sampling = rows,
                            .pass = pass,
                            .block_size = block_size_});
    if (pass == passes) break;
    DevPtr<const float> hidden = model_.mtp_hidden();
    if (pass == 1) {
      gather_rows(stream, {.x = hidden,
                           .x_stride = model_.config().hidden_size,
                           .rows = Fixed<const int32_t>(draft_rows_),
                           .y = hidden_->fixed(),
                           .count = rows,
                           .cols = model_.config().hidden_size});
      hidden = Fixed<const float>(hidden_->fixed());
      if (shares) model_.mtp_keep_selection(stream, Fixed<const int32_t>(draft_rows_), rows);
    }
    model_.mtp_forward(stream, view, Fixed<const int32_t>(next_token_ids_), hidden, nullptr, selection);
  }
}

void MtpDrafter::sample_drafts(Stream& stream, const Fixed<const int32_t>& all_rows, int32_t rows,
                               const RowCount& real_rows) {
  const int32_t most = model_.options().sample_rows;
  for (int32_t begin = 0; begin < rows; begin += most) {
    const int32_t count = std::min(most, rows - begin);
    model_.mtp_logits(stream, all_rows.sub(begin, count), count, real_rows.from(begin));
    sample(stream, {.logits = Fixed<const float>(model_.activations().logits),
                    .settings = Fixed<const SamplingSettings>(greedy_->fixed()),
                    .output_positions = Fixed<const int64_t>(first_position_->fixed()),
                    .row_slots = Fixed<const int32_t>(draft_rows_.sub(begin, count)),  // -1: padding
                    .tokens = drafts_.sub(begin, count),
                    .rows = count,
                    .vocab = model_.config().vocab_size,
                    .scratch = scratch_->fixed(),
                    .scratch_bytes = scratch_->capacity()});
  }
}

}  // namespace lantern
