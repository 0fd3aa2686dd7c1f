// Drafts by the model's own MTP layer. A pass over the tokens of the step fills the layer's cache and predicts the
// token behind each row's last accepted one; further passes, one token for each sampling row, draft what follows it.
#pragma once

#include <memory>

#include "engine/engine_settings.h"
#include "engine/step_kernels.h"
#include "model/model.h"

namespace lantern {

class MtpDrafter {
 public:
  // The parts of a step on the device.
  struct Step {
    DevPtr<const int32_t> upload;
    SlotArrays slots;
    StepInputs::Writable inputs;
    DevPtr<const int32_t> block_table;    // of the inputs
    DevPtr<const int32_t> token_ids;      // [tokens]
    StepOutcome outcome;                  // verified
    DevPtr<const int32_t> wanted_drafts;  // [requests]
    DevPtr<const int32_t> num_sampling;   // [1]: rows of the step that sample
  };

  // `device` and `model`, which has an MTP layer, must outlive the drafter.
  // Errors: out_of_memory with numbers.
  static Result<std::unique_ptr<MtpDrafter>> create(Device& device, Model& model, const EngineSettings& settings);

  // Over the tokens of a step whose outcome is known, as they were planned (`view`): fills the MTP layer's cache. Up to
  // `rows` rows of the step sample. Overwrites the model's hidden states. The layer runs by `pieces`, where it is
  // given.
  void fill(Stream& stream, const Step& step, const StepView& view, int32_t rows, bool runs,
            PieceRunner* pieces = nullptr);
  // Then: puts the first `passes` drafts into the slots that want as many.
  void draft(Stream& stream, const Step& step, int32_t rows, int32_t passes);

  // Every index and length becomes senseless, as the plan's poison is: nothing may come from one step into the next.
  void poison(Device& device) const { arena_.fill(device, kPlanPoison); }

 private:
  MtpDrafter(Model& model, const EngineSettings& settings) : model_(model), block_size_(settings.limits.block_size) {}

  Status create_buffers(Device& device, const StepLimits& limits);
  MtpInputs mtp_inputs() const;
  StepView view_of(const StepView& step) const;
  // The most likely token behind each of the MTP layer's rows that `all_rows` names.
  void sample_drafts(Stream& stream, const Fixed<const int32_t>& all_rows, int32_t rows, const RowCount& real_rows);

  Model& model_;
  int32_t block_size_;
  plan::IntArena arena_;
  Fixed<int32_t> draft_rows_, drafts_;                                                // [requests]
  Fixed<int32_t> token_request_, token_context_len_, slot_mapping_, next_token_ids_;  // [tokens]; see MtpInputs
  std::unique_ptr<PersistentBuffer<int32_t>> row_numbers_;                            // [requests]: 0, 1, ...
  std::unique_ptr<PersistentBuffer<SamplingSettings>> greedy_;                        // [rows of logits at once]
  std::unique_ptr<PersistentBuffer<int64_t>> first_position_;                         // [rows of logits at once]; 0
  std::unique_ptr<PersistentBuffer<float>> hidden_;                                   // [requests, hidden_size]
  std::unique_ptr<PersistentBuffer<std::byte>> scratch_;
};

}  // namespace lantern
