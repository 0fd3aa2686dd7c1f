// The raw inputs of a step as they will lie in device memory, what is beyond the counts included. StepInputs::write
// copies batches that agree with themselves; an image can also hold stale tails, poison and lies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/plan/step_inputs.h"
#include "device/device.h"

namespace lantern {

class StepImage {
 public:
  // For inputs of this layout, filled with kPlanPoison.
  explicit StepImage(const StepInputs& inputs, int32_t groups);

  int32_t& num_requests() { return words_[num_requests_]; }
  int32_t& num_tokens() { return words_[num_tokens_]; }
  std::span<int32_t> query_start_loc() { return part(query_start_loc_); }  // [max_requests + 1]
  std::span<int32_t> seq_lens() { return part(seq_lens_); }                // [max_requests]
  std::span<int32_t> prefilling() { return part(prefilling_); }            // [max_requests]
  std::span<int32_t> accepted() { return part(accepted_); }                // [max_requests], or empty
  std::span<int32_t> block_table(int32_t group, int32_t request);          // [stride]
  std::span<int32_t> words() { return words_; }

  // Into inputs of the same layout, in one copy.
  void write(Device& device, const StepInputs& inputs) const;

 private:
  struct Part {
    size_t begin = 0, count = 0;
  };
  std::span<int32_t> part(const Part& part) { return std::span(words_).subspan(part.begin, part.count); }

  std::vector<int32_t> words_;
  size_t num_requests_ = 0, num_tokens_ = 0;
  Part query_start_loc_, seq_lens_, prefilling_, accepted_;
  std::vector<Part> block_tables_;
  std::vector<size_t> strides_;
};

}  // namespace lantern
