#include "server/admission.h"

#include <algorithm>
#include <cmath>

namespace lantern {
namespace {

constexpr size_t kRememberedStarts = 64;
constexpr std::chrono::seconds kWindow{30};  // older starts say nothing about the rate
constexpr int32_t kLongestWait = 120;        // seconds; clients ignore longer ones
constexpr int32_t kUnknownWait = 5;          // where nothing has started lately
constexpr double kNewShare = 0.1;            // of a new request in bytes_per_token_

}  // namespace

AdmissionControl::Ticket::~Ticket() { owner_->leave_queue(*this, std::nullopt); }

void AdmissionControl::Ticket::set_tokens(int64_t tokens) {
  const std::lock_guard lock(owner_->mutex_);
  if (known_ || started_) return;
  known_ = true;
  owner_->waiting_tokens_ += tokens - tokens_;
  tokens_ = tokens;
  if (tokens > 0 && bytes_ > 0) {
    const double ratio = std::clamp(static_cast<double>(bytes_) / static_cast<double>(tokens), 0.5, 16.0);
    owner_->bytes_per_token_ += kNewShare * (ratio - owner_->bytes_per_token_);
  }
}

void AdmissionControl::Ticket::started(Time now) { owner_->leave_queue(*this, now); }

void AdmissionControl::leave_queue(Ticket& ticket, std::optional<Time> now) {
  const std::lock_guard lock(mutex_);
  if (!ticket.started_) {
    ticket.started_ = true;
    --waiting_;
    waiting_tokens_ -= ticket.tokens_;
    if (now) {
      starts_.push_back(*now);
      if (starts_.size() > kRememberedStarts) starts_.pop_front();
    }
  }
  if (!now) --live_;
}

std::unique_ptr<AdmissionControl::Ticket> AdmissionControl::admit(int64_t body_bytes, Time now, Refusal& refusal) {
  const std::lock_guard lock(mutex_);
  const auto tokens = static_cast<int64_t>(static_cast<double>(body_bytes) / bytes_per_token_);
  const bool too_many = waiting_ >= limits_.max_requests;
  // One that alone is too long for the limit must be able to run some time.
  const bool too_long = limits_.max_tokens > 0 && waiting_ > 0 && waiting_tokens_ + tokens > limits_.max_tokens;
  if (too_many || too_long) {
    refusal = {.reason = too_many ? "reqs" : "tokens",
               .waiting = too_many ? waiting_ : waiting_tokens_,
               .limit = too_many ? limits_.max_requests : limits_.max_tokens,
               .retry_after_seconds = retry_after(now)};
    return nullptr;
  }
  std::unique_ptr<Ticket> ticket(new Ticket(shared_from_this(), body_bytes));
  ticket->tokens_ = tokens;
  ++waiting_;
  ++live_;
  waiting_tokens_ += tokens;
  return ticket;
}

int32_t AdmissionControl::retry_after(Time now) {
  while (!starts_.empty() && now - starts_.front() > kWindow) starts_.pop_front();
  if (starts_.empty()) return kUnknownWait;
  // By the rate of the starts in the window, when will half of those that wait have started?
  const double seconds = std::max(std::chrono::duration<double>(now - starts_.front()).count(), 0.1);
  const double rate = static_cast<double>(starts_.size()) / seconds;
  const double wait = std::ceil(static_cast<double>(std::max<int64_t>(waiting_, 1)) / 2 / rate);
  return static_cast<int32_t>(std::clamp(wait, 1.0, static_cast<double>(kLongestWait)));
}

int64_t AdmissionControl::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}
int64_t AdmissionControl::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

}  // namespace lantern
