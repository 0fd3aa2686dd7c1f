#include "device/graph_cache.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "device/stream.h"

namespace lantern {
namespace {

bool before(const BucketKey& a, const BucketKey& b) {
  return std::tie(a.kind, a.tokens, a.requests, a.query_width, a.piece) <
         std::tie(b.kind, b.tokens, b.requests, b.query_width, b.piece);
}

}  // namespace

Status GraphCache::capture(Stream& stream, const BucketKey& bucket, const std::function<Status(Stream&)>& body) {
  CHECK(find(bucket) == nullptr, "the {} was captured twice", to_string(bucket));
  RETURN_IF_ERROR(body(stream));
  stream.synchronize();
  ASSIGN_OR_RETURN(graphs_[bucket], capture_graph(stream, bucket, body));
  return {};
}

Graph* GraphCache::find(const BucketKey& bucket) const {
  const auto it = graphs_.find(bucket);
  return it == graphs_.end() ? nullptr : it->second.get();
}

Graph* GraphCache::fitting(const BucketKey& step) const {
  Graph* best = nullptr;
  for (const auto& [bucket, graph] : graphs_) {
    const bool holds = bucket.kind == step.kind && bucket.piece == step.piece && bucket.tokens >= step.tokens &&
                       bucket.requests >= step.requests && bucket.query_width >= step.query_width;
    if (holds && (best == nullptr || before(bucket, best->bucket()))) best = graph.get();
  }
  return best;
}

size_t GraphCache::bytes() const {
  size_t total = 0;
  for (const auto& [bucket, graph] : graphs_) total += graph->bytes();
  return total;
}

std::vector<BucketKey> GraphCache::buckets() const {
  std::vector<BucketKey> buckets;
  buckets.reserve(graphs_.size());
  for (const auto& [bucket, graph] : graphs_) buckets.push_back(bucket);
  std::sort(buckets.begin(), buckets.end(), before);
  return buckets;
}

}  // namespace lantern
