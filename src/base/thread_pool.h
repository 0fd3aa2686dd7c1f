// A fixed set of threads for data-parallel loops. The calling thread takes part, so a pool of 1 has no thread of its
// own. How a range is split never changes a result: bodies write disjoint outputs and share no accumulators.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lantern {

// The cores that this process may use; at least 1.
int usable_cores();

class ThreadPool {
 public:
  // threads >= 1; 0: usable_cores(). Throws std::system_error when the system refuses a thread.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const;

  // Runs body(begin, end, worker) over disjoint ranges that cover [0, count); worker in [0, thread_count()).
  // Ranges are handed out dynamically in pieces of at most `grain` items. Returns when all are done.
  // Not reentrant: a body must not call parallel_for of the same pool.
  void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t, int)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lantern
