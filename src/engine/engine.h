// The engine for whoever embeds it. Requests come from any thread; one thread owns the engine's core and runs steps,
// one hands out what they yield. A caller never waits for a step and a step never waits for a reader: between them lie
// queues that are bounded by what was accepted (EngineSettings::max_queued, Request::max_tokens).
//
// include/lantern/engine_c.h and engine.h give the same to programs outside of this tree.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/block_hash.h"
#include "engine/engine_settings.h"
#include "engine/executor.h"
#include "engine/logprobs.h"
#include "engine/request.h"
#include "engine/selection_trace.h"
#include "text/tokenizer.h"

namespace lantern {

struct EngineRequest {
  Request request;  // its deadline is set from `timeout`, and the model's end-of-sequence tokens are added
  bool ignore_eos = false;
  std::vector<std::string> stop;  // found across token borders; the text ends before it
  bool include_stop = false;      // what ended the text (stop string or stop token) is part of it
  bool skip_special_tokens = true;
  std::optional<std::chrono::milliseconds> timeout;  // from submission to the last token
};

// What came of a choice since its last output.
struct Output {
  int32_t choice = 0;
  std::vector<int32_t> tokens;              // a stop token among them
  std::vector<int32_t> drafted;             // places in `tokens`, ascending, of those that drafts had foretold
  std::string text;                         // empty without a tokenizer
  EndReason end_reason = EndReason::kNone;  // the choice's last output has another
  std::string stop_string;                  // that ended it
  int32_t stop_token = -1;                  // that ended it
  int32_t cached_tokens = 0;                // of the prompt, found by the prefix index; with the last output
  double queue_seconds = -1;                // from submission to when it first ran; with the last output; -1: never
  std::string error;                        // one sentence, with kFailed
  // Of each of `tokens`, where the request wants logprobs.
  Logprobs logprobs;
  // Where it wants prompt_logprobs, with choice 0: of the prompt's tokens from token 1 on, those that came since the
  // last output. All have come before the choice's first token.
  Logprobs prompt_logprobs;
  // Of each of `tokens`, where the request traces selections.
  SelectionTrace selections;

  bool ended() const { return end_reason != EndReason::kNone; }
  // Adds tokens that came later, and which of them drafts had foretold.
  void add_tokens(const std::vector<int32_t>& more, const std::vector<int32_t>& more_drafted);
};

// Called on the delivery thread of the request's rank, for one request never twice at a time. Quick about it: all
// outputs of the rank wait behind it.
using OnOutput = std::function<void(Output&&)>;

// What the engine did and holds, as of the last step; of several ranks their sums, but for last_step_seconds (the
// longest). Time of ranks that wait for others counts for each of them.
struct EngineReport {
  static constexpr size_t kMaxDrafts = 8;

  int32_t num_running = 0;
  int32_t num_waiting = 0;
  int32_t num_blocks = 0;  // that requests can have
  int32_t num_free_blocks = 0;
  int32_t num_cached_blocks = 0;  // of the prefix index alone: given away when needed
  int64_t choices_submitted = 0;
  std::array<int64_t, 6> choices_ended{};  // by EndReason
  int64_t preemptions = 0;
  int64_t prompt_tokens = 0;  // of admissions, those after a preemption included
  int64_t prompt_tokens_cached = 0;
  int64_t prefix_blocks_evicted = 0;  // full blocks that the prefix index lost: others needed the room
  int64_t prefix_blocks_flushed = 0;  // ... forget_prefixes()
  int64_t output_tokens = 0;
  int64_t tokens_run = 0;
  int64_t steps = 0;           // with rows; on ranks in step each counts its own
  int64_t dummy_steps = 0;     // run for the sake of other ranks, with nothing of its own
  int64_t steps_replayed = 0;  // from a graph
  int64_t steps_refused = 0;   // by the executor; tried again
  // Steps with rows by the tokens that they ran: up to each bound, and above the last one. vLLM's bounds.
  static constexpr std::array<int32_t, 13> kStepTokenBounds = {1,   8,    16,   32,   64,   128,  256,
                                                               512, 1024, 2048, 4096, 8192, 16384};
  std::array<int64_t, kStepTokenBounds.size() + 1> steps_by_tokens{};
  int64_t step_tokens = 0;      // of all of these
  double step_seconds = 0;      // wall time of all steps
  double executor_seconds = 0;  // of these, in the executor
  double overhead_seconds = 0;  // processor time of the engine thread outside of the executor
  double last_step_seconds = 0;
  // By place in a draft: drafts that were checked (all before them were right), and those that were right.
  std::array<int64_t, kMaxDrafts> drafts_checked{};
  std::array<int64_t, kMaxDrafts> drafts_accepted{};
  // Decoding rows by the length of the draft that they checked.
  std::array<int64_t, kMaxDrafts + 1> draft_lengths{};

  void add_step(int32_t tokens);
  // Of all drafts that were checked; NaN where none were.
  double acceptance() const;
  EngineReport& operator+=(const EngineReport& other);
};

// A step that was given to the executor and of which nothing has come yet: where the engine hangs, the one to look at.
struct StepInFlight {
  int32_t rank = 0;
  uint64_t number = 0;
  int32_t decodes = 0;
  int32_t prefills = 0;
  int32_t tokens = 0;
  int32_t launched_tokens = 0;  // with padding
  int32_t draft_passes = 0;

  // "step 17 of rank 0: 3 decodes and 1 prefills, 515 tokens in a launch of 520, 1 passes of the drafter"
  std::string text() const;
};

// A step that has ended, as a profile has it.
struct ProfiledStep {
  StepInFlight step = {};
  std::chrono::steady_clock::time_point submitted = {};
  std::chrono::steady_clock::time_point ended = {};
  double executor_seconds = 0;  // of these, that the engine thread spent in the executor
};
struct EngineProfile {
  std::chrono::steady_clock::time_point begun = {};
  std::vector<ProfiledStep> steps = {};  // by rank, each in order
  int64_t steps_lost = 0;                // that came when there was no room left
};

// A request that was submitted: cancels it, from any thread, also after the engine is gone. Copies name the same one.
struct LiveRequest;
class EngineLoop;
class RankRouter;
class RequestHandle {
 public:
  RequestHandle() = default;
  RequestHandle(std::weak_ptr<EngineLoop> loop, std::shared_ptr<LiveRequest> live);
  // Choices that have not ended end with kCancelled; nothing happens where all have.
  void cancel() const;

 private:
  std::weak_ptr<EngineLoop> loop_;
  std::shared_ptr<LiveRequest> live_;
};

// A request's outputs, read by one thread at a time. What comes while nobody reads is joined: a slow reader gets longer
// pieces, and holds up nobody. Gone before its choices have ended, it cancels them.
class TokenStream {
 public:
  enum class Wait : uint8_t { kOutput, kTimeout, kEnd };

  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;
  ~TokenStream();

  // Waits for the next output. False when every choice has ended and all was read.
  bool next(Output& output);
  Wait next_for(Output& output, std::chrono::milliseconds timeout);
  void cancel();

 private:
  friend class Engine;
  struct Queue;
  explicit TokenStream(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}

  std::shared_ptr<Queue> queue_;
  RequestHandle request_;
};

class Engine {
 public:
  // What an engine runs on. The tokenizer may be null: then outputs have no text, and stop strings are refused.
  struct Parts {
    EngineSettings settings;
    std::unique_ptr<Executor> executor;
    std::shared_ptr<const Tokenizer> tokenizer = nullptr;
    int32_t vocab_size = 0;  // 0: ids are not checked
    std::vector<int32_t> eos_token_ids = {};
    HashKey hash_key = HashKey::random();
    std::shared_ptr<void> keep_alive = nullptr;  // outlives the executor: the model and the device it runs on
  };
  // Errors: settings that do not agree with themselves.
  static Result<std::unique_ptr<Engine>> create(Parts parts);
  // Data parallel: an engine for each of `ranks`, in step (data_parallel.h); requests go to the one with the least to
  // do. Each has its own executor and its own caches; all serve one model. When one loses its device all do. Errors
  // also: none; settings by which a step of one rank would not fit another.
  static Result<std::unique_ptr<Engine>> create(std::vector<Parts> ranks);

  // What lives is cancelled; streams get their last output and may be read and destroyed afterwards.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Any thread. Errors: what check_request says; ids outside the vocabulary; a full queue (out_of_memory); a draining
  // engine or a lost device (unsupported).
  Result<TokenStream> submit(EngineRequest request);
  Result<RequestHandle> submit(EngineRequest request, OnOutput on_output);

  // Prefixes that no request uses now are found no more. Any thread; done before the next step.
  void forget_prefixes();

  // No step begins once every rank has seen it; those in flight end. Requests wait where they are, also those that
  // come, and can be cancelled; deadlines are not looked at, and drain() waits too. resume() goes on. Any thread.
  void pause();
  void resume();

  // From now on steps are recorded, up to 65,536 of a rank; what was recorded before is forgotten. Any thread.
  void start_profile();
  // What was recorded, and no more is. Nothing where no profile was started.
  std::optional<EngineProfile> stop_profile();

  // No request is accepted from now on. True when all that are in have ended and their outputs were handed out; false
  // when that takes longer than `timeout`.
  bool drain(std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  EngineReport report() const;
  std::vector<EngineReport> rank_reports() const;
  std::vector<StepInFlight> steps_in_flight() const;  // of all ranks, the oldest of each first
  // Why no request is accepted any more, once the device is lost.
  std::optional<Error> lost() const;
  int32_t num_ranks() const { return static_cast<int32_t>(loops_.size()); }
  const EngineSettings& settings() const;  // of each rank
  const Tokenizer* tokenizer() const;

 private:
  Engine() = default;

  std::vector<std::shared_ptr<EngineLoop>> loops_;  // by rank
  std::shared_ptr<RankRouter> router_;              // null where there is one rank
};

}  // namespace lantern
