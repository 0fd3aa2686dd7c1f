#include "engine/measure_step_cost.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "attention/plan/int_arena.h"
#include "device/persistent_buffer.h"
#include "engine/cost_by_runs.h"
#include "ops/sampling.h"

namespace lantern {
namespace {

using Clock = std::chrono::steady_clock;

class Measurement {
 public:
  Measurement(Device& device, const Model& model) : model_(model), stream_(device) {}

  Status create(Device& device, const EngineSettings& settings) {
    const StepLimits& limits = settings.limits;
    most_ = static_cast<int32_t>(std::min<int64_t>(limits.max_sample_rows(), limits.max_tokens));
    const int32_t rows = model_.options().sample_rows;
    const int32_t vocab = model_.config().vocab_size;
    RETURN_IF_ERROR(arena_.create(device, "tokens of measured steps", [&](plan::IntArena& arena) {
      token_ids_ = arena.take(most_);
      request_ = arena.take(most_);
      context_len_ = arena.take(most_);
      slot_mapping_ = arena.take(most_);
      rows_ = arena.take(most_);
      samples_ = arena.take(rows);
      block_table_ = arena.take(limits.max_blocks_per_request);
    }));
    ASSIGN_OR_RETURN(greedy_, PersistentBuffer<SamplingSettings>::create(device, "settings of measured steps", rows));
    ASSIGN_OR_RETURN(positions_, PersistentBuffer<int64_t>::create(device, "positions of measured steps", rows));
    ASSIGN_OR_RETURN(scratch_, PersistentBuffer<std::byte>::create(device, "scratch of measured steps",
                                                                   sample_scratch_bytes(rows, vocab)));
    // Ids far from each other, so that experts are chosen as unevenly as by a text.
    const auto fill = [&](const Fixed<int32_t>& to, auto&& value_of) {
      std::vector<int32_t> values(static_cast<size_t>(to.size()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(value_of(static_cast<int64_t>(i)));
      device.copy_to_device(to.data(), values.data(), values.size() * sizeof(int32_t));
    };
    fill(token_ids_, [&](int64_t i) { return (i * 7919 + 1) % vocab; });
    fill(request_, [](int64_t) { return 0; });
    fill(context_len_, [](int64_t) { return 1; });
    fill(slot_mapping_, [](int64_t) { return -1; });
    fill(rows_, [](int64_t i) { return i; });
    fill(block_table_, [](int64_t) { return 0; });
    const std::vector<SamplingSettings> greedy(static_cast<size_t>(rows), SamplingSettings{.temperature = 0.0f});
    device.copy_to_device(greedy_->fixed().data(), greedy.data(), greedy.size() * sizeof(SamplingSettings));
    const std::vector<int64_t> zeros(static_cast<size_t>(rows), 0);
    device.copy_to_device(positions_->fixed().data(), zeros.data(), zeros.size() * sizeof(int64_t));
    return {};
  }

  StepCost measure(bool mtp) {
    StepCost cost;
    cost.step = by_size([&](int32_t tokens) {
      model_.forward(stream_, view_of(tokens), Fixed<const int32_t>(token_ids_));
      draw(tokens, false);
    });
    if (!mtp) {
      cost.draft_layer = cost.draft_head = TokenCost::linear(0, 0);
      return cost;
    }
    cost.draft_layer = by_size([&](int32_t tokens) {
      model_.mtp_forward(stream_, view_of(tokens), Fixed<const int32_t>(token_ids_),
                         Fixed<const float>(model_.activations().hidden));
    });
    cost.draft_head = by_size([&](int32_t tokens) { draw(tokens, true); });
    return cost;
  }

 private:
  StepView view_of(int32_t tokens) const {
    StepView view;
    view.tokens = view.decode_tokens = tokens;
    view.requests = 1;
    view.block_size = model_.options().limits.block_size;
    view.block_table_stride = static_cast<int32_t>(block_table_.size());
    view.token_request = Fixed<const int32_t>(request_);
    view.token_context_len = Fixed<const int32_t>(context_len_);
    view.slot_mapping = Fixed<const int32_t>(slot_mapping_);
    view.block_table = Fixed<const int32_t>(block_table_);
    return view;
  }

  void draw(int32_t tokens, bool mtp) {
    const int32_t most = model_.options().sample_rows;
    for (int32_t begin = 0; begin < tokens; begin += most) {
      const int32_t rows = std::min(most, tokens - begin);
      const Fixed<const int32_t> some(rows_.sub(begin, rows));
      if (mtp) {
        model_.mtp_logits(stream_, some, rows);
      } else {
        model_.logits(stream_, some, rows);
      }
      sample(stream_, {.logits = Fixed<const float>(model_.activations().logits),
                       .settings = Fixed<const SamplingSettings>(greedy_->fixed()),
                       .output_positions = Fixed<const int64_t>(positions_->fixed()),
                       .tokens = samples_,
                       .rows = rows,
                       .vocab = model_.config().vocab_size,
                       .scratch = scratch_->fixed(),
                       .scratch_bytes = scratch_->capacity()});
    }
  }

  template <class Run>
  TokenCost by_size(Run&& run) {
    return cost_by_runs(most_, [&](int32_t tokens) {
      stream_.synchronize();
      const Clock::time_point start = Clock::now();
      run(tokens);
      stream_.synchronize();
      return std::chrono::duration<double>(Clock::now() - start).count();
    });
  }

  const Model& model_;
  Stream stream_;
  int32_t most_ = 1;
  plan::IntArena arena_;
  Fixed<int32_t> token_ids_, request_, context_len_, slot_mapping_, rows_, samples_, block_table_;
  std::unique_ptr<PersistentBuffer<SamplingSettings>> greedy_;
  std::unique_ptr<PersistentBuffer<int64_t>> positions_;
  std::unique_ptr<PersistentBuffer<std::byte>> scratch_;
};

}  // namespace

Result<StepCost> measure_step_cost(Device& device, const Model& model, const EngineSettings& settings, bool mtp) {
  Measurement measurement(device, model);
  RETURN_IF_ERROR(measurement.create(device, settings));
  return measurement.measure(mtp);
}

}  // namespace lantern
