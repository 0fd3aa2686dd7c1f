#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace lantern {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Spins before sleeping: consecutive loops of one forward pass follow each other within microseconds.
constexpr int kSpins = 4000;

inline void relax() { __builtin_ia32_pause(); }

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> generation{0};
  std::atomic<bool> stop{false};
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};
  int64_t count = 0;
  int64_t grain = 1;
  const std::function<void(int64_t, int64_t, int)>* body = nullptr;
  bool running = false;
  std::vector<std::thread> threads;

  void work(int worker) {
    while (true) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      (*body)(begin, std::min(count, begin + grain), worker);
    }
  }

  void loop(int worker) {
    uint64_t seen = 0;
    while (true) {
      int spins = 0;
      while (generation.load(std::memory_order_acquire) == seen && !stop.load(std::memory_order_relaxed)) {
        if (++spins < kSpins) {
          relax();
          continue;
        }
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen || stop.load(); });
      }
      if (stop.load()) return;
      seen = generation.load(std::memory_order_acquire);
      work(worker);
      busy.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads == 0) threads = usable_cores();
  CHECK(threads >= 1, "a thread pool of {} threads was asked for", threads);
  for (int worker = 1; worker < threads; ++worker) {
    state_->threads.emplace_back([state = state_.get(), worker] { state->loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop.store(true);
  }
  state_->wake.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::thread_count() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t, int)>& body) {
  if (count <= 0) return;
  State& s = *state_;
  grain = std::max<int64_t>(1, grain);
  if (s.threads.empty() || count <= grain) {
    body(0, count, 0);
    return;
  }
  CHECK(!s.running, "parallel_for was called from inside a parallel_for body");
  s.running = true;
  s.count = count;
  s.grain = grain;
  s.body = &body;
  s.next.store(0, std::memory_order_relaxed);
  s.busy.store(static_cast<int>(s.threads.size()), std::memory_order_relaxed);
  {
    std::lock_guard lock(s.mutex);
    s.generation.fetch_add(1, std::memory_order_release);
  }
  s.wake.notify_all();
  s.work(0);
  while (s.busy.load(std::memory_order_acquire) != 0) relax();
  s.body = nullptr;
  s.running = false;
}

}  // namespace lantern
