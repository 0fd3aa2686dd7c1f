#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "parallel/communicator.h"

namespace lantern {
namespace {

using Values = std::array<int64_t, Communicator::kMaxValues>;

int64_t reduced(Reduction reduction, int64_t a, int64_t b) {
  switch (reduction) {
    case Reduction::kMax: return std::max(a, b);
    case Reduction::kMin: return std::min(a, b);
    case Reduction::kSum: break;
  }
  return a + b;
}

// What the ranks share. The last to come to a call opens it; its result stays until every rank has come to the next
// one, and so has taken it.
class ThreadGroup {
 public:
  ThreadGroup(int32_t size, std::chrono::milliseconds timeout)
      : size_(size), timeout_(timeout), has_come_(static_cast<size_t>(size)) {}

  int32_t size() const { return size_; }

  Status all_reduce(int32_t rank, std::span<int64_t> values, Reduction reduction) {
    std::unique_lock lock(mutex_);
    if (aborted_) return *aborted_;
    if (num_come_ == 0) {
      count_ = values.size();
      reduction_ = reduction;
      std::ranges::copy(values, sum_.begin());
    } else if (values.size() != count_ || reduction != reduction_) {
      return end(lock, Error(ErrorCode::kInvalidArgument,
                             fmt::format("rank {} reduces {} values where another reduces {}, or by another rule", rank,
                                         values.size(), count_)));
    } else {
      for (size_t i = 0; i < count_; ++i) sum_[i] = reduced(reduction, sum_[i], values[i]);
    }
    has_come_[static_cast<size_t>(rank)] = true;
    if (++num_come_ == size_) {
      result_ = sum_;
      num_come_ = 0;
      std::fill(has_come_.begin(), has_come_.end(), false);
      ++calls_;
      changed_.notify_all();
    } else {
      const uint64_t call = calls_;
      const bool in_time = changed_.wait_for(lock, timeout_, [&] { return calls_ != call || aborted_; });
      if (calls_ == call && aborted_) return *aborted_;
      if (!in_time) return end(lock, late(rank));
    }
    std::copy_n(result_.begin(), values.size(), values.begin());
    return {};
  }

  void abort(Error why) {
    std::unique_lock lock(mutex_);
    if (!aborted_) (void)end(lock, std::move(why));
  }

 private:
  // With the lock held.
  Error end(const std::unique_lock<std::mutex>&, Error why) {
    aborted_ = std::move(why);
    changed_.notify_all();
    return *aborted_;
  }

  Error late(int32_t rank) const {
    std::vector<size_t> missing;
    for (size_t r = 0; r < has_come_.size(); ++r) {
      if (!has_come_[r]) missing.push_back(r);
    }
    return Error(ErrorCode::kUnsupported, fmt::format("rank {} has waited {} ms for rank {}, whose step does not end",
                                                      rank, timeout_.count(), fmt::join(missing, ", rank ")));
  }

  const int32_t size_;
  const std::chrono::milliseconds timeout_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int32_t num_come_ = 0;  // to the call under way
  std::vector<bool> has_come_;
  size_t count_ = 0;
  Reduction reduction_ = Reduction::kMax;
  Values sum_{};     // of the call under way
  Values result_{};  // of the last one
  uint64_t calls_ = 0;
  std::optional<Error> aborted_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int32_t rank) : group_(std::move(group)), rank_(rank) {}
  ~ThreadCommunicator() override {
    group_->abort(Error(ErrorCode::kUnsupported, fmt::format("rank {} of {} has left", rank_, size())));
  }

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return group_->size(); }
  Status all_reduce(std::span<int64_t> values, Reduction reduction) override {
    CHECK(values.size() <= kMaxValues, "{} values are reduced at once", values.size());
    return group_->all_reduce(rank_, values, reduction);
  }
  void abort(Error why) override { group_->abort(std::move(why)); }

 private:
  std::shared_ptr<ThreadGroup> group_;
  int32_t rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int32_t size, std::chrono::milliseconds timeout) {
  CHECK(size >= 1, "{} ranks", size);
  const auto group = std::make_shared<ThreadGroup>(size, timeout);
  std::vector<std::unique_ptr<Communicator>> ranks;
  ranks.reserve(static_cast<size_t>(size));
  for (int32_t rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<ThreadCommunicator>(group, rank));
  return ranks;
}

}  // namespace lantern
