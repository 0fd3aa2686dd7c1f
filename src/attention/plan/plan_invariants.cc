#include "attention/plan/plan_invariants.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/plan/plan_schedule_math.h"

namespace lantern {
namespace {

class Validator {
 public:
  Validator(const PlanCase& c, const PlanResult& r) : c_(c), r_(r) {}

  std::vector<std::string> run() {
    rows();
    tokens();
    for (size_t g = 0; g < r_.groups.size(); ++g) blocks_and_slots(g);
    views();
    if (!r_.paged_mqa_sm90.empty()) paged_mqa();
    if (!r_.mla_tiles.empty()) mla_tiles();
    split();
    return std::move(violations_);
  }

 private:
  template <class... Args>
  void expect(bool holds, fmt::format_string<Args...> format, Args&&... args) {
    if (!holds) violations_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  static size_t index(int64_t i) { return static_cast<size_t>(i); }
  int64_t requests() const { return r_.bucket.requests; }

  // I1 to I3 and I6: rows follow each other inside the bucket, lengths lie inside the limits, the tail is padding.
  void rows() {
    const StepLimits& limits = c_.config.limits;
    int64_t reach = 0, total = 0;
    for (int64_t b = 0; b < requests(); ++b) {
      const int64_t start = r_.query_start[index(b)], query_len = r_.query_len[index(b)];
      const int64_t seq_len = r_.seq_len[index(b)];
      expect(query_len >= 0 && seq_len >= query_len, "I2: request {} has {} tokens and {} keys", b, query_len, seq_len);
      expect(seq_len <= limits.max_model_len, "I6: request {} has {} keys", b, seq_len);
      if (b >= c_.num_requests) {
        expect(query_len == 0 && seq_len == 0, "I3: request {} beyond the batch is not padding", b);
      } else if (c_.prefilling.empty() || c_.prefilling[index(b)] == 0) {
        expect(query_len <= limits.max_query_len, "I2: decode {} has {} tokens", b, query_len);
      }
      if (query_len == 0) continue;
      expect(start >= reach, "I1: request {} starts at {}, before {}", b, start, reach);
      reach = start + query_len;
      total += query_len;
    }
    expect(reach <= r_.bucket.tokens && total <= r_.bucket.tokens, "I2: {} tokens up to {} in a bucket of {}", total,
           reach, r_.bucket.tokens);
  }

  // I7: the tokens of a request are its own, and see one key more each, the last all of them.
  void tokens() {
    std::vector<int32_t> owner(index(r_.bucket.tokens), -1), length(index(r_.bucket.tokens), 0);
    for (int64_t b = 0; b < requests(); ++b) {
      int32_t visible = r_.seq_len[index(b)];
      for (int64_t t = int64_t{r_.query_start[index(b)]} + r_.query_len[index(b)]; --t >= r_.query_start[index(b)];) {
        owner[index(t)] = static_cast<int32_t>(b);
        length[index(t)] = visible--;
      }
    }
    expect(owner == r_.token_request, "I7: some token has another request than the rows say");
    expect(length == r_.token_context_len, "I7: some token has another length than the rows say");
  }

  // I4 and I5.
  void blocks_and_slots(size_t g) {
    const CacheGroup& group = c_.config.groups[g];
    const PlanResult::Group& out = r_.groups[g];
    for (const int32_t block : out.expanded_block_table) {
      expect(block >= 0 && block < group.num_blocks, "I4: block {} of group {} is outside the pool", block, g);
    }
    for (int64_t b = 0; b < std::min<int64_t>(requests(), c_.num_requests); ++b) {
      for (int64_t entry = 0; entry * group.block_size < r_.seq_len[index(b)]; ++entry) {
        const std::vector<int32_t>& row = c_.block_table[g][index(b)];
        const int32_t block = index(entry) < row.size() ? row[index(entry)] : kMissingBlock;
        expect(block >= 0 && block < group.num_blocks, "I4: request {} uses block {} of group {}", b, block, g);
      }
    }
    const auto slots = [&](const std::vector<int32_t>& list, int64_t entries_per_block) {
      for (const int32_t slot : list) {
        expect(slot == -1 || (slot >= entries_per_block && slot < group.num_blocks * entries_per_block),
               "I5: slot {} of group {} lies in the null block or outside the pool", slot, g);
      }
    };
    slots(out.slot_mapping, group.block_size);
    slots(out.draft_slot_mapping, group.block_size);
    if (group.block_size % group.compress_ratio == 0) {
      slots(out.compressed_slot_mapping, group.block_size / group.compress_ratio);
    }
    for (size_t t = 0; t < out.slot_mapping.size(); ++t) {
      expect(r_.token_request[t] >= 0 || out.slot_mapping[t] == -1, "I5: padded token {} has slot {}", t,
             out.slot_mapping[t]);
    }
  }

  // I8: the per-request view fills its rows without gaps.
  void views() {
    if (r_.per_request_context_lens.empty()) return;
    expect(static_cast<int64_t>(r_.per_request_context_lens.size()) == requests() * r_.bucket.query_width,
           "I8: {} lengths in a view of {} by {}", r_.per_request_context_lens.size(), requests(),
           r_.bucket.query_width);
  }

  // I9 for the logits kernels: from the first unit to the sentinel without a step back, so that the ranges between
  // neighbouring entries cover every unit once.
  void paged_mqa() {
    const auto check = [&](const char* name, const std::vector<int32_t>& s, int64_t first_row, int64_t end_row) {
      expect(s[0] == first_row && s[1] == 0, "I9: {} starts at ({}, {})", name, s[0], s[1]);
      expect(s[s.size() - 2] == end_row && s.back() == 0, "I9: {} ends at ({}, {})", name, s[s.size() - 2], s.back());
      for (size_t i = 2; i < s.size(); i += 2) {
        expect(s[i] > s[i - 2] || (s[i] == s[i - 2] && s[i + 1] >= s[i - 1]), "I9: {} goes back at worker {}", name,
               i / 2);
      }
    };
    const int64_t atoms = plan::mqa_atoms(r_.bucket.query_width);
    int64_t first = requests(), first_row = r_.bucket.tokens;
    for (int64_t b = requests(); --b >= 0;) {
      if (r_.seq_len[index(b)] > 0) first = b;
      if (r_.seq_len[index(b)] > 0 && r_.query_len[index(b)] > 0) first_row = r_.query_start[index(b)];
    }
    check("paged_mqa_sm90", r_.paged_mqa_sm90, first * atoms, requests() * atoms);
    check("paged_mqa_sm100", r_.paged_mqa_sm100, first_row, r_.bucket.tokens);
  }

  // I9 for MLA: the parts' ranges follow each other over all blocks of all requests, and num_splits counts them.
  void mla_tiles() {
    std::vector<int32_t> splits(index(requests()), 0);
    int64_t request = 0, block = 0;
    for (size_t i = 0; i < r_.mla_tiles.size(); i += plan::kMlaTileInts) {
      const int32_t* t = &r_.mla_tiles[i];
      if (t[0] > t[1]) continue;
      expect(t[0] == request && t[2] == block, "I9: part {} begins at request {} block {} instead of {} block {}",
             i / plan::kMlaTileInts, t[0], t[2], request, block);
      if (t[1] >= requests()) {
        expect(false, "I9: part {} ends at request {}", i / plan::kMlaTileInts, t[1]);
        return;
      }
      expect(t[4] == splits[index(t[0])], "I9: part {} writes split {} of request {}", i / plan::kMlaTileInts, t[4],
             t[0]);
      for (int32_t b = t[0]; b <= t[1]; ++b) ++splits[index(b)];
      const int32_t keys = plan::mla_keys(r_.seq_len[index(t[1])], c_.config.mla->topk);
      const bool finished = keys == 0 || t[3] == plan::mla_blocks(keys);
      request = finished ? t[1] + 1 : t[1];
      block = finished ? 0 : t[3];
    }
    expect(request == std::min<int64_t>(c_.num_requests, requests()) && block == 0,
           "I9: the parts end at request {} block {}", request, block);
    for (int64_t b = 0; b < requests(); ++b) {
      const int32_t owned = r_.mla_num_splits[index(b) + 1] - r_.mla_num_splits[index(b)];
      expect(owned == splits[index(b)], "I9: request {} owns {} splits of {}", b, owned, splits[index(b)]);
    }
  }

  // I19: no prefilling request lies in the part that decode kernels read.
  void split() {
    for (int64_t b = 0; b < std::min<int64_t>(requests(), c_.num_requests); ++b) {
      const bool standing = r_.query_len[index(b)] > 0 || r_.seq_len[index(b)] > 0;
      if (!standing) continue;
      const bool prefilling = !c_.prefilling.empty() && c_.prefilling[index(b)] != 0;
      const bool in_prefill_part = b >= r_.counts[kPrefillRequestBegin];
      expect(prefilling == in_prefill_part, "I19: request {} lies on the wrong side of the split", b);
      expect(r_.query_len[index(b)] == 0 || (r_.query_start[index(b)] >= r_.counts[kPrefillTokenBegin]) == prefilling,
             "I19: the tokens of request {} lie on the wrong side of the split", b);
    }
  }

  const PlanCase& c_;
  const PlanResult& r_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> plan_violations(const PlanCase& plan_case, const PlanResult& result) {
  return Validator(plan_case, result).run();
}

}  // namespace lantern
