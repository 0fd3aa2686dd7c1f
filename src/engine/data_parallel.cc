#include "engine/data_parallel.h"

#include "base/check.h"

namespace lantern {
namespace {

enum Column : size_t {
  kTokens,
  kRequests,
  kQueryWidth,
  kKind,
  kSamplingRows,
  kDraftPasses,
  kDrafterRuns,
  kBusy,
  kStays,
  kDigest,         // 63 bits of it,
  kNegativeDigest  // and their negative: the largest of both are those of one number only where all are equal
};
static_assert(kNegativeDigest + 1 == std::tuple_size_v<StepWishTable>);
static_assert(std::tuple_size_v<StepWishTable> <= Communicator::kMaxValues);

}  // namespace

StepWishTable to_table(const StepWish& wish) {
  const BucketKey& bucket = wish.shape.bucket;
  const auto digest = static_cast<int64_t>(wish.launches_digest >> 1);
  StepWishTable table{};
  table[kTokens] = bucket.tokens;
  table[kRequests] = bucket.requests;
  table[kQueryWidth] = bucket.query_width;
  table[kKind] = static_cast<int64_t>(bucket.kind);
  table[kSamplingRows] = wish.shape.sampling_rows;
  table[kDraftPasses] = wish.shape.draft_passes;
  table[kDrafterRuns] = wish.shape.drafter_runs ? 1 : 0;
  table[kBusy] = wish.busy ? 1 : 0;
  table[kStays] = wish.stays ? 1 : 0;
  table[kDigest] = digest;
  table[kNegativeDigest] = -digest;
  return table;
}

StepAgreement agreement_of(const StepWishTable& reduced, const EngineSettings& settings) {
  CHECK(reduced[kDigest] == -reduced[kNegativeDigest], "D2: the ranks' launches were not of the same shapes");
  StepAgreement agreement;
  if (reduced[kStays] == 0) {
    agreement.move = RankMove::kLeave;
  } else if (reduced[kTokens] > 0) {
    agreement.move = RankMove::kStep;
    StepShape& shape = agreement.shape;
    shape.bucket = {.tokens = static_cast<int32_t>(reduced[kTokens]),
                    .requests = static_cast<int32_t>(reduced[kRequests]),
                    .query_width = static_cast<int32_t>(reduced[kQueryWidth]),
                    .kind = static_cast<StepKind>(reduced[kKind])};
    shape.sampling_rows = static_cast<int32_t>(reduced[kSamplingRows]);
    shape.draft_passes = static_cast<int32_t>(reduced[kDraftPasses]);
    shape.drafter_runs = reduced[kDrafterRuns] > 0;
    shape = enclosing(shape, dummy_shape(settings));
  } else {
    agreement.move = reduced[kBusy] > 0 ? RankMove::kAgain : RankMove::kSleep;
  }
  return agreement;
}

Result<StepAgreement> agree(Communicator& ranks, const StepWish& wish, const EngineSettings& settings) {
  StepWishTable table = to_table(wish);
  RETURN_IF_ERROR(ranks.all_reduce(table, Reduction::kMax));
  return agreement_of(table, settings);
}

}  // namespace lantern
