// What runs steps: a device, or a simulation. The engine thread alone calls it.
#pragma once

#include "base/result.h"
#include "engine/step_batch.h"

namespace lantern {

// Contract. Steps take effect in the order of submission, each as a whole:
//   1. slot_inits: the slot holds `seq_len` run tokens, no drafts, and an empty block table (null block everywhere);
//   2. copies, which may read blocks that the same step then writes;
//   3. table_entries;
//   4. the rows. A prefilling row runs its prompt_tokens from position begin_upper on; a decode runs the slot's last
//      token and the slot's drafts from the slot's own length on, which is at most begin_upper. Fewer drafts in the
//      slot than the row verifies count as rejected ones. A sampling row yields the accepted drafts and one token more,
//      adds them to the slot, and the slot's length grows by as many (by query_len where it prefills).
//   5. shape.draft_passes drafts for every slot that sampled, at most as many as its row wants.
// A row with a mask yields a token that its mask allows, or kNoToken.
// Where the batch says logprobs, the yielded tokens of sampling rows whose request wants them come with those of the
// target, whether they were drafts or not; for num_scored tokens of a row from score_from on, those of the token behind
// each come too.
// For rows with first_traced the selection of one layer comes too, a record for each row of logits.
// Launches are those of batch.shape, whatever the rows need of it: executors that get equal shapes launch alike. The
// dummy's row (StepBatch::make_dummy) is a decode in a slot that no init, table entry or result ever names.
// A step may write the caches at positions below seq_len_upper() + max(shape.draft_passes, 1) of its rows (from its
// last token a row makes the MTP layer's entry of the token behind it); where the block table has the null block, it
// writes nothing. A row whose sequence ended unknown to the host (its results will be dropped) stays within these
// bounds all the same.
class Executor {
 public:
  virtual ~Executor() = default;

  // Takes what it needs from the batch and returns without waiting. The batch stays valid until the step is complete,
  // but for what says otherwise. At most settings.max_steps_in_flight steps are in flight. An error means that nothing
  // of the step will run and that the same step may be tried again.
  virtual Status submit(const StepBatch& batch) = 0;

  // Whether wait() would return at once.
  virtual bool ready() const = 0;
  // Waits for the oldest step in flight and tells what came of it. An error means that the device is lost.
  virtual Status wait(StepResults& results) = 0;
};

// Who reads the output; called on the engine thread, between steps, and quick about it.
class OutputSink {
 public:
  struct Verdict {
    int32_t kept = 0;   // of the new tokens; the others are dropped
    bool stop = false;  // the text ends here, as by a stop string
  };
  virtual ~OutputSink() = default;
  // `sequence` ends in new tokens: its last `count`.
  virtual Verdict on_tokens(const Sequence& sequence, int32_t count) = 0;
  // After on_tokens(), where the request wants logprobs: those of the tokens that were kept.
  virtual void on_logprobs(const Sequence& /*sequence*/, const LogprobRows& /*rows*/) {}
  // After on_tokens(): drafts had foretold the first `count` of the tokens that were kept; not called for none.
  virtual void on_drafted(const Sequence& /*sequence*/, int32_t /*count*/) {}
  // After on_tokens(), where the request traces selections: those of the `count` tokens that were kept, a record of
  // EngineSettings::traced_record_words() each; no records where the step had no room for the row's.
  virtual void on_selections(const Sequence& /*sequence*/, int32_t /*count*/, std::span<const int32_t> /*records*/) {}
  // Where the request wants prompt_logprobs: those of the prompt's tokens up to `sequence.num_scored`, the last of
  // `rows`. In order from token 1 on, each once, before the first token of the output.
  virtual void on_prompt_logprobs(const Sequence& /*sequence*/, const LogprobRows& /*rows*/) {}
  // `sequence` has got a slot and blocks: again after a preemption, and after an admission whose step did not come
  // about.
  virtual void on_admission(const Sequence& /*sequence*/) {}
  // Once for each choice, after its last token.
  virtual void on_end(const Sequence& sequence) = 0;
};

}  // namespace lantern
