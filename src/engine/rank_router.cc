#include "engine/rank_router.h"

#include <algorithm>

#include "base/check.h"

namespace lantern {

RankRouter::Ticket::~Ticket() {
  const std::lock_guard lock(router_->mutex_);
  router_->loads_[static_cast<size_t>(rank_)] -= tokens_;
}

RankRouter::RankRouter(int32_t ranks, const EngineSettings& settings, const HashKey& key)
    : settings_(settings),
      hasher_(key),
      loads_(static_cast<size_t>(ranks)),
      known_(settings.prefix_caching ? kKnown : 0) {}

std::shared_ptr<RankRouter> RankRouter::create(int32_t ranks, const EngineSettings& settings, const HashKey& key) {
  CHECK(ranks >= 1, "{} ranks", ranks);
  return std::shared_ptr<RankRouter>(new RankRouter(ranks, settings, key));
}

std::unique_ptr<RankRouter::Ticket> RankRouter::choose(const Request& request, std::span<const uint8_t> full) {
  const auto size = static_cast<size_t>(settings_.limits.block_size);
  std::vector<BlockHash> blocks;
  if (!known_.empty()) {
    BlockHash hash = hasher_.root(request.cache_salt);
    const auto prompt = std::span(request.prompt);
    const size_t count = std::min(prompt.size() / size, kMostBlocks);
    blocks.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      blocks.push_back(hash = hasher_.extend(hash, prompt.subspan(i * size, size)));
    }
  }
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const int64_t output_tokens = std::max<int64_t>(max_length(request, settings_) - prompt_tokens, 0);
  const int64_t tokens = prompt_tokens + std::max(request.n, 1) * output_tokens;

  const std::lock_guard lock(mutex_);
  std::vector<int64_t> left(loads_);  // to do, were the request there
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Known& known = known_[blocks[i].low % kKnown];
    if (known.rank < 0 || !(known.block == blocks[i])) continue;
    const auto rank = static_cast<size_t>(known.rank);
    left[rank] = loads_[rank] - static_cast<int64_t>((i + 1) * size);
  }
  size_t best = 0;
  for (size_t rank = 1; rank < left.size(); ++rank) {
    const bool fuller = full[rank] != 0 && full[best] == 0;
    const bool emptier = full[rank] == 0 && full[best] != 0;
    if (!fuller && (emptier || left[rank] < left[best])) best = rank;
  }
  for (const BlockHash& block : blocks) known_[block.low % kKnown] = {block, static_cast<int32_t>(best)};
  loads_[best] += tokens;
  return std::make_unique<Ticket>(shared_from_this(), static_cast<int32_t>(best), tokens);
}

std::vector<int64_t> RankRouter::loads() const {
  const std::lock_guard lock(mutex_);
  return loads_;
}

}  // namespace lantern
