// The values of attention.h's ops on the CPU, by the header alone, against float64.
#include <gtest/gtest.h>

#include <array>

#include "problem.h"

extern "C" const char* lantern_attention_consume(void);  // consumer.c

namespace lantern::test {
namespace {

constexpr uint8_t kUntouched = 0xa5;

TEST(AttentionCAbi, AProgramInCGetsWhatFollowsOnPaper) {
  const char* failed = lantern_attention_consume();
  EXPECT_EQ(failed, nullptr) << failed;
}

struct LatentShape {
  int32_t format, rank, rope;
  size_t row_bytes;
};
class LatentWrites : public testing::TestWithParam<LatentShape> {};
INSTANTIATE_TEST_SUITE_P(Formats, LatentWrites,
                         testing::Values(LatentShape{LANTERN_LATENT_BF16, 512, 64, 1152},
                                         LatentShape{LANTERN_LATENT_FP8, 512, 64, 656},
                                         LatentShape{LANTERN_LATENT_BF16, 3, 2, 10},
                                         LatentShape{LANTERN_LATENT_FP8, 128, 6, 144}));

TEST_P(LatentWrites, AreOfThePublicFormatAndNothingElseIsWritten) {
  const auto [format, rank, rope, row_bytes] = GetParam();
  const int32_t width = rank + rope, stride = width + 5;
  constexpr int32_t kSlots = 12;
  std::mt19937 random(1);
  const Ints slots{7, -1, 3, 11};
  Floats latents = random_floats(slots.size() * static_cast<size_t>(stride), random);
  for (int32_t i = 0; i < width; ++i) at(latents, 2 * stride + i) *= 1e-7f;  // below the scale's floor
  Aligned<uint8_t> data(kSlots * row_bytes, kUntouched);
  const lantern_latent_cache cache{sizeof(cache), format, rank, rope, 4, 3, data.data()};
  size_t bytes = 0;
  ASSERT_EQ(lantern_latent_cache_bytes(&cache, &bytes), LANTERN_OK) << lantern_attention_last_error();
  EXPECT_EQ(bytes, kSlots * row_bytes);
  const lantern_cache_rows rows{sizeof(rows), 4, latents.data(), stride, slots.data(), 0};
  const Attention attention = make_attention(2);
  ASSERT_EQ(lantern_write_latents(attention.get(), &cache, &rows, nullptr), LANTERN_OK)
      << lantern_attention_last_error();
  Bytes expected(kSlots * row_bytes, kUntouched);
  for (size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] < 0) continue;
    const Bytes row = encoded_latent(format, latents.data() + t * static_cast<size_t>(stride), rank, rope);
    ASSERT_EQ(row.size(), row_bytes);
    std::copy(row.begin(), row.end(), expected.begin() + slots[t] * static_cast<int64_t>(row_bytes));
  }
  EXPECT_EQ(Bytes(data.data(), data.data() + expected.size()), expected);
}

TEST(IndexKeyWrites, ArePlanarInABlock) {
  constexpr int32_t kDim = 128, kBlock = 4, kBlocks = 3, kBlockBytes = kBlock * 132;
  std::mt19937 random(2);
  const Ints slots{9, -1, 6};
  const Floats keys = random_floats(3 * kDim, random);
  Aligned<uint8_t> data(kBlocks * kBlockBytes, kUntouched);
  const lantern_index_cache cache{sizeof(cache), kDim, kBlock, kBlocks, data.data()};
  const lantern_cache_rows rows{sizeof(rows), 3, keys.data(), 0, slots.data(), 0};
  const Attention attention = make_attention(1);
  ASSERT_EQ(lantern_write_index_keys(attention.get(), &cache, &rows, nullptr), LANTERN_OK)
      << lantern_attention_last_error();
  Bytes expected(kBlocks * kBlockBytes, kUntouched);
  for (size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] < 0) continue;
    uint8_t* const block = expected.data() + slots[t] / kBlock * kBlockBytes;
    const float* const key = keys.data() + t * kDim;
    const double scale = power_of_two_above(std::max(largest(key, kDim), 1e-4) / 448);
    for (int32_t i = 0; i < kDim; ++i) block[slots[t] % kBlock * kDim + i] = e4m3_code(key[i] / scale);
    const auto stored = static_cast<float>(scale);
    std::memcpy(block + kBlock * kDim + 4 * (slots[t] % kBlock), &stored, 4);
  }
  EXPECT_EQ(Bytes(data.data(), data.data() + expected.size()), expected);
}

// Of 64 values, whose sums times 1/8 are exact: element j is the sum of x_i (-1)^popcount(i & j).
TEST(IndexKeyWrites, AreTransformedWhereTheCallerWantsIt) {
  constexpr int32_t kDim = 64;
  Floats key(kDim);
  for (int32_t i = 0; i < kDim; ++i) at(key, i) = static_cast<float>(i % 3 - 1);
  Floats transformed(kDim);
  for (uint32_t j = 0; j < kDim; ++j) {
    for (uint32_t i = 0; i < kDim; ++i) transformed[j] += key[i] * (std::popcount(i & j) % 2 == 0 ? 0.125f : -0.125f);
  }
  Aligned<uint8_t> given(kDim + 4), own(kDim + 4);
  lantern_index_cache cache{sizeof(cache), kDim, 1, 1, given.data()};
  const int32_t slot = 0;
  lantern_cache_rows rows{sizeof(rows), 1, key.data(), 0, &slot, 1};
  const Attention attention = make_attention(1);
  ASSERT_EQ(lantern_write_index_keys(attention.get(), &cache, &rows, nullptr), LANTERN_OK);
  cache.data = own.data();
  rows.values = transformed.data();
  rows.hadamard = 0;
  ASSERT_EQ(lantern_write_index_keys(attention.get(), &cache, &rows, nullptr), LANTERN_OK);
  EXPECT_EQ(Bytes(given.data(), given.data() + kDim + 4), Bytes(own.data(), own.data() + kDim + 4));
}

// Small integers, which e4m3 holds exactly and whose sums float32 does: scores are those of the formula to the bit, and
// many are equal.
TEST(IndexSelect, IsExactUnderTiesForAnyNumberOfTokens) {
  constexpr int32_t kDim = 128, kHeads = 8, kTopK = 48;
  const Batch batch({{300, 1}, {47, 3}, {48, 2}, {49, 6}, {0, 1}, {1, 1}, {170, 4}, {3, 5}}, 64, 3);
  std::mt19937 random(3);
  const auto small = [&](int32_t most) {
    return static_cast<float>(static_cast<int32_t>(random() % static_cast<uint32_t>(2 * most + 1)) - most);
  };
  Floats keys(batch.every_slot.size() * kDim), query(static_cast<size_t>(batch.tokens()) * kHeads * kDim),
      weights(static_cast<size_t>(batch.tokens()) * kHeads);
  for (float& x : keys) x = random() % 8 == 0 ? small(2) : 0.0f;
  for (float& x : query) x = random() % 8 == 0 ? small(3) : 0.0f;
  for (float& x : weights) x = small(2) / 4;
  Aligned<uint8_t> data(static_cast<size_t>(batch.num_blocks * 64 * 132));
  const lantern_index_cache cache{sizeof(cache), kDim, 64, batch.num_blocks, data.data()};
  const lantern_cache_rows rows{
      sizeof(rows), static_cast<int32_t>(batch.every_slot.size()), keys.data(), 0, batch.every_slot.data(), 0};
  const auto count = static_cast<size_t>(batch.tokens() * kTopK);
  for (const int32_t threads : {1, 3}) {
    const Attention attention = make_attention(threads);
    ASSERT_EQ(lantern_write_index_keys(attention.get(), &cache, &rows, nullptr), LANTERN_OK);
    Ints positions(count, 77), slots(count, 77), counts(static_cast<size_t>(batch.tokens()), 77);
    lantern_index_select_args args{
        sizeof(args), kHeads,        kTopK,   0, query.data(), weights.data(), positions.data(),
        slots.data(), counts.data(), nullptr, 0};
    ASSERT_EQ(lantern_index_select_workspace(attention.get(), &cache, &batch.step, &args, &args.workspace_bytes),
              LANTERN_OK);
    Aligned<uint8_t> workspace(args.workspace_bytes, kUntouched);
    args.workspace = workspace.data();
    ASSERT_EQ(lantern_index_select(attention.get(), &cache, &batch.step, &args, nullptr), LANTERN_OK)
        << lantern_attention_last_error();
    int32_t ties = 0;
    for (int32_t t = 0; t < batch.tokens(); ++t) {
      const int32_t context = at(batch.token_context_len, t);
      std::vector<std::pair<double, int32_t>> order;  // least first: the largest score, the lower position
      int32_t first_key = 0;
      for (int32_t b = 0; b < at(batch.token_request, t); ++b) {
        first_key += at(batch.requests, b).seq_len;
      }
      for (int32_t s = 0; s < context; ++s) {
        double score = 0;
        for (int32_t h = 0; h < kHeads; ++h) {
          double product = 0;
          for (int32_t i = 0; i < kDim; ++i) {
            product += double{at(query, (t * kHeads + h) * kDim + i)} * double{at(keys, (first_key + s) * kDim + i)};
          }
          score += double{at(weights, t * kHeads + h)} * std::max(product, 0.0);
        }
        order.emplace_back(-score, s);
      }
      std::sort(order.begin(), order.end());
      if (context > kTopK && order[kTopK - 1].first == order[kTopK].first) ++ties;
      Ints expected;
      for (int32_t i = 0; i < std::min(context, kTopK); ++i) expected.push_back(at(order, i).second);
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(at(counts, t), static_cast<int32_t>(expected.size())) << "token " << t;
      Ints expected_slots;
      for (const int32_t s : expected) expected_slots.push_back(batch.slot(t, s));
      expected.resize(kTopK, -1);
      expected_slots.resize(kTopK, -1);
      EXPECT_EQ(Ints(positions.begin() + t * kTopK, positions.begin() + (t + 1) * kTopK), expected) << "token " << t;
      EXPECT_EQ(Ints(slots.begin() + t * kTopK, slots.begin() + (t + 1) * kTopK), expected_slots) << "token " << t;
    }
    EXPECT_GE(ties, 1);  // else the case shows nothing
  }
}

struct DecodeCase {
  int32_t format, heads, rank, rope, top_k;
};
class MlaDecode : public testing::TestWithParam<DecodeCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, MlaDecode,
    testing::Values(DecodeCase{LANTERN_LATENT_FP8, 16, 512, 64, 0}, DecodeCase{LANTERN_LATENT_FP8, 128, 512, 64, 64},
                    DecodeCase{LANTERN_LATENT_BF16, 20, 512, 64, 0}, DecodeCase{LANTERN_LATENT_BF16, 1, 512, 64, 64},
                    DecodeCase{LANTERN_LATENT_BF16, 4, 32, 8, 0}, DecodeCase{LANTERN_LATENT_FP8, 3, 128, 6, 16}));

TEST_P(MlaDecode, IsAttentionInFloat64) {
  const auto [format, heads, rank, rope, top_k] = GetParam();
  const Batch batch({{333, 1}, {5, 2}, {64, 6}, {0, 1}, {65, 3}}, 64, 2);
  const int32_t width = rank + rope, nope = 7;
  std::mt19937 random(4);
  const Floats latents = random_floats(batch.every_slot.size() * static_cast<size_t>(width), random);
  lantern_latent_cache cache{sizeof(cache), format, rank, rope, 64, batch.num_blocks, nullptr};
  size_t bytes = 0;
  ASSERT_EQ(lantern_latent_cache_bytes(&cache, &bytes), LANTERN_OK);
  Aligned<uint8_t> data(bytes, 0x7f);  // NaN wherever nothing is written
  cache.data = data.data();
  const Attention attention = make_attention(2);
  const lantern_cache_rows rows{
      sizeof(rows), static_cast<int32_t>(batch.every_slot.size()), latents.data(), 0, batch.every_slot.data(), 0};
  ASSERT_EQ(lantern_write_latents(attention.get(), &cache, &rows, nullptr), LANTERN_OK);

  const auto tokens = static_cast<size_t>(batch.tokens()), count = tokens * static_cast<size_t>(heads);
  const Floats q_latent = random_floats(count * static_cast<size_t>(rank), random);
  // As it comes out of a projection: the rotated part behind another one.
  const Floats q = random_floats(count * static_cast<size_t>(nope + rope), random);
  // Every third key or so, at most top_k.
  Ints slots(tokens * static_cast<size_t>(top_k), -1), counts(tokens, 0);
  for (size_t t = 0; t < tokens && top_k > 0; ++t) {
    for (int32_t s = 0; s < batch.token_context_len[t] && counts[t] < top_k;
         s += 1 + static_cast<int32_t>(random() % 5)) {
      slots[t * static_cast<size_t>(top_k) + static_cast<size_t>(counts[t]++)] = batch.slot(static_cast<int32_t>(t), s);
    }
  }
  Aligned<float> out(count * static_cast<size_t>(rank), 77.0f);
  Floats lse(count, 77.0f);
  lantern_mla_decode_args args{};
  args.struct_size = sizeof(args);
  args.heads = heads;
  args.top_k = top_k;
  args.scale = 0.7f / std::sqrt(static_cast<float>(width));
  args.q_latent = q_latent.data();
  args.q_rope = q.data() + nope;
  args.q_rope_head_stride = nope + rope;
  args.slots = top_k > 0 ? slots.data() : nullptr;
  args.counts = top_k > 0 ? counts.data() : nullptr;
  args.out = out.data();
  args.lse = lse.data();
  ASSERT_EQ(lantern_mla_decode_workspace(attention.get(), &cache, &batch.step, &args, &args.workspace_bytes),
            LANTERN_OK);
  Aligned<uint8_t> workspace(args.workspace_bytes, 0x7f);
  args.workspace = workspace.data();
  ASSERT_EQ(lantern_mla_decode(attention.get(), &cache, &batch.step, &args, nullptr), LANTERN_OK)
      << lantern_attention_last_error();

  const size_t row_bytes = bytes / static_cast<size_t>(batch.num_blocks * 64);
  for (size_t t = 0; t < tokens; ++t) {
    std::vector<Doubles> seen;
    const int32_t keys = top_k > 0 ? counts[t] : batch.token_context_len[t];
    for (int32_t j = 0; j < keys; ++j) {
      const int32_t slot = top_k > 0 ? slots[t * static_cast<size_t>(top_k) + static_cast<size_t>(j)]
                                     : batch.slot(static_cast<int32_t>(t), j);
      seen.push_back(decoded_latent(format, data.data() + static_cast<size_t>(slot) * row_bytes, rank, rope));
    }
    for (size_t h = 0; h < static_cast<size_t>(heads); ++h) {
      const size_t row = t * static_cast<size_t>(heads) + h;
      Doubles scores, expected(static_cast<size_t>(rank));
      for (const Doubles& key : seen) {
        double product = 0;
        for (int32_t i = 0; i < width; ++i) {
          const float x = i < rank ? q_latent[row * static_cast<size_t>(rank) + static_cast<size_t>(i)]
                                   : q[row * static_cast<size_t>(nope + rope) + static_cast<size_t>(nope + i - rank)];
          product += double{x} * at(key, i);
        }
        scores.push_back(product * double{args.scale});
      }
      double sum = 0;
      for (const double score : scores) sum += std::exp(score);
      for (size_t j = 0; j < seen.size(); ++j) {
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += std::exp(scores[j]) / sum * seen[j][i];
      }
      // Sums of up to 576 and 333 float32 products of numbers around 1: errors are some 1e-6. A key too few or too many
      // moves an element by 1e-3 and more.
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(double{out[row * static_cast<size_t>(rank) + i]}, expected[i], 1e-5)
            << "token " << t << ", head " << h << ", element " << i;
      }
      if (keys == 0) {
        ASSERT_EQ(lse[row], -std::numeric_limits<float>::infinity());
      } else {
        ASSERT_NEAR(double{lse[row]}, std::log(sum), 1e-5) << "token " << t << ", head " << h;
      }
    }
  }
}

}  // namespace
}  // namespace lantern::test
