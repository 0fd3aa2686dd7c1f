// Ranks that work on one thing in step, and how they agree: small tables of integers, reduced over all of them. One
// rank alone, and ranks that are threads of one process; ranks in several processes are further implementations.
//
// A rank that fails, or leaves while others go on, ends the calls of the others with its reason: nobody waits for who
// does not come.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

namespace lantern {

enum class Reduction : uint8_t { kMax, kMin, kSum };

// One rank's end. Of one thread at a time, but for abort(). A rank whose end is destroyed has left.
class Communicator {
 public:
  static constexpr size_t kMaxValues = 64;  // of a call

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;

  // Waits until every rank has called, and replaces each value by the reduction over the ranks' values at its place.
  // Every rank's n-th call has as many values (at most kMaxValues) and the same reduction; calls that differ end the
  // group. Allocates nothing unless it fails. Errors, on every rank from then on: why some rank aborted; a rank has
  // left (unsupported); some ranks did not come in time (unsupported); calls that differ (invalid_argument).
  virtual Status all_reduce(std::span<int64_t> values, Reduction reduction) = 0;
  // Waits until every rank has called.
  Status barrier() { return all_reduce({}, Reduction::kMax); }

  // Ends the calls that wait, on every rank, and all later ones, with `why`; only the first reason counts. Any thread.
  virtual void abort(Error why) = 0;

 protected:
  Communicator() = default;
};

// The only rank of its group: every call returns at once.
std::unique_ptr<Communicator> make_single_communicator();

// Ends for ranks 0 to size - 1, each for a thread of this process. A call waits for the other ranks at most `timeout`.
// They sleep while they wait. Precondition: size >= 1.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int32_t size, std::chrono::milliseconds timeout);

}  // namespace lantern
