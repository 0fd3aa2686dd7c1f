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
  // A step whose outcome is known: its parts on the device, and its launch shape.
  struct Step {
    DevPtr<const int32_t> upload;
    SlotArrays slots;
    StepInputs::Writable inputs;
    StepView view;                        // as planned
    DevPtr<const int32_t> token_ids;      // [tokens]
    StepOutcome outcome;                  // verified
    DevPtr<const int32_t> wanted_drafts;  // [requests]
    int32_t num_sampling = 0;             // rows of the step that sample
    int32_t draft_passes = 0;
    bool runs = true;  // false: no passes, and zeros for entries (StepSchedule::drafter_runs)
  };

  // `device` and `model`, which has an MTP layer, must outlive the drafter.
  // Errors: out_of_memory with numbers.
  static Result<std::unique_ptr<MtpDrafter>> create(Device& device, Model& model, const EngineSettings& settings);

  // Fills the MTP layer's cache and puts drafts into the slots. Overwrites the model's hidden states.
  void run(Stream& stream, const Step& step);

 private:
  MtpDrafter(Model& model, const EngineSettings& settings) : model_(model), block_size_(settings.limits.block_size) {}

  Status create_buffers(Device& device, const StepLimits& limits);
  MtpInputs mtp_inputs() const;
  // The most likely token behind each of the MTP layer's `rows`.
  void sample_drafts(Stream& stream, const Fixed<const int32_t>& rows, int32_t num_sampling);

  Model& model_;
  int32_t block_size_;
  plan::IntArena arena_;
  Fixed<int32_t> draft_rows_, drafts_, row_numbers_;                                  // [requests]
  Fixed<int32_t> token_request_, token_context_len_, slot_mapping_, next_token_ids_;  // [tokens]; see MtpInputs
  std::unique_ptr<PersistentBuffer<SamplingSettings>> greedy_;                        // [rows of logits at once]
  std::unique_ptr<PersistentBuffer<int64_t>> first_position_;                         // [rows of logits at once]; 0
  std::unique_ptr<PersistentBuffer<float>> hidden_;                                   // [requests, hidden_size]
  std::unique_ptr<PersistentBuffer<std::byte>> scratch_;
};

}  // namespace lantern
