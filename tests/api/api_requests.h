// Requests to engines over fake executors, whose vocabulary they share.
#pragma once

#include <utility>
#include <vector>

#include "engine/engine.h"

namespace lantern {

constexpr int32_t kVocab = 2000;

inline EngineRequest request_of(std::vector<int32_t> prompt, int32_t max_tokens, uint64_t seed = 1) {
  EngineRequest request;
  request.request.prompt = std::move(prompt);
  request.request.max_tokens = max_tokens;
  request.request.sampling.seed = seed;
  return request;
}

}  // namespace lantern
