// Hands outputs to whoever asked for them, on a thread of its own: text is made and readers are woken there, so that
// the engine thread is done with a step after one hand-over.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/output_text.h"
#include "engine/rank_router.h"

namespace lantern {

// A submitted request. Which thread may touch what: `request`, `rules`, `on_output` and `submitted` are
// fixed before it is submitted.
struct LiveRequest {
  std::shared_ptr<const Request> request;
  OutputTextRules rules;
  OnOutput on_output;

  EngineTime submitted{};

  // The engine thread's.
  RequestId id = 0;
  EngineTime admitted = kNever;  // when its first choice first got its slot
  int32_t choices_left = 0;
  std::unique_ptr<RankRouter::Ticket> ticket;  // until the last choice ends; null where there is one rank
  std::vector<OutputText> stop_finders;        // one for each choice, where there are stop strings

  // The delivery thread's.
  std::vector<OutputText> texts;  // one for each choice, where there is a tokenizer
};

// What hand-overs have room for without allocating.
struct OutputRoom {
  size_t items = 0;
  size_t tokens = 0;
  size_t logprobs = 0;         // tokens that have them, of outputs and of prompts
  int32_t logprobs_width = 0;  // most likely tokens of each
  size_t selection_words = 0;
};

// What one or several steps yielded, in order.
struct OutputBatch {
  struct Item {
    LiveRequest* live = nullptr;  // lives until what says that its last choice ended is handed out
    int32_t choice = 0;
    size_t first_token = 0;
    size_t num_tokens = 0;
    size_t num_drafted = 0;  // of them, at the front: those that drafts had foretold
    EndReason end_reason = EndReason::kNone;
    int32_t cached_tokens = 0;
    double queue_seconds = -1;
    int32_t error = -1;
    // Rows of `logprobs`: of the tokens or of the prompt, never of both.
    size_t first_logprob = 0;
    size_t num_logprobs = 0;
    size_t num_prompt_logprobs = 0;
    // Words of `selections` for `num_traced` of the tokens; the others, if the request traces, had no room.
    size_t first_selection_word = 0;
    size_t num_traced = 0;
  };
  std::vector<Item> items;
  std::vector<int32_t> tokens;
  Logprobs logprobs;                // as wide as the engine's max_logprobs
  std::vector<int32_t> selections;  // of each traced token the number of its keys, then their positions
  std::vector<std::string> errors;
  std::vector<std::shared_ptr<LiveRequest>> ended;  // all of whose choices ended

  bool empty() const { return items.empty(); }
  void reserve(const OutputRoom& room);
  void clear();
  void append(const OutputBatch& other);
  SelectionTrace selections_of(const Item& item) const;
};

class OutputDelivery {
 public:
  // `on_ended` is told how many choices' last outputs were handed out. Hand-overs that fit `room` do not allocate,
  // unless outputs are handed out slower than they come.
  OutputDelivery(const OutputRoom& room, std::function<void(int64_t)> on_ended);
  // Everything that was handed over is handed out first.
  ~OutputDelivery();
  OutputDelivery(const OutputDelivery&) = delete;
  OutputDelivery& operator=(const OutputDelivery&) = delete;

  // Takes the contents of `batch` and leaves it empty, with room for as much. Waits for no reader.
  void hand_over(OutputBatch& batch);
  bool is_current_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void run();
  static void hand_out(const OutputBatch& batch, const OutputBatch::Item& item);

  std::function<void(int64_t)> on_ended_;
  std::mutex mutex_;
  std::condition_variable something_came_;
  OutputBatch pending_;
  OutputBatch taken_;  // the delivery thread's
  bool waiting_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace lantern
