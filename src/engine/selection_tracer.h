// Keeps what one layer's indexer chose for the rows of logits that a step's upload names: the layers behind it, and the
// drafter, overwrite the choice. Its memory is that of so many rows, whatever a step has.
#pragma once

#include <memory>

#include "device/persistent_buffer.h"
#include "device/pinned_buffer.h"
#include "device/stream.h"
#include "engine/engine_settings.h"
#include "model/model.h"

namespace lantern {

// The layer to trace: `asked`, or the last that makes a choice for -1. Errors: a layer, or a model,
// that makes none.
Result<int32_t> choose_traced_layer(const ModelConfig& config, int32_t asked);

class SelectionTracer {
 public:
  // Errors: out_of_memory with numbers. Precondition: the settings have max_traced_rows.
  static Result<std::unique_ptr<SelectionTracer>> create(Device& device, const EngineSettings& settings, int32_t layer);

  // To call from Model::forward() when a layer has made its choice.
  void run(Stream& stream, int32_t layer, const DevPtr<const int32_t>& upload, const Activations& activations) const;
  // The first `rows` records (EngineSettings::traced_record_words() each) of the last run; `to` has them when the
  // stream is through.
  void copy_to_host(Stream& stream, std::span<int32_t> to, int32_t rows) const;

  // The memory of the first `rows` records.
  Fixed<int32_t> records(int32_t rows) const { return records_->fixed().sub(0, int64_t{rows} * record_words_); }
  // Every record becomes senseless, as the plan's poison is.
  void poison(Device& device) const;

 private:
  SelectionTracer(int32_t layer, int32_t record_words) : layer_(layer), record_words_(record_words) {}

  int32_t layer_;
  int32_t record_words_;
  std::unique_ptr<PersistentBuffer<int32_t>> records_;
};

}  // namespace lantern
