// How many requests may wait, decided before anything is spent on them, and when a refused one should come again.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace lantern {

struct AdmissionLimits {
  int64_t max_requests = 1024;  // that wait for their first token
  int64_t max_tokens = 0;       // of prompts that do; 0: any number
};

// Time is a value, so that the rules can be tested. Any thread.
class AdmissionControl : public std::enable_shared_from_this<AdmissionControl> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A request from its admission on. It waits until started(); when it goes it has ended.
  class Ticket {
   public:
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    // How long its prompt is, once that is known.
    void set_tokens(int64_t tokens);
    // Its first token has come.
    void started(Time now);

   private:
    friend class AdmissionControl;
    Ticket(std::shared_ptr<AdmissionControl> owner, int64_t bytes) : owner_(std::move(owner)), bytes_(bytes) {}
    std::shared_ptr<AdmissionControl> owner_;
    int64_t bytes_;
    int64_t tokens_ = 0;
    bool known_ = false;
    bool started_ = false;
  };

  struct Refusal {
    std::string reason;  // "reqs" or "tokens": which limit it was
    int64_t waiting = 0;
    int64_t limit = 0;
    int32_t retry_after_seconds = 1;
  };

  explicit AdmissionControl(const AdmissionLimits& limits) : limits_(limits) {}

  // `body_bytes` stands for the prompt until its tokens are known. Null, and the refusal, where it may not come in.
  std::unique_ptr<Ticket> admit(int64_t body_bytes, Time now, Refusal& refusal);
  int64_t waiting() const;  // requests
  int64_t live() const;     // requests that have not ended

 private:
  void leave_queue(Ticket& ticket, std::optional<Time> now);
  int32_t retry_after(Time now);

  const AdmissionLimits limits_;
  mutable std::mutex mutex_;
  int64_t waiting_ = 0;
  int64_t waiting_tokens_ = 0;
  int64_t live_ = 0;
  double bytes_per_token_ = 4;  // of what came so far
  std::deque<Time> starts_;     // the latest
};

}  // namespace lantern
