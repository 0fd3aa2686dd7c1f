// What must not change a result, and what must agree: bit by bit where the arithmetic is the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>

#include "attention/host_math.h"
#include "attention/mla.h"
#include "attention/test_support.h"

namespace lantern {
namespace {

using test::Case;
using test::Host;
using test::MlaResult;
using test::Problem;
using test::same_bits;

using Form = MlaResult (*)(Problem&, Host&);
MlaResult absorbed(Problem& p, Host& host) { return run_absorbed(p, host); }
MlaResult expanded(Problem& p, Host& host) { return run_expanded(p, host); }
constexpr Form kForms[] = {absorbed, expanded, test::run_expanded_without_amx};

// Rows of some tokens.
std::vector<float> rows(const std::vector<float>& all, size_t width, size_t begin, size_t end) {
  return {all.begin() + static_cast<ptrdiff_t>(begin * width), all.begin() + static_cast<ptrdiff_t>(end * width)};
}

// The problem restricted to the tokens [begin, end), in that order.
Problem restricted(const Problem& whole, int32_t begin, int32_t end) {
  Problem part = whole;
  const auto cut = [&](auto& values, size_t width) {
    using Values = std::remove_reference_t<decltype(values)>;
    values = Values(values.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(begin) * width),
                    values.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(end) * width));
  };
  cut(part.token_request, 1);
  cut(part.token_context_len, 1);
  cut(part.slot_mapping, 1);
  cut(part.q, static_cast<size_t>(whole.shape.heads * (whole.shape.nope_dim + whole.shape.rope_dim)));
  if (whole.shape.top_k > 0) {
    cut(part.positions, static_cast<size_t>(whole.shape.top_k));
    cut(part.slots, static_cast<size_t>(whole.shape.top_k));
    cut(part.counts, 1);
  }
  part.tokens = end - begin;
  return part;
}

// Overwrites the cache rows from position `from` on, as if they had not been written yet.
void forget(Problem& p, int32_t request, int32_t from) {
  for (int32_t s = from; s < p.shape.requests[static_cast<size_t>(request)].seq_len; ++s) {
    const auto begin = p.cache.begin() + p.slot(request, s) * p.row_bytes;
    std::fill(begin, begin + p.row_bytes, std::byte{0xff});
  }
}

void expect_rows(const MlaResult& part, const MlaResult& whole, const Problem& p, int32_t begin, int32_t end) {
  const auto heads = static_cast<size_t>(p.shape.heads);
  const auto b = static_cast<size_t>(begin);
  const auto e = static_cast<size_t>(end);
  EXPECT_TRUE(same_bits(part.out, rows(whole.out, heads * static_cast<size_t>(p.shape.v_dim), b, e)))
      << "tokens " << begin << " to " << end;
  EXPECT_TRUE(same_bits(part.lse, rows(whole.lse, heads, b, e))) << "tokens " << begin << " to " << end;
}

std::vector<Case> cases() {
  return {
      {.name = "f32", .requests = {{300, 140}, {65, 65}, {513, 1}}, .padding = 2},
      {.name = "bf16", .heads = 5, .layout = LatentLayout::kBf16, .requests = {{300, 140}, {65, 65}, {513, 1}}},
      {.name = "fp8_sparse",
       .layout = LatentLayout::kFp8,
       .weight_dtype = DType::kBF16,
       .requests = {{300, 140}, {65, 65}, {513, 1}},
       .padding = 1,
       .top_k = 40},
      {.name = "real_dims",
       .heads = 20,
       .kv_lora_rank = 512,
       .rope_dim = 64,
       .nope_dim = 192,
       .v_dim = 256,
       .layout = LatentLayout::kBf16,
       .weight_dtype = DType::kBF16,
       .requests = {{150, 9}, {600, 2}}},
      {.name = "many_heads", .heads = 128, .requests = {{700, 3}}},
  };
}

class Metamorphic : public testing::TestWithParam<Case> {};

TEST_P(Metamorphic, AbsorbedEqualsExpanded) {
  Problem p(GetParam());
  Host host(2);
  const MlaResult a = run_absorbed(p, host);
  const MlaResult e = run_expanded(p, host);
  // Both are within the tolerances of mla_test.cc around float64: 4e-6 and 4e-5.
  EXPECT_LE(test::worst_error(a.out, {e.out.begin(), e.out.end()}, 1.0), 4.4e-5);
  EXPECT_LE(test::worst_error(a.lse, {e.lse.begin(), e.lse.end()}, 1.0), 1.8e-5);
}

TEST_P(Metamorphic, ThreadCountIsIrrelevant) {
  Problem p(GetParam());
  Host one(1), two(2), three(3);
  for (const Form form : kForms) {
    const MlaResult want = form(p, one);
    for (Host* host : {&two, &three, &two}) {
      const MlaResult got = form(p, *host);
      EXPECT_TRUE(same_bits(got.out, want.out));
      EXPECT_TRUE(same_bits(got.lse, want.lse));
    }
  }
}

TEST_P(Metamorphic, ChunksAndSingleTokensEqualOneShot) {
  Problem p(GetParam());
  Host host(2);
  std::vector<MlaResult> whole;
  for (const Form form : kForms) whole.push_back(form(p, host));
  for (const int32_t chunk : {1, 7, 64}) {
    // Token by token takes long; every ninth start shows as much.
    for (int32_t begin = 0; begin < p.tokens; begin += chunk == 1 ? 9 : chunk) {
      int32_t end = std::min(p.tokens, begin + chunk);
      // A chunk of one request, so that what follows it can be forgotten.
      const int32_t request = p.token_request[static_cast<size_t>(begin)];
      while (p.token_request[static_cast<size_t>(end - 1)] != request) --end;
      Problem part = restricted(p, begin, end);
      if (request >= 0) forget(part, request, p.token_context_len[static_cast<size_t>(end - 1)]);
      for (size_t f = 0; f < std::size(kForms); ++f) expect_rows(kForms[f](part, host), whole[f], p, begin, end);
    }
  }
}

TEST_P(Metamorphic, BatchEqualsItsMembers) {
  Problem p(GetParam());
  Host host(2);
  for (const Form form : kForms) {
    const MlaResult whole = form(p, host);
    for (int32_t begin = 0; begin < p.tokens;) {
      int32_t end = begin + 1;
      while (end < p.tokens &&
             p.token_request[static_cast<size_t>(end)] == p.token_request[static_cast<size_t>(begin)]) {
        ++end;
      }
      Problem part = restricted(p, begin, end);
      expect_rows(form(part, host), whole, p, begin, end);
      begin = end;
    }
  }
}

TEST_P(Metamorphic, PagesAndTheirOrderAreIrrelevant) {
  Case contiguous = GetParam();
  contiguous.shuffled = false;
  Case small = GetParam();
  small.block_size = 16;
  Problem p(GetParam()), q(contiguous), r(small);
  ASSERT_NE(p.block_table, q.block_table);
  Host host(2);
  for (const Form form : kForms) {
    const MlaResult want = form(p, host);
    for (Problem* other : {&q, &r}) {
      const MlaResult got = form(*other, host);
      EXPECT_TRUE(same_bits(got.out, want.out));
      EXPECT_TRUE(same_bits(got.lse, want.lse));
    }
  }
}

TEST_P(Metamorphic, RequestsMayBePermuted) {
  Problem p(GetParam());
  Host host(2);
  // Renames request b to last - b and turns the order of the requests round, tokens staying in order within each.
  Problem turned = p;
  const auto requests = static_cast<int32_t>(p.shape.requests.size());
  std::vector<size_t> order(static_cast<size_t>(p.tokens));
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return p.token_request[a] > p.token_request[b]; });
  const auto q_width = static_cast<size_t>(p.shape.heads * (p.shape.nope_dim + p.shape.rope_dim));
  const auto top_k = static_cast<size_t>(p.shape.top_k);
  for (size_t t = 0; t < order.size(); ++t) {
    const size_t from = order[t];
    turned.token_request[t] = p.token_request[from] < 0 ? -1 : requests - 1 - p.token_request[from];
    turned.token_context_len[t] = p.token_context_len[from];
    std::copy_n(p.q.begin() + static_cast<ptrdiff_t>(from * q_width), q_width,
                turned.q.begin() + static_cast<ptrdiff_t>(t * q_width));
    if (top_k == 0) continue;
    turned.counts[t] = p.counts[from];
    std::copy_n(p.positions.begin() + static_cast<ptrdiff_t>(from * top_k), top_k,
                turned.positions.begin() + static_cast<ptrdiff_t>(t * top_k));
    std::copy_n(p.slots.begin() + static_cast<ptrdiff_t>(from * top_k), top_k,
                turned.slots.begin() + static_cast<ptrdiff_t>(t * top_k));
  }
  const auto stride = static_cast<ptrdiff_t>(p.block_table_stride);
  for (ptrdiff_t b = 0; b < requests; ++b) {
    std::copy_n(p.block_table.begin() + b * stride, stride, turned.block_table.begin() + (requests - 1 - b) * stride);
  }
  const auto heads = static_cast<size_t>(p.shape.heads);
  const size_t width = heads * static_cast<size_t>(p.shape.v_dim);
  for (const Form form : kForms) {
    const MlaResult want = form(p, host);
    const MlaResult got = form(turned, host);
    for (size_t t = 0; t < order.size(); ++t) {
      EXPECT_TRUE(same_bits(rows(got.out, width, t, t + 1), rows(want.out, width, order[t], order[t] + 1)));
      EXPECT_TRUE(same_bits(rows(got.lse, heads, t, t + 1), rows(want.lse, heads, order[t], order[t] + 1)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Mla, Metamorphic, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

TEST(Mla, SparseWithEveryKeyEqualsDense) {
  for (const LatentLayout layout : {LatentLayout::kF32, LatentLayout::kBf16, LatentLayout::kFp8}) {
    const Case dense{.name = "", .layout = layout, .requests = {{300, 70}, {65, 65}}, .padding = 1};
    Case sparse = dense;
    sparse.top_k = 300;
    Problem p(dense), s(sparse);
    Host host(2);
    for (const Form form : kForms) {
      const MlaResult want = form(p, host);
      const MlaResult got = form(s, host);
      EXPECT_TRUE(same_bits(got.out, want.out));
      EXPECT_TRUE(same_bits(got.lse, want.lse));
    }
  }
}

int g_expanded_rows = 0;

// An engine's product: plain loops, W decoded from f32.
void plain_expand(const KvUpProjection& kv_b, const float* latents, int64_t rows, float* out, std::byte*, int64_t,
                  HostContext&) {
  const auto* w = reinterpret_cast<const float*>(kv_b.data.get());
  const int64_t outputs = int64_t{kv_b.heads} * (kv_b.nope_dim + kv_b.v_dim);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < outputs; ++o) {
      float sum = 0.0f;
      for (int64_t i = 0; i < kv_b.kv_lora_rank; ++i) {
        sum += latents[r * kv_b.kv_lora_rank + i] * w[o * kv_b.kv_lora_rank + i];
      }
      out[r * outputs + o] = sum;
    }
  }
  g_expanded_rows += static_cast<int>(rows);
}

TEST(Mla, TheCallersProductIsUsedOncePerTile) {
  Problem p({.name = "", .requests = {{200, 100}, {70, 3}}});
  Host host(2);
  g_expanded_rows = 0;
  const MlaResult got = run_expanded(p, host, &plain_expand);
  EXPECT_EQ(g_expanded_rows, 270) << "every visible key once, shared by the chunk's tokens";
  const MlaResult own = run_expanded(p, host);
  EXPECT_LE(test::worst_error(got.out, {own.out.begin(), own.out.end()}, 1.0), 1.2e-5);
}

}  // namespace
}  // namespace lantern
