#include <algorithm>
#include <array>

#include "attention/plan/plan_graphs.h"

namespace lantern {

RandomSteps::RandomSteps(const PlanGraphs& graphs, uint64_t seed)
    : config_(graphs.buffers().config()), blank_(graphs.blank_image()), image_(blank_), random_(seed) {}

int32_t RandomSteps::pick(int32_t lowest, int32_t highest) {
  const auto range = static_cast<uint64_t>(int64_t{highest} - lowest + 1);
  return static_cast<int32_t>(lowest + static_cast<int64_t>(random_() % range));
}

int32_t RandomSteps::edge(int32_t lowest, int32_t highest) {
  switch (pick(0, 3)) {
    case 0: return lowest;
    case 1: return highest;
    default: return pick(lowest, highest);
  }
}

void RandomSteps::fill_request(const BucketKey& bucket, int32_t request, int32_t& token, bool prefilling) {
  const StepLimits& limits = config_.limits;
  const auto b = static_cast<size_t>(request);
  const int32_t left = std::min(bucket.tokens - token, limits.max_model_len);
  const int32_t query_len = edge(0, prefilling ? left : std::min(left, bucket.query_width));
  token += query_len;
  image_.query_start_loc()[b + 1] = token;
  int32_t seq_len = edge(query_len, limits.max_model_len);
  // Around the ends of blocks.
  if (pick(0, 2) == 0) {
    const int32_t block_size = config_.groups[0].block_size;
    seq_len = std::clamp(seq_len / block_size * block_size + pick(-1, 1), query_len, limits.max_model_len);
  }
  image_.seq_lens()[b] = seq_len;
  image_.prefilling()[b] = prefilling ? 1 : 0;
  if (!image_.accepted().empty()) image_.accepted()[b] = query_len > 0 ? edge(0, query_len - 1) : 0;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    const CacheGroup& group = config_.groups[g];
    const std::span<int32_t> row = image_.block_table(static_cast<int32_t>(g), request);
    const auto needed = static_cast<size_t>((seq_len + group.block_size - 1) / group.block_size);
    for (size_t i = 0; i < std::min(needed, row.size()); ++i) row[i] = edge(0, group.num_blocks - 1);
  }
}

// One word that is read becomes nonsense, or a count does.
void RandomSteps::spoil(const BucketKey& bucket) {
  constexpr std::array<int32_t, 7> kNonsense{-1, INT32_MIN, INT32_MAX, kPlanPoison, 1 << 20, -77, 0};
  const int32_t nonsense = kNonsense[static_cast<size_t>(pick(0, static_cast<int32_t>(kNonsense.size()) - 1))];
  const auto request = static_cast<size_t>(pick(0, std::max(bucket.requests - 1, 0)));
  switch (pick(0, 6)) {
    case 0: image_.num_requests() = nonsense; break;
    case 1: image_.num_tokens() = nonsense; break;
    case 2: image_.num_requests() = bucket.requests + 1; break;
    case 3: image_.query_start_loc()[request] = nonsense; break;
    case 4: image_.seq_lens()[request] = nonsense; break;
    case 5: image_.prefilling()[request] = nonsense; break;
    default: image_.block_table(0, static_cast<int32_t>(request))[0] = nonsense; break;
  }
}

const StepImage& RandomSteps::next(const BucketKey& bucket) {
  // A third of the steps find what an earlier step left behind their counts, as an idle rank does.
  if (pick(0, 2) != 0) image_ = blank_;
  const int32_t requests = edge(0, bucket.requests);
  const int32_t prefills = bucket.kind == StepKind::kMixed ? edge(0, requests) : 0;
  int32_t token = 0;
  image_.query_start_loc()[0] = 0;
  for (int32_t b = 0; b < requests; ++b) fill_request(bucket, b, token, b >= requests - prefills);
  image_.num_requests() = requests;
  image_.num_tokens() = token;
  if (pick(0, 5) == 0) spoil(bucket);
  return image_;
}

}  // namespace lantern
