// What attention.h refuses, each with the sentence that says what to change; and what it takes.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "problem.h"

namespace lantern::test {
namespace {

// A call of every op that makes sense; mutations spoil it.
struct Calls {
  lantern_attention_config config{sizeof(config), LANTERN_DEVICE_CPU, 1};
  Aligned<uint8_t> latent_data{size_t{3} * 64 * 656, 0}, index_data{size_t{3} * 64 * 132, 0},
      scratch{size_t{4} << 20, 0};
  Floats values = Floats(2 * 4 * 576, 0.5f);
  Aligned<float> out{2 * 4 * 512};
  Floats lse = Floats(2 * 4);
  Ints slot_mapping{64, 65}, token_request{0, 0}, token_context_len{1, 2}, block_table{1, 2},
      slots = Ints(2 * 2, 64), positions = Ints(2 * 2), counts = Ints(2, 1);
  lantern_latent_cache latents{sizeof(latents), LANTERN_LATENT_FP8, 512, 64, 64, 3, latent_data.data()};
  lantern_index_cache keys{sizeof(keys), 128, 64, 3, index_data.data()};
  lantern_cache_rows latent_rows{sizeof(latent_rows), 2, values.data(), 0, slot_mapping.data(), 0};
  lantern_cache_rows key_rows{sizeof(key_rows), 2, values.data(), 0, slot_mapping.data(), 0};
  lantern_attention_step step{sizeof(step),      2, 1, 2, token_request.data(), token_context_len.data(),
                              block_table.data()};
  lantern_index_select_args select{sizeof(select),
                                   4,
                                   2,
                                   0,
                                   values.data(),
                                   values.data(),
                                   positions.data(),
                                   slots.data(),
                                   counts.data(),
                                   scratch.data(),
                                   size_t{4} << 20};
  lantern_mla_decode_args decode{
      sizeof(decode), 4,          2,          1.0f,           values.data(),  values.data(), 0, 0, slots.data(),
      counts.data(),  out.data(), lse.data(), scratch.data(), size_t{4} << 20};
  void* stream = nullptr;
  // Instead of the structs.
  bool no_attention = false, no_latents = false, no_rows = false, no_step = false, no_args = false;
};

// The sentence of the first op that refuses; empty where all are taken.
std::string refusal(Calls& c) {
  lantern_attention* made = nullptr;
  if (lantern_attention_create(&c.config, &made) != LANTERN_OK) {
    EXPECT_EQ(made, nullptr);
    return lantern_attention_last_error();
  }
  const Attention owner(made);
  lantern_attention* const attention = c.no_attention ? nullptr : made;
  const auto* latents = c.no_latents ? nullptr : &c.latents;
  const auto* step = c.no_step ? nullptr : &c.step;
  for (const lantern_status status :
       {lantern_write_latents(attention, latents, c.no_rows ? nullptr : &c.latent_rows, c.stream),
        lantern_write_index_keys(attention, &c.keys, &c.key_rows, c.stream),
        lantern_index_select(attention, &c.keys, step, c.no_args ? nullptr : &c.select, c.stream),
        lantern_mla_decode(attention, latents, step, &c.decode, c.stream)}) {
    if (status == LANTERN_OK) continue;
    EXPECT_EQ(status, LANTERN_INVALID_ARGUMENT);
    return lantern_attention_last_error();
  }
  return "";
}

struct Refusal {
  std::function<void(Calls&)> spoil;
  std::string sentence;  // a part of it
};

void expect_refusals(const std::vector<Refusal>& refusals) {
  for (const Refusal& expected : refusals) {
    Calls calls;
    ASSERT_EQ(refusal(calls), "");
    expected.spoil(calls);
    EXPECT_NE(refusal(calls).find(expected.sentence), std::string::npos)
        << "expected '" << expected.sentence << "', but got '" << refusal(calls) << "'";
  }
}

TEST(AttentionArguments, WhatIsMissingIsNamed) {
  expect_refusals({
      {[](Calls& c) { c.no_attention = true; }, "attention is NULL"},
      {[](Calls& c) { c.no_latents = true; }, "lantern_latent_cache is NULL"},
      {[](Calls& c) { c.no_rows = true; }, "lantern_cache_rows is NULL"},
      {[](Calls& c) { c.no_step = true; }, "lantern_attention_step is NULL"},
      {[](Calls& c) { c.no_args = true; }, "lantern_index_select_args is NULL"},
      {[](Calls& c) { c.latents.data = nullptr; }, "lantern_latent_cache.data is NULL"},
      {[](Calls& c) { c.keys.data = nullptr; }, "lantern_index_cache.data is NULL"},
      {[](Calls& c) { c.latent_rows.values = nullptr; }, "rows.values is NULL"},
      {[](Calls& c) { c.key_rows.slot_mapping = nullptr; }, "rows.slot_mapping is NULL"},
      {[](Calls& c) { c.step.token_request = nullptr; }, "step.token_request is NULL"},
      {[](Calls& c) { c.step.token_context_len = nullptr; }, "step.token_context_len is NULL"},
      {[](Calls& c) { c.step.block_table = nullptr; }, "step.block_table is NULL"},
      {[](Calls& c) { c.select.query = nullptr; }, "select_args.query is NULL"},
      {[](Calls& c) { c.select.weights = nullptr; }, "select_args.weights is NULL"},
      {[](Calls& c) { c.select.positions = nullptr; }, "select_args.positions is NULL"},
      {[](Calls& c) { c.select.slots = nullptr; }, "select_args.slots is NULL"},
      {[](Calls& c) { c.select.counts = nullptr; }, "select_args.counts is NULL"},
      {[](Calls& c) { c.select.workspace = nullptr; }, "select_args.workspace is NULL"},
      {[](Calls& c) { c.decode.q_latent = nullptr; }, "decode_args.q_latent is NULL"},
      {[](Calls& c) { c.decode.q_rope = nullptr; }, "decode_args.q_rope is NULL"},
      {[](Calls& c) { c.decode.slots = nullptr; }, "decode_args.slots is NULL"},
      {[](Calls& c) { c.decode.counts = nullptr; }, "decode_args.counts is NULL"},
      {[](Calls& c) { c.decode.out = nullptr; }, "decode_args.out is NULL"},
      {[](Calls& c) { c.decode.workspace = nullptr; }, "decode_args.workspace is NULL"},
  });
}

TEST(AttentionArguments, AlignmentIsChecked) {
  expect_refusals({
      {[](Calls& c) { c.latents.data = c.latent_data.data() + 8; }, "aligned to 16 bytes"},
      {[](Calls& c) { c.keys.data = c.index_data.data() + 4; }, "aligned to 16 bytes"},
      {[](Calls& c) { c.decode.out = c.out.data() + 1; }, "decode_args.out is 0x"},
      {[](Calls& c) { c.decode.workspace = c.scratch.data() + 32; }, "aligned to 64 bytes"},
      {[](Calls& c) { c.select.workspace = c.scratch.data() + 32; }, "aligned to 64 bytes"},
      {[](Calls& c) {
         c.decode.q_rope = reinterpret_cast<const float*>(reinterpret_cast<const char*>(c.values.data()) + 2);
       },
       "decode_args.q_rope is 0x"},
  });
}

TEST(AttentionArguments, SizesAreChecked) {
  expect_refusals({
      {[](Calls& c) { c.config.device_kind = 7; }, "device_kind is 7"},
      {[](Calls& c) { c.config.threads = -1; }, "threads is -1, but must be 0 to 1024"},
      {[](Calls& c) { c.config.threads = 1 << 20; }, "threads is 1048576"},
      {[](Calls& c) { c.latents.format = 2; }, "format is 2"},
      {[](Calls& c) { c.latents.kv_lora_rank = 0; }, "kv_lora_rank is 0, but must be 1 to 1024"},
      {[](Calls& c) { c.latents.kv_lora_rank = 500; }, "kv_lora_rank is 500, but must be a multiple of 128"},
      {[](Calls& c) { c.latents.rope_dim = 130; }, "rope_dim is 130, but must be 2 to 128"},
      {[](Calls& c) { c.latents.rope_dim = 63; }, "rope_dim is 63, but must be a multiple of 2"},
      {[](Calls& c) { c.latents.block_size = 0; }, "lantern_latent_cache has 3 blocks of 0 tokens"},
      {[](Calls& c) { c.latents.num_blocks = 1 << 25; }, "lantern_latent_cache has 33554432 blocks of 64 tokens"},
      {[](Calls& c) { c.keys.num_blocks = -1; }, "lantern_index_cache has -1 blocks"},
      {[](Calls& c) { c.keys.dim = 132; }, "dim is 132, but must be 4 to 128"},
      {[](Calls& c) { c.keys.dim = 126; }, "dim is 126, but must be a multiple of 4"},
      {[](Calls& c) { c.latent_rows.tokens = -1; }, "rows.tokens is -1"},
      {[](Calls& c) { c.latent_rows.stride = 575; }, "stride is 575, but must be 576"},
      {[](Calls& c) { c.latent_rows.hadamard = 1; }, "hadamard is for index keys"},
      {[](Calls& c) {
         c.key_rows.hadamard = 1;
         c.keys.dim = 96;
       },
       "power of two"},
      {[](Calls& c) { c.step.tokens = 65536; }, "step.tokens is 65536, but must be 0 to 65535"},
      {[](Calls& c) { c.step.requests = 0; }, "requests is 0"},
      {[](Calls& c) { c.step.block_table_stride = 0; }, "block_table_stride is 0 entries"},
      {[](Calls& c) { c.step.block_table_stride = 1 << 25; }, "reach no further than 1073741824 tokens"},
      {[](Calls& c) { c.select.heads = 129; }, "select_args.heads is 129, but must be 1 to 128"},
      {[](Calls& c) { c.select.top_k = 0; }, "select_args.top_k is 0"},
      {[](Calls& c) { c.select.workspace_bytes = 64; }, "select_args.workspace_bytes is 64, but"},
      {[](Calls& c) { c.decode.heads = 0; }, "decode_args.heads is 0, but must be 1 to 128"},
      {[](Calls& c) { c.decode.top_k = -1; }, "decode_args.top_k is -1"},
      {[](Calls& c) { c.decode.top_k = 0; }, "set top_k, or leave them NULL"},
      {[](Calls& c) { c.decode.scale = std::nanf(""); }, "scale is nan, but must be finite and above 0"},
      {[](Calls& c) { c.decode.scale = HUGE_VALF; }, "scale is inf"},
      {[](Calls& c) { c.decode.scale = 0; }, "scale is 0, but must be finite and above 0"},
      {[](Calls& c) { c.decode.scale = -0.125f; }, "scale is -0.125"},
      {[](Calls& c) { c.decode.q_rope_head_stride = -1; }, "q_rope_head_stride is -1"},
      {[](Calls& c) { c.decode.q_rope_token_stride = INT64_MAX; }, "q_rope_token_stride is 9223372036854775807"},
      {[](Calls& c) { c.decode.workspace_bytes = 64; }, "decode_args.workspace_bytes is 64, but"},
      {[](Calls& c) { c.stream = &c; }, "the CPU has no stream"},
  });
}

// A key behind the end of the table, of a list or of the cache would be read from memory of somebody else.
TEST(AttentionArguments, ArraysThatLeadOutOfTheCacheAreRefusedOnTheCpu) {
  expect_refusals({
      {[](Calls& c) { c.slot_mapping[1] = 192; }, "slot_mapping[1] is 192, but must be -1 to 191"},
      {[](Calls& c) { c.slot_mapping[0] = -2; }, "slot_mapping[0] is -2, but must be -1 to 191"},
      {[](Calls& c) { c.token_context_len[1] = 129; }, "token_context_len[1] is 129, but must be 0 to 128"},
      {[](Calls& c) { c.token_context_len[0] = -1; }, "token_context_len[0] is -1, but must be 0 to 128"},
      {[](Calls& c) { c.token_context_len[0] = 1 << 30; }, "token_context_len[0] is 1073741824"},
      {[](Calls& c) { c.token_request[0] = 1; }, "token_request[0] is 1, but must be -1 to 0"},
      {[](Calls& c) { c.token_request[1] = -2; }, "token_request[1] is -2, but must be -1 to 0"},
      {[](Calls& c) { c.block_table[0] = 3; }, "block_table[0] is 3, but must be 0 to 2"},
      {[](Calls& c) { c.block_table[0] = -1; }, "block_table[0] is -1, but must be 0 to 2"},
      {[](Calls& c) { c.token_context_len[0] = 65, c.block_table[1] = 7; }, "block_table[1] is 7"},
  });
}

TEST(AttentionArguments, ADecodeAloneIsRefusedThemToo) {
  const Attention attention = make_attention(1);
  const auto refused = [&](const auto& spoil) {
    Calls c;
    spoil(c);
    const lantern_status status = lantern_mla_decode(attention.get(), &c.latents, &c.step, &c.decode, nullptr);
    return status == LANTERN_OK ? std::string() : std::string(lantern_attention_last_error());
  };
  const auto dense = [](Calls& c) {
    c.decode.top_k = 0;
    c.decode.slots = c.decode.counts = nullptr;
  };
  EXPECT_EQ(refused([&](Calls&) {}), "");
  EXPECT_EQ(refused(dense), "");
  EXPECT_EQ(refused([&](Calls& c) { dense(c), c.token_context_len[1] = 129; }),
            "token_context_len[1] is 129, but must be 0 to 128");
  EXPECT_EQ(refused([](Calls& c) { c.counts[0] = 3; }), "counts[0] is 3, but must be 0 to 2");
  EXPECT_EQ(refused([](Calls& c) { c.slots[2] = 192; }), "slots[2] is 192, but must be 0 to 191");
  EXPECT_EQ(refused([](Calls& c) { c.slots[2] = -1; }), "slots[2] is -1, but must be 0 to 191");
  // A list reads no table, and nobody reads what is behind its count or of padding.
  EXPECT_EQ(refused([](Calls& c) { c.block_table[0] = 7, c.token_context_len[0] = 999, c.slots[1] = 9999; }), "");
  EXPECT_EQ(refused([](Calls& c) { c.token_request[0] = -1, c.counts[0] = 99; }), "");
  EXPECT_EQ(refused([&](Calls& c) { dense(c), c.block_table[1] = -7; }), "");
}

TEST(AttentionArguments, WrongSizesOfStructsAreRefused) {
  expect_refusals({
      {[](Calls& c) { c.config.struct_size = 0; }, "lantern_attention_config.struct_size is 0"},
      {[](Calls& c) { c.latents.struct_size -= 1; }, "lantern_latent_cache.struct_size is 31"},
      {[](Calls& c) { c.keys.struct_size = 1u << 30; }, "lantern_index_cache.struct_size is 1073741824"},
      {[](Calls& c) { c.latent_rows.struct_size = 0; }, "lantern_cache_rows.struct_size is 0"},
      {[](Calls& c) { c.step.struct_size = 8; }, "lantern_attention_step.struct_size is 8"},
      {[](Calls& c) { c.select.struct_size = 0; }, "select_args.struct_size is 0"},
      {[](Calls& c) { c.decode.struct_size = 0; }, "decode_args.struct_size is 0"},
  });
}

TEST(AttentionArguments, ANewerCallerIsUnderstoodAsFarAsItAsksForNothingNew) {
  struct {
    lantern_latent_cache cache;
    int64_t further;
  } newer{{sizeof(newer), LANTERN_LATENT_FP8, 512, 64, 64, 3, nullptr}, 0};
  size_t bytes = 0;
  ASSERT_EQ(lantern_latent_cache_bytes(&newer.cache, &bytes), LANTERN_OK) << lantern_attention_last_error();
  EXPECT_EQ(bytes, 3u * 64 * 656);
  newer.further = 1;
  EXPECT_EQ(lantern_latent_cache_bytes(&newer.cache, &bytes), LANTERN_INVALID_ARGUMENT);
  EXPECT_NE(std::string(lantern_attention_last_error()).find("does not know"), std::string::npos);
}

TEST(AttentionArguments, QueriesLookAtSizesAlone) {
  Calls c;
  const Attention attention = make_attention(1);
  c.latents.data = c.keys.data = nullptr;
  c.step.token_request = c.step.token_context_len = c.step.block_table = nullptr;
  c.select = {sizeof(c.select), 4, 2, 0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0};
  size_t one = 0, many = 0;
  ASSERT_EQ(lantern_index_select_workspace(attention.get(), &c.keys, &c.step, &c.select, &one), LANTERN_OK);
  c.step.tokens = 5000;
  ASSERT_EQ(lantern_index_select_workspace(attention.get(), &c.keys, &c.step, &c.select, &many), LANTERN_OK);
  EXPECT_GT(one, 0u);
  EXPECT_EQ(one, many);  // it does not grow with the batch
  lantern_mla_decode_args decode{};
  decode.struct_size = sizeof(decode);
  decode.heads = 4;
  ASSERT_EQ(lantern_mla_decode_workspace(attention.get(), &c.latents, &c.step, &decode, &one), LANTERN_OK);
  EXPECT_GT(one, 0u);
  EXPECT_EQ(lantern_mla_decode_workspace(attention.get(), &c.latents, &c.step, &decode, nullptr),
            LANTERN_INVALID_ARGUMENT);
  EXPECT_STREQ(lantern_attention_last_error(), "bytes is NULL");
}

TEST(AttentionArguments, AStepOfNothingIsTaken) {
  Calls c;
  c.latent_rows.tokens = c.key_rows.tokens = c.step.tokens = 0;
  c.latent_rows.values = c.key_rows.values = c.decode.q_latent = c.select.query = nullptr;
  EXPECT_EQ(refusal(c), "");
}

// Where there is a GPU, the ops run on it in examples/attention; here they must say why not.
TEST(AttentionArguments, WithoutAGpuTheReasonIsGiven) {
  const lantern_attention_config config{sizeof(config), LANTERN_DEVICE_CUDA, 0};
  lantern_attention* made = nullptr;
  const lantern_status status = lantern_attention_create(&config, &made);
  const Attention owner(made);
  if (status == LANTERN_OK) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(status, LANTERN_UNSUPPORTED);
  EXPECT_EQ(made, nullptr);
  EXPECT_STRNE(lantern_attention_last_error(), "");
}

}  // namespace
}  // namespace lantern::test
