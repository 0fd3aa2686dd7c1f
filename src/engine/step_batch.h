// A step as data. StepSchedule: what the scheduler decided. StepBatch: what an executor needs to run it. StepResults:
// what came of it. All are made once, with room for the largest step, and reused.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/bucket_key.h"
#include "engine/block_pool.h"
#include "engine/engine_settings.h"
#include "engine/logprobs.h"
#include "engine/sequence.h"
#include "ops/sampler_slots.h"

namespace lantern {

// One sequence's share of a step. Decodes come first.
struct StepRow {
  SequenceId sequence = -1;      // -1: the dummy
  int32_t slot = -1;             // filled in when the step is reserved
  bool prefilling = false;       // runs known tokens; a decode runs what the slot holds: the last token, then drafts
  bool samples = false;          // yields tokens: a decode, or the end of a prompt
  int32_t query_len = 0;         // tokens; of a decode 1 + the drafts it verifies
  int32_t begin_upper = 0;       // first position: of a prefill exactly, of a decode at the latest
  int32_t num_unwritten = 0;     // leading tokens (0 or 1) whose cache entries exist: they run with slot -1
  int32_t num_blocks = 0;        // that the sequence's table must have before the step
  int32_t next_drafts = 0;       // that a sampling row wants made for the next step
  int32_t mask = -1;             // of the batch, which tokens may come; -1: all. Filled in with the slot, as
  int32_t score_from = 0;        // of its tokens, those from here on
  int32_t num_scored = 0;        // and so many are scored: the prompt's log-probabilities. and
  int32_t prompt_logprobs = -1;  // how many most likely tokens each of these lists
  int32_t first_traced = -1;     // of the step's records of selections, that of the row's first row of logits; -1: none

  // Rows of logits.
  int32_t num_samples() const { return !samples ? 0 : prefilling ? 1 : query_len; }
  int32_t num_drafts() const { return prefilling ? 0 : query_len - 1; }
  int32_t seq_len_upper() const { return begin_upper + query_len; }
};

// Waiting sequences without room that one step looks past: its cost does not grow with the queue.
constexpr int32_t kMaxPassedOver = 32;

struct Admission {
  SequenceId sequence = -1;
  bool fully_reserved = false;
  int32_t hit_begin = 0;   // into StepSchedule::hit_blocks
  int32_t hit_blocks = 0;  // leading blocks that the prefix index has
};

struct StepSchedule {
  uint64_t step = 0;
  std::vector<SequenceId> preempted;
  std::vector<SequenceId> overtaken;  // waiting, and passed by an admission of this step
  std::vector<Admission> admitted;
  std::vector<BlockId> hit_blocks;
  std::vector<StepRow> rows;
  int32_t num_decodes = 0;
  int32_t num_tokens = 0;
  int32_t num_deferred = 0;  // sequences that could run but for want of blocks or of the step's tokens
  int32_t draft_passes = 0;  // of the drafter after the step: drafts that the next one may verify
  // Whether the drafter runs over the step's tokens at all, which it does for the first pass. Otherwise its entries of
  // these tokens become zeros: drafts of these sequences are worse later on.
  bool drafter_runs = true;
  bool drafts_may_pay = false;  // if all were right

  explicit StepSchedule(const EngineSettings& settings);
  void clear();
  bool empty() const { return rows.empty() && preempted.empty(); }
  // Equal on all ranks that decided alike.
  uint64_t digest() const;
};

// What shapes the launches of a step. Ranks that run in step (data_parallel.h) launch the largest that one of them
// needs.
struct StepShape {
  BucketKey bucket;           // no tokens: nothing to run
  int32_t sampling_rows = 0;  // rows of the drafter's passes behind the first, which has the tokens of the bucket
  int32_t draft_passes = 0;
  bool drafter_runs = false;  // as StepSchedule has it

  bool empty() const { return bucket.tokens == 0; }
  // Different where any part is, or what came before.
  uint64_t digest_after(uint64_t before) const;
  friend bool operator==(const StepShape&, const StepShape&) = default;
};
// What the rows of a schedule need.
StepShape shape_of(const StepSchedule& schedule, const EngineSettings& settings);
// What the dummy needs: one decode of max_query_len tokens that samples nothing.
StepShape dummy_shape(const EngineSettings& settings);
// The smallest shape that both fit.
StepShape enclosing(const StepShape& a, const StepShape& b);

// A slot's state is to be made anew before the step.
struct SlotInit {
  int32_t slot = -1;
  const Sequence* sequence = nullptr;  // tokens (penalties count them), request, seed(); valid until submit() returns
  int32_t seq_len = 0;                 // tokens that count as run: the first row begins here
  int32_t max_len = 0;
};

// Entry `index` of a slot's block table becomes `block`. Entries beyond those that were ever set are the null block.
struct BlockTableEntry {
  int32_t slot = -1;
  int32_t group = 0;  // one today: latent, index keys and the MTP layer share block ids
  int32_t index = 0;
  BlockId block = kNullBlock;
};

// All caches' rows of `source` go to `target` before anything else of the step is written.
struct BlockCopy {
  BlockId source = kNullBlock;
  BlockId target = kNullBlock;
};

struct StepBatch {
  uint64_t step = 0;
  std::vector<SlotInit> slot_inits;
  std::vector<BlockCopy> copies;
  std::vector<BlockTableEntry> table_entries;
  std::vector<StepRow> rows;
  std::vector<int32_t> query_start_loc;  // [rows + 1]
  std::vector<int32_t> prompt_tokens;    // [num_tokens - num_decode_tokens]: those of the prefilling rows, in order
  std::vector<int32_t> next_tokens;      // [rows - num_decodes]: the known token behind each, -1: it samples it
  int32_t num_decodes = 0;
  int32_t num_decode_tokens = 0;
  int32_t num_tokens = 0;
  StepShape shape;              // what is launched: at least what the rows need; the rest is padding
  std::vector<uint32_t> masks;  // [num_masks, mask_words]: TokenConstraint::allow()
  int32_t num_masks = 0;
  int32_t mask_words = 0;
  bool logprobs = false;   // some sampling row's request wants them
  int32_t num_scored = 0;  // of all rows
  int32_t num_traced = 0;  // rows of logits whose selections are kept

  explicit StepBatch(const EngineSettings& settings);
  void clear();
  // One mask more, for row.mask.
  std::span<uint32_t> add_mask();
  // One decode of max_query_len tokens in the dummy's slot, which has no blocks: a valid step that reads the null
  // block, writes no cache and yields nothing. What a rank runs that has nothing of its own to run.
  void make_dummy(const EngineSettings& settings);
};

// A slot beyond those of sequences. The executor keeps it as it was made: empty, its table all null block.
inline int32_t dummy_slot(const StepLimits& limits) { return limits.max_requests; }

struct StepResults {
  int32_t max_query_len = 1;
  std::vector<int32_t> tokens;      // [max_requests][max_query_len]
  std::vector<int32_t> num_tokens;  // [max_requests]: of a sampling row 1 to query_len, the last one new; else 0
  std::vector<RowStatus> status;    // [max_requests]: a sequence whose row is not kOk fails, the others do not
  bool replayed = false;            // from a graph
  int32_t distinct_experts = 0;     // that the step's tokens chose, added over its layers; 0 where nobody counts them
  // Of max_logprobs each, and without room where that is -1. What nobody asked for may be anything.
  Logprobs logprobs;         // [max_requests, max_query_len]: of `tokens`
  Logprobs prompt_logprobs;  // [max_tokens]: of the tokens behind those that are scored, in the order of the rows
  int32_t traced_record_words = 1;
  std::vector<int32_t> traced;  // [max_traced_rows, traced_record_words]; see EngineSettings

  explicit StepResults(const EngineSettings& settings);
  std::span<int32_t> row(int32_t r) {
    return std::span(tokens).subspan(static_cast<size_t>(r) * static_cast<size_t>(max_query_len),
                                     static_cast<size_t>(max_query_len));
  }
  std::span<const int32_t> row_tokens(int32_t r) const {
    return std::span(tokens).subspan(static_cast<size_t>(r) * static_cast<size_t>(max_query_len),
                                     static_cast<size_t>(num_tokens[static_cast<size_t>(r)]));
  }
  // Of the first `count` tokens of a row.
  LogprobRows row_logprobs(int32_t r, int32_t count) const {
    return logprobs.rows(static_cast<size_t>(r) * static_cast<size_t>(max_query_len), static_cast<size_t>(count));
  }
  std::span<const int32_t> traced_records(int32_t first, int32_t count) const {
    const auto words = static_cast<size_t>(traced_record_words);
    return std::span(traced).subspan(static_cast<size_t>(first) * words, static_cast<size_t>(count) * words);
  }
};

}  // namespace lantern
