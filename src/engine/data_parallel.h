// Data parallel: several engines of one model, the ranks, each with its own scheduler, caches and executor, run in
// step. Before a step they agree on the shape of its launches, the largest that one of them needs, so that on every
// rank the same kernels meet (an exchange of experts between ranks waits for all of them), the same graphs are
// replayed, and the drafter runs as often. A rank without rows runs the dummy.
//
// An agreement is one reduction of a small table. Ranks that have nothing to do agree to sleep, and ranks whose engines
// close agree to leave: no rank is ever waited for that does not come. CONTRACT.md, group D.
#pragma once

#include <array>
#include <cstdint>

#include "engine/step_batch.h"
#include "parallel/communicator.h"

namespace lantern {

// What a rank brings to an agreement.
struct StepWish {
  StepShape shape;               // what its rows need; empty: it has none to run now
  bool busy = false;             // something lives and is not paused, or is in flight
  bool stays = true;             // false: it would leave
  uint64_t launches_digest = 0;  // of all steps before (EngineCore::launches_digest)
};

enum class RankMove : uint8_t {
  kStep,   // every rank submits a step of the agreed shape: its rows, or the dummy
  kAgain,  // no rank can plan rows before results come: who has steps in flight finishes one
  kSleep,  // nothing lives on any rank, or all is paused
  kLeave,  // no rank stays
};

struct StepAgreement {
  RankMove move = RankMove::kSleep;
  StepShape shape;  // of kStep; encloses the dummy, which any rank may run in it
};

// A wish as the table that is reduced by maximum, and what the reduced table says: the same on every rank. Broken
// invariant (D2) where the ranks have not launched alike before.
using StepWishTable = std::array<int64_t, 11>;
StepWishTable to_table(const StepWish& wish);
StepAgreement agreement_of(const StepWishTable& reduced, const EngineSettings& settings);

// Waits for the other ranks' wishes. Errors: those of all_reduce().
Result<StepAgreement> agree(Communicator& ranks, const StepWish& wish, const EngineSettings& settings);

}  // namespace lantern
