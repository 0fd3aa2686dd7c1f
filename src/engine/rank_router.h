// Which rank serves a request: the one with the least to do. What the rank's prefix index is likely to have of the
// prompt counts as done. Only a guess is made of that, from which prompts went where; no rank is asked.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/block_hash.h"
#include "engine/engine_settings.h"
#include "engine/request.h"

namespace lantern {

// Threads may use it at the same time.
class RankRouter : public std::enable_shared_from_this<RankRouter> {
 public:
  // A request's share of its rank's load, for as long as it lives.
  class Ticket {
   public:
    Ticket(std::shared_ptr<RankRouter> router, int32_t rank, int64_t tokens)
        : router_(std::move(router)), rank_(rank), tokens_(tokens) {}
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    int32_t rank() const { return rank_; }

   private:
    std::shared_ptr<RankRouter> router_;
    int32_t rank_;
    int64_t tokens_;
  };

  // `settings` are those of each rank.
  static std::shared_ptr<RankRouter> create(int32_t ranks, const EngineSettings& settings, const HashKey& key);

  // `full` [ranks]: not 0 where a rank's queue has no room; such a rank is chosen only where all are full.
  std::unique_ptr<Ticket> choose(const Request& request, std::span<const uint8_t> full);

  // Tokens that the requests of each rank have come to take at most, their prompts included.
  std::vector<int64_t> loads() const;

 private:
  // Which rank has run a prompt up to the end of a block, as far as is remembered.
  struct Known {
    BlockHash block;
    int32_t rank = -1;
  };
  static constexpr size_t kKnown = 1 << 13;  // places; what falls into one place displaces what was there
  static constexpr size_t kMostBlocks = 64;  // of a prompt that are looked at

  RankRouter(int32_t ranks, const EngineSettings& settings, const HashKey& key);

  EngineSettings settings_;
  BlockHasher hasher_;
  mutable std::mutex mutex_;
  std::vector<int64_t> loads_;  // [ranks]
  std::vector<Known> known_;    // [kKnown]; none without a prefix cache
};

}  // namespace lantern
