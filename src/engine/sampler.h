// The sampler's memory and its order of work in a step:
//   begin()     which rows of logits there will be, and of which slots
//   sample()    logits of some rows (as many at a time as there is memory for): processed, drawn from, and their
//               log-probabilities taken from what the model gave
//   verify()    drafts against samples; what is new goes to the caller and into the histories
//   draft_ngrams()   optional
// Nothing of it passes through the host, and launches depend on counts of the bucket alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/persistent_buffer.h"
#include "device/stream.h"
#include "engine/logprobs.h"
#include "ops/ngram_drafts.h"
#include "ops/process_logits.h"
#include "ops/sampling.h"
#include "ops/verify.h"

namespace lantern {

struct SamplerLimits {
  int32_t max_slots = 1;
  int32_t max_requests = 1;   // of a step
  int32_t max_query_len = 1;  // 1 + drafts
  int32_t max_model_len = 1;
  int32_t vocab = 1;
  int32_t rows_at_once = 1;  // rows of logits that one sample() takes
  int32_t max_logprobs =
      -1;  // alternatives listed per row, up to kMaxLogprobs; -1: no logprobs, and no memory for them

  int64_t max_rows() const { return int64_t{max_requests} * max_query_len; }
};

// How a slot begins.
struct SlotStart {
  SamplingSettings sampling = {};        // with the seed of this choice
  TokenRules rules = {};                 // checked
  int32_t num_logprobs = -1;             // -1 to max_logprobs
  std::span<const int32_t> tokens = {};  // the whole sequence so far
  int32_t prompt_len = 0;                // leading tokens of it that the request brought
};

// Masks of constrained rows; see ProcessLogitsParams.
struct AllowedTokens {
  DevPtr<const uint32_t> masks = {};    // [masks, ceil(vocab / 32)]
  Fixed<const int32_t> row_masks = {};  // [rows of the step]
};

class Sampler {
 public:
  // Errors: out_of_memory with numbers.
  static Result<std::unique_ptr<Sampler>> create(Device& device, const SamplerLimits& limits);

  // Launches from now on see the slot so. What was launched and is not through does not know the slot. `start` is not
  // needed afterwards.
  void start_slot(Stream& stream, int32_t slot, const SlotStart& start);

  struct Step {
    SampleRequests requests = {};
    DevPtr<const int32_t> draft_tokens = {};  // optional [slots, max_query_len - 1]: what the rows verify
    DevPtr<const int32_t> num_drafts = {};    // [slots]
    int32_t rows = 0;                         // of the bucket, at least those that the requests have
    bool logprobs = false;                    // some request wants them
  };
  // The next calls until verify() belong to this step. Preconditions: rows <= max_rows(); logprobs only where the
  // limits have them.
  void begin(Stream& stream, const Step& step);

  // Rows [begin, begin + rows) of the step from logits [rows, vocab], which stay as they are. Precondition: rows <=
  // rows_at_once.
  void sample(Stream& stream, const Fixed<const float>& logits, int32_t begin, int32_t rows,
              const AllowedTokens& allowed = {});

  // Arrays of max_requests; see VerifyParams.
  void verify(Stream& stream, const Fixed<int32_t>& tokens, const Fixed<int32_t>& num_tokens,
              const Fixed<int32_t>& status, double synthetic_acceptance = -1);

  // After verify(), for the same requests; see NgramDraftsParams. `draft_tokens` and `num_drafts` are those of Step.
  void draft_ngrams(Stream& stream, DevPtr<const int32_t> wanted, const Fixed<int32_t>& draft_tokens,
                    const Fixed<int32_t>& num_drafts, int32_t min_ngram, int32_t max_ngram);

  const SamplerLimits& limits() const { return limits_; }
  // [max_rows()]: of the last step, by row; -1 for padding.
  Fixed<const int32_t> samples() const { return samples_->fixed(); }
  // Of the samples under the model's own logits, [max_rows()] and [max_rows(), max_logprobs]; see LogprobParams.
  Fixed<const float> logprobs() const { return logprobs_->fixed(); }
  Fixed<const int32_t> ranks() const { return ranks_->fixed(); }
  Fixed<const int32_t> top_tokens() const { return top_tokens_->fixed(); }
  Fixed<const float> top_logprobs() const { return top_logprobs_->fixed(); }
  // The first `rows` rows of all four; `to` has them when the stream is through. Precondition: `to` has room.
  void copy_logprobs_to_host(Stream& stream, Logprobs& to, int32_t rows) const;
  // Tokens of each slot's text, [max_slots], and the text itself, [max_model_len]: what verify() changes of a slot.
  Fixed<int32_t> history_len() const { return history_len_->fixed(); }
  Fixed<int32_t> history(int32_t slot) const {
    return history_->fixed().sub(int64_t{slot} * limits_.max_model_len, limits_.max_model_len);
  }
  // For prompt_targets(); without drafts.
  SamplerSlots slots() const;

 private:
  template <class T>
  using Buffer = std::unique_ptr<PersistentBuffer<T>>;

  explicit Sampler(const SamplerLimits& limits) : limits_(limits) {}
  Status allocate(Device& device);
  SamplerSlots slots_of_step() const;

  SamplerLimits limits_;
  Step step_;

  Buffer<SlotRules> rules_;
  Buffer<int32_t> history_, history_len_, prompt_len_;
  // Sources of copies in flight. On the host device copies have happened when they return, and tokens need none.
  std::vector<SlotRules> staged_rules_;
  std::vector<int32_t> staged_history_, staged_lengths_;

  Buffer<int32_t> row_slots_, drafts_before_, num_logprobs_, row_status_, samples_;
  Buffer<int64_t> output_positions_;
  Buffer<SamplingSettings> row_settings_;
  Buffer<float> processed_;  // [rows_at_once, vocab]
  Buffer<std::byte> scratch_;
  Buffer<float> logprobs_, top_logprobs_;
  Buffer<int32_t> ranks_, top_tokens_;
};

}  // namespace lantern
