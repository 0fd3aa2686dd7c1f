// The thread that owns the engine's core: takes requests and cancellations from a queue, starts and finishes steps, and
// hands over what they yield. With other ranks it does so in step (data_parallel.h).
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/data_parallel.h"
#include "engine/engine.h"
#include "engine/engine_core.h"
#include "engine/output_delivery.h"
#include "engine/timed_executor.h"

namespace lantern {

// Why a request comes too late.
Error engine_closes();

// Wakes ranks that have agreed to sleep. Whoever finds something to do rings before it goes to the next agreement,
// where all are needed; agreements are counted, so that a ring is neither missed nor taken for a later one.
class EngineLoop;
class RankBell {
 public:
  void add(EngineLoop& loop);
  // Nobody sleeps before agreement `number` (1, 2, ...) or an earlier one. The caller holds no lock.
  void ring(int64_t number);

 private:
  std::mutex mutex_;
  std::vector<EngineLoop*> loops_;  // they ring while their threads run, and outlive that
};

// What makes an engine a rank among several; empty: it is alone.
struct EngineRank {
  std::unique_ptr<Communicator> communicator;
  std::shared_ptr<RankBell> bell;
};

class EngineLoop final : private OutputSink {
 public:
  // Precondition: the settings are checked.
  EngineLoop(Engine::Parts parts, EngineRank rank);
  // shutdown() was called.
  ~EngineLoop() override = default;
  // Cancels what lives, hands out the last outputs and ends the threads. Ranks leave together: begin_shutdown() comes
  // before, on all of them.
  void begin_shutdown();
  void shutdown();

  // `ticket` may be null.
  Result<std::shared_ptr<LiveRequest>> submit(EngineRequest request, OnOutput on_output,
                                              std::unique_ptr<RankRouter::Ticket> ticket);
  // Whether the queue takes so many choices more.
  bool has_room(int32_t choices) const;
  void cancel(const std::shared_ptr<LiveRequest>& live);
  void forget_prefixes();
  void pause();
  void resume();
  void start_profile() { executor_.start_profile(); }
  std::optional<EngineProfile> stop_profile() { return executor_.stop_profile(); }
  void begin_drain();
  bool wait_until_drained(std::optional<std::chrono::milliseconds> timeout);
  // For RankBell.
  void wake_for(int64_t agreement);
  EngineReport report() const;
  std::vector<StepInFlight> steps_in_flight() const { return executor_.steps_in_flight(); }
  std::optional<Error> lost() const;
  const EngineSettings& settings() const { return parts_.settings; }
  const Tokenizer* tokenizer() const { return parts_.tokenizer.get(); }

 private:
  enum class CommandKind : uint8_t { kSubmit, kCancel, kForgetPrefixes, kPause, kResume };
  struct Command {
    CommandKind kind;
    std::shared_ptr<LiveRequest> live;  // of kSubmit and kCancel
  };

  // OutputSink, on the engine thread.
  Verdict on_tokens(const Sequence& sequence, int32_t count) override;
  void on_drafted(const Sequence& sequence, int32_t count) override;
  void on_logprobs(const Sequence& sequence, const LogprobRows& rows) override;
  void on_prompt_logprobs(const Sequence& sequence, const LogprobRows& rows) override;
  void on_selections(const Sequence& sequence, int32_t count, std::span<const int32_t> records) override;
  void on_admission(const Sequence& sequence) override;
  void on_end(const Sequence& sequence) override;

  void add_command(Command command);
  EngineTime now() const;
  void run();
  // Waits while there is nothing to do. False: the engine closes.
  bool take_commands();
  void apply(const Command& command);
  void turn();
  StepStart step_alone();
  StepStart step_together();
  // Submits the agreed step, in the end the dummy. False: the engine closes meanwhile.
  bool submit_together(const StepShape& shape);
  bool in_step() const { return rank_.communicator != nullptr && !out_of_step_; }
  bool may_sleep() const;
  void finish_step();
  // Whoever ended in the batch from `first_item` on did so because of `why`; nothing is served any more.
  void lose(size_t first_item, const Error& why);
  // False: the engine closes, or something came where that counts.
  bool wait_before_next_try(bool until_commands);
  void note_refusal();
  struct Live;
  Live& live_of(const Sequence& sequence);
  void refuse(LiveRequest& live, const Error& error);
  void publish_report();

  Engine::Parts parts_;
  const std::chrono::steady_clock::time_point origin_ = std::chrono::steady_clock::now();

  mutable std::mutex mutex_;  // of what follows, up to the next blank line
  std::condition_variable something_to_do_;
  std::condition_variable choices_ended_;
  std::vector<Command> commands_;
  int32_t num_submitting_ = 0;  // choices in commands_
  int32_t num_waiting_ = 0;     // in the core, as of the last look
  int64_t num_live_ = 0;        // choices whose last output was not handed out
  bool engine_waits_ = false;
  bool draining_ = false;
  bool closing_ = false;
  int64_t wanted_agreement_ = 0;  // before this one nobody sleeps
  std::optional<Error> lost_;
  EngineReport report_;

  // The engine thread's.
  EngineRank rank_;
  int64_t agreements_ = 0;    // so far
  bool asleep_ = false;       // the last one was to sleep
  bool leaving_ = false;      // the last one was to leave
  bool out_of_step_ = false;  // the ranks' group has ended
  bool paused_ = false;
  TimedExecutor executor_;
  std::unique_ptr<EngineCore> core_;
  std::vector<Command> taken_;
  OutputBatch batch_;
  struct Live {
    std::shared_ptr<LiveRequest> request;  // null: none lives
    bool finds_stops = false;              // has stop_finders
  };
  std::vector<Live> live_;  // by record (lifecycle.h)
  EngineReport counts_;     // what the core does not count
  double seconds_since_finish_ = 0;
  int32_t refusals_ = 0;  // of the same step

  std::unique_ptr<OutputDelivery> delivery_;
  std::thread thread_;
};

}  // namespace lantern
