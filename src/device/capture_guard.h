// Stands while a thread captures a graph. What would bake a passing state into the graph, or wait for work that is only
// being recorded, is refused meanwhile with the names of the operation and the bucket:
//   - allocation returns an Error, since its callers can take one, and the capture fails with the same Error even where
//     somebody swallowed it;
//   - releasing memory, waiting, and copies between host and device are broken invariants and end the process: they
//     have no way to report, and a step that does one could never be replayed.
// Only the capturing thread is concerned; another may allocate and wait as it likes.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "device/bucket_key.h"

namespace lantern {

class CaptureGuard {
 public:
  // Broken invariant where this thread captures already.
  explicit CaptureGuard(const BucketKey& bucket);
  // On the thread that made it.
  ~CaptureGuard();
  CaptureGuard(const CaptureGuard&) = delete;
  CaptureGuard& operator=(const CaptureGuard&) = delete;

  // This thread's guard, or null.
  static CaptureGuard* active();
  // Ends the process where this thread captures. `operation` says who does what: "synchronize()".
  static void forbid(std::string_view operation);
  // The same as an Error, which is also what the capture will end with. `operation` as above.
  static Status refuse(std::string_view operation);

  const BucketKey& bucket() const { return bucket_; }
  // Makes the capture fail; of several errors the first stays.
  void fail(Error error);
  const std::optional<Error>& failure() const { return failure_; }

 private:
  BucketKey bucket_;
  std::optional<Error> failure_;
};

}  // namespace lantern
