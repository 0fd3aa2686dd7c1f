#include "engine/step_graphs.h"

#include <fmt/ranges.h>

#include <chrono>

#include "base/check.h"
#include "device/kernel_count.h"
#include "device/stream.h"

namespace lantern {
namespace {

BucketKey of_piece(BucketKey bucket, int32_t piece) {
  bucket.piece = piece;
  return bucket;
}

// Captures each piece of a pass that runs: once eagerly first, as every bucket, so that attention, which runs between
// the pieces, finds what they make.
class PieceCapture final : public PieceRunner {
 public:
  PieceCapture(Stream& stream, GraphCache& graphs, const BucketKey& bucket)
      : stream_(stream), graphs_(graphs), bucket_(bucket) {}

  void run(int32_t piece, const std::function<void()>& launches) override {
    if (!status_.ok()) return;
    status_ = graphs_.capture(stream_, of_piece(bucket_, piece), [&](Stream&) -> Status {
      launches();
      return {};
    });
  }
  // Of the first piece that failed; those behind it were left out.
  Status status() const { return status_; }

 private:
  Stream& stream_;
  GraphCache& graphs_;
  BucketKey bucket_;
  Status status_;
};

class PieceReplay final : public PieceRunner {
 public:
  PieceReplay(Stream& stream, const GraphCache& graphs, const BucketKey& bucket)
      : stream_(stream), graphs_(graphs), bucket_(bucket) {}

  void run(int32_t piece, const std::function<void()>&) override {
    Graph* const graph = graphs_.find(of_piece(bucket_, piece));
    CHECK(graph != nullptr, "no graph of {}", to_string(of_piece(bucket_, piece)));
    // A step begins with its first piece; the others, and the drafter, go on from what lies in the workspace.
    graph->replay(stream_, {.keep_workspace = piece > 0 || bucket_.kind == StepKind::kDraftFillPiece});
  }

 private:
  Stream& stream_;
  const GraphCache& graphs_;
  BucketKey bucket_;
};

}  // namespace

StepGraphs::StepGraphs(const StepLimits& limits, GraphMode mode, bool logprobs, const Bodies& bodies)
    : buckets_(limits, bodies.drafts ? limits.max_query_len - 1 : 0),
      whole_(captures_whole(mode)),
      pieces_(captures_pieces(mode)),
      logprobs_(logprobs),
      bodies_(bodies) {}

Result<std::unique_ptr<StepGraphs>> StepGraphs::capture(Stream& stream, const StepLimits& limits, GraphMode mode,
                                                        bool logprobs, const Bodies& bodies) {
  std::unique_ptr<StepGraphs> graphs(new StepGraphs(limits, mode, logprobs, bodies));
  const auto start = std::chrono::steady_clock::now();
  if (graphs->whole_) {
    RETURN_IF_ERROR(graphs->capture_whole(stream));
    RETURN_IF_ERROR(graphs->capture_drafts(stream));
  }
  if (graphs->pieces_) RETURN_IF_ERROR(graphs->capture_pieces(stream));
  graphs->fill_report(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return graphs;
}

Status StepGraphs::capture_whole(Stream& stream) {
  for (BucketKey bucket : buckets_.decodes()) {
    const LaunchShape shape = decode_shape(bucket, logprobs_);
    RETURN_IF_ERROR(graphs_.capture(stream, bucket, [&](Stream&) -> Status {
      bodies_.step(shape, nullptr);
      return {};
    }));
    if (!bodies_.fill) continue;
    for (const bool runs : {true, false}) {
      LaunchShape fill = shape;
      fill.drafter_runs = runs;
      bucket.kind = runs ? StepKind::kDraftFill : StepKind::kDraftClear;
      RETURN_IF_ERROR(graphs_.capture(stream, bucket, [&](Stream&) -> Status {
        bodies_.fill(fill, nullptr);
        return {};
      }));
    }
  }
  return {};
}

Status StepGraphs::capture_drafts(Stream& stream) {
  for (const BucketKey& bucket : buckets_.drafts()) {
    RETURN_IF_ERROR(graphs_.capture(stream, bucket, [&](Stream&) -> Status {
      bodies_.drafts(bucket.requests, bucket.query_width);
      return {};
    }));
  }
  return {};
}

Status StepGraphs::capture_pieces(Stream& stream) {
  for (const int32_t tokens : buckets_.piece_tokens()) {
    const LaunchShape shape = buckets_.widest_in_pieces(tokens);
    PieceCapture step(stream, graphs_, buckets_.of_pieces(tokens, StepKind::kPiece));
    bodies_.step(shape, &step);
    RETURN_IF_ERROR(step.status());
    if (!bodies_.fill) continue;
    PieceCapture fill(stream, graphs_, buckets_.of_pieces(tokens, StepKind::kDraftFillPiece));
    bodies_.fill(shape, &fill);
    RETURN_IF_ERROR(fill.status());
  }
  return {};
}

bool StepGraphs::holds(const LaunchShape& shape, StepWay way) const {
  switch (way) {
    case StepWay::kEager: return true;
    case StepWay::kPieces: return pieces_ && shape.bucket.tokens <= buckets_.most_tokens_in_pieces();
    case StepWay::kWhole:
      return whole_ && shape.bucket.kind == StepKind::kDecode && shape.bucket.tokens <= buckets_.most_tokens();
  }
  return false;
}

StepWay StepGraphs::way_of(const LaunchShape& shape) const {
  for (const StepWay way : {StepWay::kWhole, StepWay::kPieces}) {
    if (holds(shape, way)) return way;
  }
  return StepWay::kEager;
}

LaunchShape StepGraphs::launched(const LaunchShape& shape, StepWay way) const {
  if (way == StepWay::kWhole) return decode_shape(buckets_.of_decodes(shape.bucket.tokens), logprobs_);
  LaunchShape launched = shape;
  if (way != StepWay::kPieces) return launched;
  launched.pad_to(buckets_.of_pieces(shape.bucket.tokens, StepKind::kPiece).tokens);
  // The pass over the step's tokens names the rows that the graph of the further passes begins with: padding, too.
  if (whole_ && bodies_.drafts && shape.draft_rows > 0) {
    launched.draft_rows = buckets_.of_drafts(shape.draft_rows, 1).requests;
  }
  return launched;
}

void StepGraphs::replay(Stream& stream, const LaunchShape& shape, int32_t draft_passes, StepWay way) const {
  CHECK(way != StepWay::kEager && holds(shape, way), "a step in the {} and no graph for it", to_string(shape.bucket));
  way == StepWay::kWhole ? replay_whole(stream, shape) : replay_pieces(stream, shape);
  if (!bodies_.fill || draft_passes == 0 || shape.draft_rows == 0 || !shape.drafter_runs) return;
  if (!whole_) return bodies_.drafts(shape.draft_rows, draft_passes);
  graphs_.find(buckets_.of_drafts(shape.draft_rows, draft_passes))->replay(stream, {.keep_workspace = true});
}

void StepGraphs::replay_whole(Stream& stream, const LaunchShape& shape) const {
  BucketKey bucket = buckets_.of_decodes(shape.bucket.tokens);
  CHECK(shape.bucket.requests <= bucket.requests, "a step in the {} and no graph for it", to_string(shape.bucket));
  graphs_.find(bucket)->replay(stream);
  if (!bodies_.fill) return;
  // The drafter goes on from hidden states that the step left in the workspace.
  bucket.kind = shape.drafter_runs ? StepKind::kDraftFill : StepKind::kDraftClear;
  graphs_.find(bucket)->replay(stream, {.keep_workspace = true});
}

void StepGraphs::replay_pieces(Stream& stream, const LaunchShape& shape) const {
  const LaunchShape padded = launched(shape, StepWay::kPieces);
  PieceReplay step(stream, graphs_, buckets_.of_pieces(padded.bucket.tokens, StepKind::kPiece));
  bodies_.step(padded, &step);
  if (!bodies_.fill) return;
  PieceReplay fill(stream, graphs_, buckets_.of_pieces(padded.bucket.tokens, StepKind::kDraftFillPiece));
  bodies_.fill(padded, &fill);
}

void StepGraphs::fill_report(double seconds) {
  report_.seconds = seconds;
  report_.num_graphs = static_cast<int32_t>(graphs_.size());
  report_.bytes = static_cast<int64_t>(graphs_.bytes());
  const auto add = [&](const char* how, const std::vector<int32_t>& tokens) {
    if (!report_.buckets.empty()) report_.buckets += "; ";
    report_.buckets += fmt::format("{} at {} tokens", how, fmt::join(tokens, ", "));
  };
  if (whole_) {
    add("decodes whole", buckets_.decode_tokens());
    report_.kernels = kernel_count(*graphs_.find(buckets_.of_decodes(1)));
  }
  if (!pieces_) return;
  int32_t pieces = 0;
  int64_t kernels = 0;
  const BucketKey smallest = buckets_.of_pieces(1, StepKind::kPiece);
  while (const Graph* const graph = graphs_.find(of_piece(smallest, pieces))) {
    kernels += kernel_count(*graph);
    ++pieces;
  }
  add(fmt::format("steps in {} pieces", pieces).c_str(), buckets_.piece_tokens());
  if (!whole_) report_.kernels = kernels;
}

}  // namespace lantern
