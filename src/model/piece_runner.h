// Where a forward pass is cut so that attention stays out of captured graphs: what lies between two places of attention
// is a piece, whose launches are shaped by the number of tokens alone and read everything else from device memory.
// Attention and the indexer's choice, which are shaped by requests and by which tokens decode, are no part of one.
#pragma once

#include <cstdint>
#include <functional>

namespace lantern {

class PieceRunner {
 public:
  virtual ~PieceRunner() = default;
  // Stands for `launches()`: launches them, captures them, or replays what it captured of the same piece. Pieces come
  // in order, from 0 on in each pass.
  virtual void run(int32_t piece, const std::function<void()>& launches) = 0;
};

// By `runner`, or as it stands where there is none.
template <class Launches>
void run_piece(PieceRunner* runner, int32_t piece, const Launches& launches) {
  if (runner == nullptr) return launches();
  runner->run(piece, std::cref(launches));  // by reference: a copy would be made on the heap
}

}  // namespace lantern
