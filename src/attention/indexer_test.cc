#include "attention/indexer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "attention/cache_write.h"
#include "attention/test_support.h"

namespace lantern {
namespace {

using test::Host;
using test::RequestShape;

struct IndexCase {
  std::string name;
  int32_t heads = 8;
  int32_t dim = 32;
  int32_t top_k = 16;
  IndexKeyLayout layout = IndexKeyLayout::kF32;
  bool hadamard = false;
  bool integers = false;  // small integers: every score is exact in float, and many are equal
  std::vector<RequestShape> requests;
  int32_t padding = 0;
  int32_t block_size = 64;
  IndexSelectParams::Mode mode = IndexSelectParams::Mode::kScore;
  int32_t key_offset = 0;
  uint32_t seed = 1;
};

struct Choice {
  std::vector<int32_t> positions, slots, counts;
  bool operator==(const Choice&) const = default;
};

// Inputs, and the cache filled through write_index_key; what must not be read is poisoned.
struct IndexProblem {
  explicit IndexProblem(const IndexCase& c) : shape(c) {
    std::mt19937 generator(c.seed);
    const auto draw = [&](size_t count) {
      if (!c.integers) return test::random_floats(generator, count);
      std::uniform_int_distribution<int> small(-2, 2);
      std::vector<float> values(count);
      for (float& x : values) x = static_cast<float>(small(generator));
      return values;
    };
    int32_t total_blocks = 3;
    const auto blocks_of = [&](const RequestShape& r) {
      return r.seq_len == 0 ? 0 : (r.seq_len + c.key_offset + c.block_size - 1) / c.block_size;
    };
    for (const RequestShape& r : c.requests) {
      stride = std::max(stride, blocks_of(r) + 1);
      total_blocks += blocks_of(r);
    }
    block_table.assign(c.requests.size() * static_cast<size_t>(stride), 0x7ffffff0);
    std::vector<int32_t> ids(static_cast<size_t>(total_blocks - 1));
    std::iota(ids.begin(), ids.end(), 1);
    std::mt19937 order(c.seed + 5);
    std::shuffle(ids.begin(), ids.end(), order);
    block_bytes = index_block_bytes(c.layout, c.dim, c.block_size) + 16;  // blocks may be padded
    cache.assign(static_cast<size_t>(total_blocks * block_bytes), std::byte{0xff});
    size_t next = 0;
    std::vector<float> all_keys;
    std::vector<int32_t> all_slots;
    for (size_t b = 0; b < c.requests.size(); ++b) {
      const RequestShape& r = c.requests[b];
      for (int32_t i = 0; i < blocks_of(r); ++i) {
        block_table[b * static_cast<size_t>(stride) + static_cast<size_t>(i)] = ids[next++];
      }
      for (int32_t s = 0; s < r.seq_len; ++s) all_slots.push_back(slot(static_cast<int32_t>(b), s));
      for (int32_t j = 0; j < r.query_len; ++j) {
        token_request.push_back(static_cast<int32_t>(b));
        token_context_len.push_back(std::max(0, r.seq_len - r.query_len + 1 + j));
      }
    }
    for (int32_t i = 0; i < c.padding; ++i) {
      token_request.push_back(-1);
      token_context_len.push_back(0);
    }
    all_keys = draw(all_slots.size() * static_cast<size_t>(c.dim));
    keys = all_keys;
    tokens = static_cast<int32_t>(token_request.size());
    query = draw(static_cast<size_t>(tokens * c.heads * c.dim));
    weights = draw(static_cast<size_t>(tokens * c.heads));

    Host host(2);
    IndexKeyWriteParams write;
    write.key = test::in(all_keys);
    write.key_stride = c.dim;
    write.slot_mapping = test::in(all_slots);
    write.cache = test::fixed(cache);
    write.block_bytes = block_bytes;
    write.block_size = c.block_size;
    write.layout = c.layout;
    write.dim = c.dim;
    write.hadamard = c.hadamard;
    write.tokens = static_cast<int64_t>(all_slots.size());
    write_index_key(host.stream, write);
  }

  int32_t slot(int32_t request, int32_t position) const {
    const int32_t place = position + shape.key_offset;
    return block_table[static_cast<size_t>(request * stride + place / shape.block_size)] * shape.block_size +
           place % shape.block_size;
  }

  // Float64 scores of a token, from the stored keys and the query treated as the layout says.
  std::vector<double> scores(int32_t t) const {
    const IndexCase& c = shape;
    const auto dim = static_cast<size_t>(c.dim);
    std::vector<double> result(static_cast<size_t>(token_context_len[static_cast<size_t>(t)]), 0.0);
    for (size_t h = 0; h < static_cast<size_t>(c.heads); ++h) {
      const size_t row = static_cast<size_t>(t * c.heads) + h;
      std::vector<double> q(dim);
      for (size_t i = 0; i < dim; ++i) {
        if (!c.hadamard) {
          q[i] = query[row * dim + i];
          continue;
        }
        for (size_t j = 0; j < dim; ++j) {
          const double sign = __builtin_popcountll(i & j) % 2 == 0 ? 1.0 : -1.0;
          q[i] += sign * query[row * dim + j] / std::sqrt(static_cast<double>(dim));
        }
      }
      if (c.layout == IndexKeyLayout::kFp8) {
        double amax = 0.0;
        for (const double x : q) amax = std::max(amax, std::fabs(x));
        const double scale = std::exp2(std::ceil(std::log2(std::max(amax, 1e-10) / 448.0)));
        for (double& x : q) x = scale * to_float(to_e4m3_saturate(static_cast<float>(x / scale)));
      }
      for (size_t s = 0; s < result.size(); ++s) {
        const int32_t at = slot(token_request[static_cast<size_t>(t)], static_cast<int32_t>(s));
        std::vector<float> key(dim);
        decode_index_key(c.layout, cache.data() + at / c.block_size * block_bytes, c.dim, c.block_size,
                         at % c.block_size, key.data());
        const double dot = std::inner_product(q.begin(), q.end(), key.begin(), 0.0);
        result[s] += double{weights[row]} * std::max(dot, 0.0);
      }
    }
    return result;
  }

  StepView step() {
    StepView view;
    view.tokens = tokens;
    view.requests = static_cast<int32_t>(shape.requests.size());
    view.block_size = shape.block_size;
    view.block_table_stride = stride;
    view.key_offset = shape.key_offset;
    view.token_request = test::in(token_request);
    view.token_context_len = test::in(token_context_len);
    view.block_table = test::in(block_table);
    return view;
  }

  Choice run(int threads, int32_t begin = 0, int32_t end = -1, int32_t max_context = 0) {
    const IndexCase& c = shape;
    if (end < 0) end = tokens;
    Host host(threads);
    if (max_context == 0) {
      for (const RequestShape& r : c.requests) max_context = std::max(max_context, r.seq_len);
    }
    const auto count = static_cast<size_t>(end - begin);
    Choice choice{std::vector<int32_t>(count * static_cast<size_t>(c.top_k), -9),
                  std::vector<int32_t>(count * static_cast<size_t>(c.top_k), -9), std::vector<int32_t>(count, -9)};
    std::vector<std::byte> scratch(static_cast<size_t>(index_scratch_bytes(max_context, c.heads, c.dim, threads)),
                                   std::byte{0xff});
    IndexSelectParams p;
    p.step = step().slice(begin, end);
    p.query = Fixed<const float>(
        test::fixed(query).sub(int64_t{begin} * c.heads * c.dim, int64_t{end - begin} * c.heads * c.dim));
    p.weights = Fixed<const float>(test::fixed(weights).sub(int64_t{begin} * c.heads, int64_t{end - begin} * c.heads));
    p.heads = c.heads;
    p.dim = c.dim;
    p.top_k = c.top_k;
    p.cache = test::in(cache);
    p.block_bytes = block_bytes;
    p.layout = c.layout;
    p.hadamard = c.hadamard;
    p.mode = c.mode;
    p.positions = test::fixed(choice.positions);
    p.slots = test::fixed(choice.slots);
    p.counts = test::fixed(choice.counts);
    if (!attention_q.empty()) {
      p.attention_q = test::fixed(attention_q);
      p.attention_heads = 2;
      p.q_token_stride = 6;
      p.q_head_stride = 3;
    }
    p.scratch = test::fixed(scratch);
    p.scratch_bytes = static_cast<int64_t>(scratch.size());
    index_select(host.stream, p);
    return choice;
  }

  IndexCase shape;
  int32_t tokens = 0;
  int32_t stride = 0;
  int64_t block_bytes = 0;
  std::vector<int32_t> token_request, token_context_len, block_table;
  std::vector<std::byte> cache;
  std::vector<float> keys, query, weights;
  std::vector<float> attention_q;  // none, or [tokens, 2, 3]
};

std::vector<IndexCase> cases() {
  std::vector<IndexCase> list;
  for (const IndexKeyLayout layout : {IndexKeyLayout::kF32, IndexKeyLayout::kBf16, IndexKeyLayout::kFp8}) {
    for (const bool hadamard : {false, true}) {
      const std::string name = std::string(to_string(layout)) + (hadamard ? "_hadamard" : "");
      list.push_back(
          {.name = name, .layout = layout, .hadamard = hadamard, .requests = {{200, 40}, {65, 65}}, .padding = 3});
    }
    const std::string name(to_string(layout));
    list.push_back({.name = "real_dims_" + name,
                    .heads = 64,
                    .dim = 128,
                    .top_k = 100,
                    .layout = layout,
                    .hadamard = true,
                    .requests = {{1500, 2}, {130, 1}}});
  }
  for (const int32_t length : {0, 1, 15, 16, 17, 63, 64, 65, 200, 513, 1025}) {
    list.push_back({.name = "len" + std::to_string(length), .requests = {{length, 1}}, .padding = 1});
  }
  for (const int32_t heads : {8, 16, 32, 64}) {
    for (const int32_t next_n : {1, 2, 3, 4, 5, 6}) {
      list.push_back({.name = "heads" + std::to_string(heads) + "_next_n" + std::to_string(next_n),
                      .heads = heads,
                      .layout = IndexKeyLayout::kFp8,
                      .requests = {{66, next_n}, {17, next_n}, {3, next_n}, {0, next_n}},
                      .padding = 1});
    }
  }
  for (const int32_t length : {2047, 2048, 2049, 4200}) {
    list.push_back({.name = "take_2048_of_" + std::to_string(length),
                    .top_k = 2048,
                    .layout = IndexKeyLayout::kFp8,
                    .requests = {{length, 2}}});
  }
  for (const int32_t length : {15, 16, 17, 63, 64, 65, 200}) {
    list.push_back({.name = "key_offset_len" + std::to_string(length),
                    .layout = length % 2 == 0 ? IndexKeyLayout::kBf16 : IndexKeyLayout::kFp8,
                    .requests = {{length, 2}, {127, 20}},
                    .padding = 1,
                    .key_offset = 1});
  }
  list.push_back({.name = "heads1", .heads = 1, .requests = {{300, 20}}});
  list.push_back({.name = "heads5_block16", .heads = 5, .requests = {{300, 20}, {40, 3}}, .block_size = 16});
  return list;
}

class IndexConformance : public testing::TestWithParam<IndexCase> {};

// The set is that of the largest float64 scores, up to keys whose scores differ from the boundary by less than the
// error of float sums: 1e-6 of the sum of the magnitudes involved (~ heads * dim^0.5, here at most 64 * 12).
TEST_P(IndexConformance, TakesTheLargestScores) {
  IndexProblem problem(GetParam());
  const IndexCase& c = problem.shape;
  const Choice choice = problem.run(2);
  for (int32_t t = 0; t < problem.tokens; ++t) {
    const auto row = static_cast<size_t>(t);
    const auto width = static_cast<size_t>(c.top_k);
    const int32_t length = problem.token_context_len[row];
    const int32_t count = std::min(length, c.top_k);
    ASSERT_EQ(choice.counts[row], count);
    const auto first = choice.positions.begin() + static_cast<ptrdiff_t>(row * width);
    const std::vector<int32_t> taken(first, first + count);
    ASSERT_TRUE(std::is_sorted(taken.begin(), taken.end()));
    ASSERT_EQ(std::adjacent_find(taken.begin(), taken.end()), taken.end()) << "a position twice";
    for (size_t i = 0; i < width; ++i) {
      const int32_t position = choice.positions[row * width + i];
      const int32_t slot = choice.slots[row * width + i];
      if (i >= static_cast<size_t>(count)) {
        ASSERT_EQ(position, -1);
        ASSERT_EQ(slot, -1);
        continue;
      }
      ASSERT_TRUE(0 <= position && position < length);
      ASSERT_EQ(slot, problem.slot(problem.token_request[row], position));
    }
    if (length <= c.top_k) continue;
    const std::vector<double> scores = problem.scores(t);
    std::vector<double> sorted = scores;
    std::sort(sorted.rbegin(), sorted.rend());
    const double boundary = sorted[static_cast<size_t>(count) - 1];
    const double tolerance = 1e-6 * c.heads * std::sqrt(static_cast<double>(c.dim));
    std::vector<bool> chosen(scores.size(), false);
    for (const int32_t position : taken) chosen[static_cast<size_t>(position)] = true;
    for (size_t s = 0; s < scores.size(); ++s) {
      const bool must = scores[s] > boundary + tolerance;
      const bool must_not = scores[s] < boundary - tolerance;
      EXPECT_FALSE(must && !chosen[s]) << "token " << t << " misses key " << s;
      EXPECT_FALSE(must_not && chosen[s]) << "token " << t << " took key " << s;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Indexer, IndexConformance, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

// With small integers every sum is exact, so the choice among many equal scores must be the stable one, to the last
// key. FP8 holds these integers exactly as well.
TEST(Indexer, ExactChoiceUnderTies) {
  for (const IndexKeyLayout layout : {IndexKeyLayout::kF32, IndexKeyLayout::kBf16, IndexKeyLayout::kFp8}) {
    IndexProblem problem({.name = "",
                          .heads = 4,
                          .dim = 16,
                          .top_k = 50,
                          .layout = layout,
                          .integers = true,
                          .requests = {{400, 30}, {90, 90}},
                          .key_offset = layout == IndexKeyLayout::kFp8 ? 1 : 0});
    const Choice choice = problem.run(2);
    int tied = 0;
    for (int32_t t = 0; t < problem.tokens; ++t) {
      const auto row = static_cast<size_t>(t);
      if (problem.token_context_len[row] <= 50) continue;
      const std::vector<double> scores = problem.scores(t);
      std::vector<int32_t> order(scores.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
      });
      tied += scores[static_cast<size_t>(order[49])] == scores[static_cast<size_t>(order[50])] ? 1 : 0;
      order.resize(50);
      std::sort(order.begin(), order.end());
      const auto first = choice.positions.begin() + static_cast<ptrdiff_t>(row * 50);
      EXPECT_EQ(std::vector<int32_t>(first, first + 50), order) << "token " << t;
    }
    EXPECT_GT(tied, 30) << "the case no longer has ties at the boundary";
  }
}

TEST(Indexer, RecentModeTakesTheLastPositions) {
  IndexProblem problem({.name = "",
                        .top_k = 16,
                        .requests = {{100, 3}, {9, 2}},
                        .padding = 1,
                        .mode = IndexSelectParams::Mode::kRecent});
  const Choice choice = problem.run(2);
  EXPECT_EQ(choice.counts, (std::vector<int32_t>{16, 16, 16, 8, 9, 0}));
  for (int32_t i = 0; i < 16; ++i) {
    EXPECT_EQ(choice.positions[static_cast<size_t>(i)], 98 - 16 + i);
    EXPECT_EQ(choice.slots[static_cast<size_t>(i)], problem.slot(0, 98 - 16 + i));
    EXPECT_EQ(choice.positions[static_cast<size_t>(4 * 16 + i)], i < 9 ? i : -1);
  }
}

TEST(Indexer, ChoiceDoesNotDependOnThreadsChunksOrScratch) {
  for (const IndexKeyLayout layout : {IndexKeyLayout::kBf16, IndexKeyLayout::kFp8}) {
    IndexProblem problem({.name = "",
                          .heads = 8,
                          .dim = 128,
                          .top_k = 64,
                          .layout = layout,
                          .hadamard = true,
                          .requests = {{700, 50}, {1100, 2}, {300, 21}},
                          .padding = 2});
    const Choice whole = problem.run(1);
    EXPECT_EQ(problem.run(2), whole);
    EXPECT_EQ(problem.run(3), whole);
    EXPECT_EQ(problem.run(2, 0, -1, 50000), whole);
    for (int32_t t = 0; t < problem.tokens; t += 7) {
      const Choice alone = problem.run(2, t, t + 1);
      const auto at = static_cast<ptrdiff_t>(t) * 64;
      EXPECT_TRUE(std::equal(alone.positions.begin(), alone.positions.end(), whole.positions.begin() + at));
    }
  }
}

TEST(Indexer, ScratchGrowsWithContextNotWithTokens) {
  const int64_t small = index_scratch_bytes(1 << 10, 64, 128, 2);
  const int64_t large = index_scratch_bytes(1 << 17, 64, 128, 2);
  EXPECT_LE(large - small, int64_t{64} * 4 * ((1 << 17) - (1 << 10)));  // a row of scores for each of a group
}

// A choice from scores that are not all numbers makes NaN of the attention's queries of its token, and of no other:
// not of those that see too few keys to choose, nor where the NaN lies behind what they see.
TEST(Indexer, AChoiceByNaNSpoilsTheQuery) {
  for (const IndexKeyLayout layout : {IndexKeyLayout::kF32, IndexKeyLayout::kBf16, IndexKeyLayout::kFp8}) {
    for (const std::string bad : {"nothing", "query", "weight", "key"}) {
      IndexProblem problem({.name = "", .layout = layout, .requests = {{100, 3}, {18, 4}, {200, 1}}, .padding = 1});
      problem.attention_q.assign(9 * 6, 1.0f);
      const float nan = std::numeric_limits<float>::quiet_NaN();
      const auto row = [&](size_t token, size_t head) { return token * 8 + head; };
      std::vector<int> spoiled;
      // Tokens 3, 4, 5 and 6 see 15, 16, 17 and 18 keys; the first two take them all.
      if (bad == "query") {
        for (const size_t t : {1U, 4U, 5U}) problem.query[row(t, 3) * 32 + 31] = nan;
        spoiled = {1, 5};
      } else if (bad == "weight") {
        for (const size_t t : {1U, 4U, 5U}) problem.weights[row(t, 7)] = -nan;
        spoiled = {1, 5};
      } else if (bad == "key") {
        std::vector<float> key(32, 0.0f);
        key[9] = nan;
        const int32_t at = problem.slot(1, 17);
        encode_index_key(layout, key.data(), 32, 64, at % 64, problem.cache.data() + at / 64 * problem.block_bytes);
        spoiled = {6};
      }
      const Choice choice = problem.run(2);
      for (int32_t t = 0; t < problem.tokens; ++t) {
        const bool is_bad = std::ranges::find(spoiled, t) != spoiled.end();
        for (size_t i = 0; i < 6; ++i) {
          EXPECT_EQ(std::isnan(problem.attention_q[static_cast<size_t>(t) * 6 + i]), is_bad && i % 3 == 0)
              << bad << ", token " << t << ", value " << i;
        }
      }
      EXPECT_EQ(choice.counts, (std::vector<int32_t>{16, 16, 16, 15, 16, 16, 16, 16, 0}));
    }
  }
}

}  // namespace
}  // namespace lantern
