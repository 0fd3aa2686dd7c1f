// Which graphs a step is replayed from, and what is replayed in which order, with launches that note that they ran.
// That replays of a model are its eager steps is tested in tests/engine/graphs_test.cc.
#include "engine/step_graphs.h"

#include <gtest/gtest.h>

#include <optional>

#include "device/persistent_buffer.h"
#include "device/stream.h"

namespace lantern {
namespace {

StepLimits limits_of(int32_t max_tokens, int32_t max_requests, int32_t max_query_len = 1) {
  StepLimits limits;
  limits.max_tokens = max_tokens;
  limits.max_requests = max_requests;
  limits.max_query_len = max_query_len;
  return limits;
}

LaunchShape shape_of(StepKind kind, int32_t tokens, int32_t requests = 1) {
  LaunchShape shape{.bucket = {.tokens = tokens, .requests = requests, .kind = kind}, .draft_rows = requests};
  if (kind == StepKind::kDecode) shape.decode_tokens = tokens;
  return shape;
}

struct NoteParams {
  DevPtr<int32_t> notes;  // [0]: how many; then {what, with how much} of each
  int32_t what = 0;
  int32_t size = 0;
};
void note_host(const NoteParams& p, HostContext&) {
  int32_t* const notes = p.notes.get();
  notes[1 + 2 * notes[0]] = p.what;
  notes[2 + 2 * notes[0]] = p.size;
  ++notes[0];
}

enum Note : int32_t {
  kPlan,
  kPiece,
  kAttention = 10,
  kSampler,
  kFill,
  kFillPiece,
  kFillAttention = 20,
  kDraftRows,
  kDrafts
};
using Notes = std::vector<std::pair<int32_t, int32_t>>;

// A step of two layers and a drafter of one, on the host device.
class NotedSteps {
 public:
  NotedSteps(const StepLimits& limits, GraphMode mode, bool drafter, std::optional<int32_t> bad_piece = std::nullopt)
      : device_(make_host_device(1)), stream_(*device_) {
    notes_ = PersistentBuffer<int32_t>::create(*device_, "notes", 100000).value();
    StepGraphs::Bodies bodies;
    bodies.step = [=, this](const LaunchShape& shape, PieceRunner* pieces) {
      note(kPlan, shape.bucket.tokens);
      for (int32_t i = 0; i < 3; ++i) {
        run_piece(pieces, i, [&] {
          if (i == bad_piece) {
            const Result<void*> memory = device_->allocate(MemoryClass::kPersistent, "something", 64);
            if (memory.ok()) device_->release(*memory);  // while it runs eagerly
          }
          note(kPiece + i, shape.bucket.tokens);
        });
        if (i < 2) note(kAttention, shape.decode_tokens);
      }
      note(kSampler, shape.bucket.requests);
    };
    if (drafter) {
      bodies.fill = [this](const LaunchShape& shape, PieceRunner* pieces) {
        note(kFill, shape.bucket.tokens);
        note(kDraftRows, shape.draft_rows);
        if (!shape.drafter_runs) return;
        run_piece(pieces, 0, [&] { note(kFillPiece, shape.bucket.tokens); });
        note(kFillAttention, shape.decode_tokens);
        run_piece(pieces, 1, [&] { note(kFillPiece + 1, shape.bucket.tokens); });
      };
      bodies.drafts = [this](int32_t rows, int32_t passes) { note(kDrafts + passes, rows); };
    }
    Result<std::unique_ptr<StepGraphs>> graphs = StepGraphs::capture(stream_, limits, mode, false, bodies);
    if (!graphs.ok()) {
      error_ = graphs.error().message();
    } else {
      graphs_ = std::move(graphs).value();
    }
    captured_ = take_notes();
  }

  const StepGraphs& graphs() const { return *graphs_; }
  const std::string& error() const { return error_; }
  // What ran while the graphs were captured.
  const Notes& captured() const { return captured_; }
  Notes replay(const LaunchShape& shape, int32_t passes) {
    graphs_->replay(stream_, shape, passes, graphs_->way_of(shape));
    return take_notes();
  }

 private:
  void note(int32_t what, int32_t size) {
    stream_.launch("note", &note_host, NoteParams{.notes = notes_->fixed(), .what = what, .size = size});
  }
  Notes take_notes() {
    int32_t* const words = notes_->fixed().data();
    Notes notes;
    for (int32_t i = 0; i < words[0]; ++i) notes.emplace_back(words[1 + 2 * i], words[2 + 2 * i]);
    words[0] = 0;
    return notes;
  }

  std::unique_ptr<Device> device_;
  Stream stream_;
  std::unique_ptr<PersistentBuffer<int32_t>> notes_;
  std::unique_ptr<StepGraphs> graphs_;
  std::string error_;
  Notes captured_;
};

// Full before pieces before eager; whole graphs are of decodes alone; nothing is beyond the largest bucket.
TEST(StepGraphs, AStepIsReplayedFromAsFewGraphsAsThereAre) {
  using enum StepWay;
  const LaunchShape decode = shape_of(StepKind::kDecode, 8, 4), mixed = shape_of(StepKind::kMixed, 8, 4);
  // A prompt of as many tokens as a decode with its drafts, which is no decode.
  const LaunchShape short_prompt = shape_of(StepKind::kMixed, 2, 1);
  struct Case {
    GraphMode mode;
    StepWay decode, mixed;
  };
  for (const auto& [mode, of_decode, of_mixed] :
       {Case{GraphMode::kPiecewise, kPieces, kPieces}, Case{GraphMode::kFull, kWhole, kEager},
        Case{GraphMode::kFullAndPiecewise, kWhole, kPieces}, Case{GraphMode::kVerify, kWhole, kPieces}}) {
    const NotedSteps steps(limits_of(4096, 4, 2), mode, false);
    EXPECT_EQ(steps.graphs().way_of(decode), of_decode) << to_string(mode);
    EXPECT_EQ(steps.graphs().way_of(mixed), of_mixed) << to_string(mode);
    EXPECT_EQ(steps.graphs().way_of(short_prompt), of_mixed) << to_string(mode);
    EXPECT_EQ(steps.graphs().way_of(shape_of(StepKind::kMixed, 2048, 4)), of_mixed) << to_string(mode);
    EXPECT_EQ(steps.graphs().way_of(shape_of(StepKind::kMixed, 2049, 4)), kEager) << to_string(mode);
  }
}

// What is no part of a piece sees the step's own requests: only tokens are rounded up.
TEST(StepGraphs, PiecesReplayInTheirBucketWithAttentionBetween) {
  NotedSteps steps(limits_of(64, 4, 2), GraphMode::kPiecewise, true);
  LaunchShape mixed = shape_of(StepKind::kMixed, 11, 3);
  mixed.decode_tokens = 2;
  const Notes step{{kPlan, 16},     {kPiece, 16},     {kAttention, 2}, {kPiece + 1, 16},
                   {kAttention, 2}, {kPiece + 2, 16}, {kSampler, 3}};
  Notes filled = step;
  filled.insert(filled.end(),
                {{kFill, 16}, {kDraftRows, 3}, {kFillPiece, 16}, {kFillAttention, 2}, {kFillPiece + 1, 16}});
  EXPECT_EQ(steps.replay(mixed, 0), filled);
  // Without whole graphs the drafter goes on eagerly.
  Notes drafted = filled;
  drafted.emplace_back(kDrafts + 1, 3);
  EXPECT_EQ(steps.replay(mixed, 1), drafted);
  mixed.drafter_runs = false;
  Notes cleared = step;
  cleared.insert(cleared.end(), {{kFill, 16}, {kDraftRows, 3}});
  EXPECT_EQ(steps.replay(mixed, 1), cleared);
  // All of the padding of a step of decodes belongs to decodes, too.
  EXPECT_EQ(steps.replay(shape_of(StepKind::kDecode, 5, 3), 0), (Notes{{kPlan, 8},
                                                                       {kPiece, 8},
                                                                       {kAttention, 8},
                                                                       {kPiece + 1, 8},
                                                                       {kAttention, 8},
                                                                       {kPiece + 2, 8},
                                                                       {kSampler, 3},
                                                                       {kFill, 8},
                                                                       {kDraftRows, 3},
                                                                       {kFillPiece, 8},
                                                                       {kFillAttention, 8},
                                                                       {kFillPiece + 1, 8}}));
}

TEST(StepGraphs, DraftsBehindPiecesAreReplayedWhereWholeGraphsAre) {
  NotedSteps steps(limits_of(64, 6, 3), GraphMode::kFullAndPiecewise, true);
  const Notes mixed = steps.replay(shape_of(StepKind::kMixed, 3, 3), 2);
  EXPECT_EQ(mixed.size(), 7u + 5 + 1);
  EXPECT_EQ(mixed.at(8), std::pair(int32_t{kDraftRows}, 4)) << "as many as that graph reads";
  EXPECT_EQ(mixed.back(), std::pair(kDrafts + 2, 4)) << "in the bucket of 4 requests";
  const Notes decode = steps.replay(shape_of(StepKind::kDecode, 3, 3), 1);
  EXPECT_EQ(decode.back(), std::pair(kDrafts + 1, 4));
  EXPECT_EQ(decode.at(6), std::pair(int32_t{kSampler}, 4)) << "a whole graph is of its bucket's requests";
}

// Each piece ran once, on what attention before it left, and once only: a capture runs nothing.
TEST(StepGraphs, EachBucketOfPiecesRunsEagerlyOnceBeforeItIsCaptured) {
  const NotedSteps steps(limits_of(20, 4), GraphMode::kPiecewise, true);
  Notes expected;
  const std::vector<int32_t> sizes = piece_sizes(20);
  ASSERT_EQ(sizes, (std::vector<int32_t>{1, 2, 4, 8, 16, 20}));
  for (const int32_t tokens : sizes) {
    expected.insert(expected.end(), {{kPlan, tokens},
                                     {kPiece, tokens},
                                     {kAttention, 0},
                                     {kPiece + 1, tokens},
                                     {kAttention, 0},
                                     {kPiece + 2, tokens},
                                     {kSampler, std::min(tokens, 4)},
                                     {kFill, tokens},
                                     {kDraftRows, 0},
                                     {kFillPiece, tokens},
                                     {kFillAttention, 0},
                                     {kFillPiece + 1, tokens}});
  }
  EXPECT_EQ(steps.captured(), expected);
  EXPECT_EQ(steps.graphs().report().num_graphs, 6 * (3 + 2));
  EXPECT_EQ(steps.graphs().report().kernels, 3);
  EXPECT_GT(steps.graphs().report().bytes, 0);
  EXPECT_EQ(steps.graphs().report().buckets, "steps in 3 pieces at 1, 2, 4, 8, 16, 20 tokens");
  EXPECT_EQ(NotedSteps(limits_of(8, 2), GraphMode::kFullAndPiecewise, false).graphs().report().buckets,
            "decodes whole at 1, 2 tokens; steps in 3 pieces at 1, 2, 4, 8 tokens");
}

TEST(StepGraphs, APieceThatCannotBeCapturedIsNamed) {
  const NotedSteps steps(limits_of(8, 2), GraphMode::kPiecewise, false, 1);
  EXPECT_NE(steps.error().find("during the capture of the piece 1 of the bucket of 1 tokens"), std::string::npos)
      << steps.error();
}

TEST(StepGraphsDeathTest, AStepWithoutAGraphIsNotReplayed) {
  NotedSteps steps(limits_of(8, 2), GraphMode::kFull, false);
  EXPECT_DEATH(steps.replay(shape_of(StepKind::kMixed, 3), 0), "no graph for it");
}

}  // namespace
}  // namespace lantern
