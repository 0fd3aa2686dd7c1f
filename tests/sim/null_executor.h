// An executor that takes no time and allocates nothing after its constructor: every row yields tokens at once.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "engine/executor.h"

namespace lantern {

class NullExecutor final : public Executor {
 public:
  // Of the drafts of a row, as many are accepted as `accepted` says.
  explicit NullExecutor(const EngineSettings& settings, int32_t accepted = 0)
      : accepted_(accepted),
        counts_{std::vector<int32_t>(static_cast<size_t>(settings.limits.max_requests)),
                std::vector<int32_t>(static_cast<size_t>(settings.limits.max_requests))} {}

  Status submit(const StepBatch& batch) override {
    std::vector<int32_t>& counts = counts_[submitted_++ % 2];
    std::ranges::fill(counts, 0);
    for (size_t r = 0; r < batch.rows.size(); ++r) {
      const StepRow& row = batch.rows[r];
      counts[r] = row.samples ? 1 + std::min(row.num_drafts(), accepted_) : 0;
    }
    return {};
  }
  bool ready() const override { return done_ < submitted_; }
  Status wait(StepResults& results) override {
    const std::vector<int32_t>& counts = counts_[done_++ % 2];
    for (size_t r = 0; r < counts.size(); ++r) {
      results.num_tokens[r] = counts[r];
      results.status[r] = RowStatus::kOk;
      std::ranges::fill(results.row(static_cast<int32_t>(r)), 7);
    }
    return {};
  }

 private:
  int32_t accepted_;
  std::array<std::vector<int32_t>, 2> counts_;
  size_t submitted_ = 0;
  size_t done_ = 0;
};

}  // namespace lantern
