#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"

namespace lantern {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

namespace {

// Spins before sleeping: consecutive loops of one forward pass follow each other within microseconds.
constexpr int kSpins = 4000;

inline void relax() { __builtin_ia32_pause(); }

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  // The loop that workers may join, 0 between loops. A worker enters (active + 1) before it looks, the caller closes
  // before it looks at `active`: so either the worker sees the loop closed, or the caller sees the worker and waits.
  // A worker that wakes too late is not waited for.
  std::atomic<uint64_t> open{0};
  std::atomic<int> active{0};
  std::atomic<bool> stop{false};
  std::atomic<int64_t> next{0};
  uint64_t generation = 0;
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

  void end() {
    {
      std::lock_guard lock(mutex);
      stop.store(true);
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void loop(int worker) {
    uint64_t seen = 0;
    const auto called = [&] {
      const uint64_t now = open.load(std::memory_order_acquire);
      return (now != 0 && now != seen) || stop.load(std::memory_order_relaxed);
    };
    while (true) {
      int spins = 0;
      while (!called()) {
        if (++spins < kSpins) {
          relax();
          continue;
        }
        std::unique_lock lock(mutex);
        wake.wait(lock, called);
      }
      if (stop.load(std::memory_order_relaxed)) return;
      active.fetch_add(1);
      if (const uint64_t now = open.load(); now != 0 && now != seen) {
        seen = now;
        work(worker);
      }
      active.fetch_sub(1);
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads == 0) threads = usable_cores();
  CHECK(threads >= 1, "a thread pool of {} threads was asked for", threads);
  try {
    for (int worker = 1; worker < threads; ++worker) {
      state_->threads.emplace_back([state = state_.get(), worker] { state->loop(worker); });
    }
  } catch (const std::system_error&) {
    state_->end();  // the threads that there are; the caller hears of the one that the system refused
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->end(); }

int ThreadPool::thread_count() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t, int)>& body) {
  if (count <= 0) return;
  State& s = *state_;
  grain = std::max<int64_t>(1, grain);
  // Also for a loop that would run on this thread alone: worker 0 may be at work on another one.
  CHECK(!s.running, "parallel_for was called from inside a parallel_for body");
  s.running = true;
  if (s.threads.empty() || count <= grain) {
    body(0, count, 0);
    s.running = false;
    return;
  }
  s.count = count;
  s.grain = grain;
  s.body = &body;
  s.next.store(0, std::memory_order_relaxed);
  {
    std::lock_guard lock(s.mutex);
    s.open.store(++s.generation);
  }
  s.wake.notify_all();
  s.work(0);
  s.open.store(0);
  while (s.active.load() != 0) relax();
  s.body = nullptr;
  s.running = false;
}

}  // namespace lantern
