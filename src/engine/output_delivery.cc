#include "engine/output_delivery.h"

#include <numeric>
#include <utility>

namespace lantern {

void OutputBatch::reserve(const OutputRoom& room) {
  items.reserve(room.items);
  tokens.reserve(room.tokens);
  ended.reserve(room.items);
  logprobs.width = room.logprobs_width;
  logprobs.reserve(room.logprobs);
  selections.reserve(room.selection_words);
}

void OutputBatch::clear() {
  items.clear();
  tokens.clear();
  logprobs.clear();
  selections.clear();
  errors.clear();
  ended.clear();
}

void OutputBatch::append(const OutputBatch& other) {
  for (Item item : other.items) {
    item.first_token += tokens.size();
    item.first_logprob += logprobs.size();
    item.first_selection_word += selections.size();
    if (item.error >= 0) item.error += static_cast<int32_t>(errors.size());
    items.push_back(item);
  }
  tokens.insert(tokens.end(), other.tokens.begin(), other.tokens.end());
  logprobs.append(other.logprobs.rows(0, other.logprobs.size()));
  selections.insert(selections.end(), other.selections.begin(), other.selections.end());
  errors.insert(errors.end(), other.errors.begin(), other.errors.end());
  ended.insert(ended.end(), other.ended.begin(), other.ended.end());
}

SelectionTrace OutputBatch::selections_of(const Item& item) const {
  SelectionTrace trace;
  auto words = std::span(selections).subspan(item.first_selection_word);
  for (size_t t = 0; t < item.num_traced; ++t) {
    const auto keys = static_cast<size_t>(words.front());
    trace.add(words.subspan(1, keys));
    words = words.subspan(1 + keys);
  }
  trace.add_without_room(item.num_tokens - item.num_traced);
  return trace;
}

OutputDelivery::OutputDelivery(const OutputRoom& room, std::function<void(int64_t)> on_ended)
    : on_ended_(std::move(on_ended)) {
  pending_.reserve(room);
  taken_.reserve(room);
  thread_ = std::thread([this] { run(); });
}

OutputDelivery::~OutputDelivery() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  something_came_.notify_one();
  thread_.join();
}

void OutputDelivery::hand_over(OutputBatch& batch) {
  if (batch.empty()) return;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (pending_.empty()) {
      std::swap(pending_, batch);
    } else {
      pending_.append(batch);
    }
    wake = waiting_;
  }
  batch.clear();
  if (wake) something_came_.notify_one();
}

void OutputDelivery::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      waiting_ = true;
      something_came_.wait(lock, [&] { return closing_ || !pending_.empty(); });
      waiting_ = false;
      if (pending_.empty()) return;
      std::swap(pending_, taken_);
    }
    int64_t ended = 0;
    for (const OutputBatch::Item& item : taken_.items) {
      hand_out(taken_, item);
      ended += item.end_reason != EndReason::kNone ? 1 : 0;
    }
    taken_.clear();
    if (ended > 0) on_ended_(ended);
  }
}

void OutputDelivery::hand_out(const OutputBatch& batch, const OutputBatch::Item& item) {
  LiveRequest& live = *item.live;
  const auto tokens = std::span(batch.tokens).subspan(item.first_token, item.num_tokens);
  Output output;
  output.choice = item.choice;
  output.tokens.assign(tokens.begin(), tokens.end());
  output.drafted.resize(item.num_drafted);
  std::iota(output.drafted.begin(), output.drafted.end(), 0);
  output.end_reason = item.end_reason;
  output.cached_tokens = item.cached_tokens;
  output.queue_seconds = item.queue_seconds;
  if (item.error >= 0) output.error = batch.errors[static_cast<size_t>(item.error)];
  if (item.num_logprobs > 0) {
    output.logprobs.width = live.request->logprobs;
    output.logprobs.append(batch.logprobs.rows(item.first_logprob, item.num_logprobs));
  }
  if (item.num_prompt_logprobs > 0) {
    output.prompt_logprobs.width = live.request->prompt_logprobs;
    output.prompt_logprobs.append(batch.logprobs.rows(item.first_logprob, item.num_prompt_logprobs));
  }
  if (live.request->trace_selections) output.selections = batch.selections_of(item);
  if (!live.texts.empty()) {
    OutputText& text = live.texts[static_cast<size_t>(item.choice)];
    for (const int32_t token : tokens) output.text += text.add(token);
    if (output.ended()) {
      output.text += text.finish();
      output.stop_string = text.matched();
      output.stop_token = text.stop_token();
    }
  }
  live.on_output(std::move(output));
}

}  // namespace lantern
