// The only tokens that an answer may have, its end among them only where it is named.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/token_constraint.h"

namespace lantern {

class AllowedIds final : public TokenConstraint {
 public:
  // Ids from 0 to vocab - 1.
  AllowedIds(std::span<const int32_t> ids, int32_t vocab) : mask_(static_cast<size_t>(mask_words(vocab))) {
    for (const int32_t id : ids) mask_[static_cast<size_t>(id) / 32] |= 1u << (static_cast<uint32_t>(id) % 32);
  }

  Status allow(int32_t /*choice*/, std::span<const int32_t> /*output*/, std::span<uint32_t> mask) override {
    std::ranges::copy(mask_, mask.begin());
    return {};
  }

 private:
  std::vector<uint32_t> mask_;
};

}  // namespace lantern
