// A few threads for what takes longer than the server's own threads may: reading JSON, tokenizing.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lantern {

class WorkQueue {
 public:
  explicit WorkQueue(int32_t threads) {
    for (int32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~WorkQueue() { stop(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Bounded by the caller. Dropped after stop().
  void add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      waiting_.push_back(std::move(work));
    }
    something_came_.notify_one();
  }

  // Waits for what runs; what waits is dropped.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      waiting_.clear();
    }
    something_came_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void run() {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        something_came_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
        if (stopping_) return;
        work = std::move(waiting_.front());
        waiting_.pop_front();
      }
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable something_came_;
  std::deque<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lantern
