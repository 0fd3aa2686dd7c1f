// The graphs of all buckets of a device.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "device/bucket_key.h"
#include "device/graph.h"

namespace lantern {

class Stream;

class GraphCache {
 public:
  // Runs the body once eagerly and waits, then captures it. Broken invariant when the bucket has a graph already: its
  // address may be in use. Errors: those of the body and of capture_graph.
  Status capture(Stream& stream, const BucketKey& bucket, const std::function<Status(Stream&)>& body);

  // The graph of exactly this bucket, or null.
  Graph* find(const BucketKey& bucket) const;
  // The graph of the smallest bucket that holds such a step, or null: of the same kind and piece, with as many tokens,
  // requests and columns or more; fewest tokens first, then fewest requests, then the narrowest.
  Graph* fitting(const BucketKey& step) const;

  size_t size() const { return graphs_.size(); }
  size_t bytes() const;
  // Ordered as `fitting` prefers.
  std::vector<BucketKey> buckets() const;

 private:
  std::unordered_map<BucketKey, std::unique_ptr<Graph>> graphs_;
};

}  // namespace lantern
