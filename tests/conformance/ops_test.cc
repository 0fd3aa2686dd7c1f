#include "conformance/conformance.h"
#include "conformance/matrices.h"
#include "device/kernel_count.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/memory_read.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/random_fill.h"
#include "ops/rope.h"

namespace lantern::conformance {
namespace {

// Sums of a few thousand floats in another order, and library functions that differ in their last place.
constexpr double kSums = 2e-6;
constexpr double kPlaces = 5e-7;
// On tensor cores, which cut off what lies below the last place of a sum's largest part.
constexpr double kTensorSums = 1e-5;

std::vector<Case> cases() {
  std::vector<Case> list;
  list.push_back({"elementwise", [](Bench& bench) {
                    Random random(1);
                    const auto x = bench.put(normal(random, 5001)), y = bench.put(normal(random, 5001));
                    const auto z = bench.room<float>(777);
                    scale(bench.stream, {.x = x, .count = 5000, .factor = 1.5f});
                    add(bench.stream, {.delta = Fixed<const float>(y), .x = x, .count = 4999});
                    fill(bench.stream, {.x = z, .count = 700, .value = -2.5f});
                    return std::vector<Output>{{"x", bench.get(x)}, {"z", bench.get(z)}};
                  }});
  list.push_back({"kernels_of_a_graph", [](Bench& bench) {
                    const auto x = bench.put(std::vector<float>{1, 2, 3});
                    const auto graph = capture_graph(bench.stream, {}, [&](Stream& stream) -> Status {
                      for (int i = 0; i < 3; ++i) scale(stream, {.x = x, .count = 3, .factor = 2.0f});
                      return {};
                    });
                    CHECK(graph.ok(), "{}", graph.error().message());
                    (*graph)->replay(bench.stream);
                    return std::vector<Output>{
                        {"kernels", std::vector<int32_t>{static_cast<int32_t>(kernel_count(**graph))}},
                        {"x", bench.get(x)}};
                  }});
  // What dummy weights are made of: the same bits on every device, ends of words among them.
  for (const auto& [name, values] : {std::pair{"f32", RandomValues::kF32}, std::pair{"bf16", RandomValues::kBf16},
                                     std::pair{"e4m3", RandomValues::kE4m3}}) {
    list.push_back({std::string("random_fill_") + name, [values](Bench& bench) {
                      std::vector<Output> outputs;
                      for (const int64_t bytes : {0, 3, 8, 300'003}) {
                        const auto data = bench.room<std::byte>(300'008);
                        random_fill(bench.stream, {.data = data.sub(0, bytes),
                                                   .bytes = bytes,
                                                   .values = values,
                                                   .key = 0x123456789abcdefu + static_cast<uint64_t>(bytes),
                                                   .width = 0.37f});
                        outputs.push_back({std::to_string(bytes) + " bytes", bench.get(data)});
                      }
                      return outputs;
                    }});
  }
  list.push_back({"read_memory", [](Bench& bench) {
                    const auto data = bench.room<std::byte>(5 * kReadPieceBytes);
                    const auto word = bench.put<uint64_t>({77});
                    random_fill(bench.stream, {.data = data, .bytes = data.size(), .key = 3});
                    read_memory(bench.stream,
                                {.data = Fixed<const std::byte>(data), .bytes = data.size(), .word = word});
                    const std::vector<uint64_t> read = bench.get(word);
                    const auto* bytes = reinterpret_cast<const std::byte*>(read.data());
                    return std::vector<Output>{{"word", std::vector<std::byte>(bytes, bytes + 8)}};
                  }});
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    list.push_back({"embedding_" + std::string(to_string(dtype)), [dtype](Bench& bench) {
                      Random random(2);
                      const QuantizedMatrix table = matrix(bench, random, {.dtype = dtype}, 50, 100);
                      const auto y = bench.room<float>(7 * 120);
                      embedding(bench.stream, {.token_ids = bench.input<int32_t>({3, 49, -1, 0, 50, 7, 7}),
                                               .table = table,
                                               .y = y,
                                               .y_stride = 120,
                                               .tokens = 7});
                      return std::vector<Output>{{"y", bench.get(y)}};
                    }});
  }
  list.push_back({"gather_rows", [](Bench& bench) {
                    Random random(3);
                    const auto y = bench.room<float>(4 * 33);
                    gather_rows(bench.stream, {.x = bench.input(normal(random, 9 * 40)),
                                               .x_stride = 40,
                                               .rows = bench.input<int32_t>({8, -1, 0, 8}),
                                               .y = y,
                                               .count = 4,
                                               .cols = 33});
                    return std::vector<Output>{{"y", bench.get(y)}};
                  }});
  for (const int64_t cols : {1, 33, 512, 7168, 20001}) {
    list.push_back({"norms_" + std::to_string(cols), [cols](Bench& bench) {
                      Random random(4);
                      const int64_t rows = 5;
                      const auto weight = bench.input(normal(random, cols)), bias = bench.input(normal(random, cols));
                      const auto x = bench.put(normal(random, rows * (cols + 3), 3.0f));
                      const auto residual = bench.put(normal(random, rows * cols));
                      const auto delta = bench.input(normal(random, rows * cols));
                      const auto y = bench.room<float>(rows * cols), z = bench.room<float>(rows * cols);
                      layer_norm(bench.stream, {.x = Fixed<const float>(x),
                                                .x_stride = cols + 3,
                                                .weight = weight,
                                                .bias = bias,
                                                .y = y,
                                                .y_stride = cols,
                                                .rows = rows,
                                                .cols = cols});
                      rms_norm(bench.stream, {.x = Fixed<const float>(x),
                                              .x_stride = cols + 3,
                                              .weight = weight,
                                              .y = x,
                                              .y_stride = cols + 3,
                                              .rows = rows,
                                              .cols = cols});
                      add_rms_norm(
                          bench.stream,
                          {.delta = delta, .residual = residual, .weight = weight, .y = z, .rows = rows, .cols = cols});
                      return std::vector<Output>{{"layer_norm", bench.get(y), 2e-6},
                                                 {"rms_norm, in place", bench.get(x), 2e-6},
                                                 {"residual", bench.get(residual)},
                                                 {"add_rms_norm", bench.get(z), 2e-6}};
                    }});
  }
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalves}) {
    list.push_back({pairing == RopePairing::kHalves ? "rope_halves" : "rope_interleaved", [pairing](Bench& bench) {
                      Random random(5);
                      const RopeScaling yarn{.factor = 40, .mscale_all_dim = 1.0};
                      const auto table = bench.room<float>(6 * 64);
                      rope_table(bench.stream,
                                 {.context_len = bench.input<int32_t>({1, 2, 0, 4097, 163840, 77}),
                                  .inverse_frequencies = bench.input(rope_inverse_frequencies(64, 10000, yarn)),
                                  .cos_sin = table,
                                  .tokens = 6,
                                  .dim = 64,
                                  .attention_factor = 1.25f});
                      const auto x = bench.put(normal(random, 6 * 3 * 200));
                      rope(bench.stream, {.x = x,
                                          .token_stride = 600,
                                          .head_stride = 200,
                                          .heads = 3,
                                          .offset = 128,
                                          .dim = 64,
                                          .cos_sin = Fixed<const float>(table),
                                          .tokens = 6,
                                          .pairing = pairing});
                      return std::vector<Output>{{"table", bench.get(table), kPlaces}, {"x", bench.get(x), kPlaces}};
                    }});
  }
  const struct {
    const char* name;
    Format format;
    LinearInput input;
  } products[] = {
      {"f32", {.dtype = DType::kF32}, LinearInput::kRounded},
      {"f16", {.dtype = DType::kF16}, LinearInput::kRounded},
      {"bf16", {.dtype = DType::kBF16}, LinearInput::kRounded},
      {"bf16_exact", {.dtype = DType::kBF16}, LinearInput::kExact},
      {"fp8_f32", {.dtype = DType::kF8E4M3, .scale_dtype = DType::kF32, .block = 128}, LinearInput::kRounded},
      {"fp8_e8m0", {.dtype = DType::kF8E4M3, .scale_dtype = DType::kF8E8M0, .block = 128}, LinearInput::kRounded},
      {"fp8_block_64", {.dtype = DType::kF8E4M3, .scale_dtype = DType::kF32, .block = 64}, LinearInput::kExact},
  };
  for (const auto& product : products) {
    list.push_back({std::string("linear_") + product.name, [product](Bench& bench) {
                      Random random(6);
                      std::vector<Output> outputs;
                      for (const int64_t rows : {1, 2, 8, 9, 19}) {
                        const int64_t outs = 200, cols = 300;  // neither is a multiple of a block
                        const QuantizedMatrix w = matrix(bench, random, product.format, outs, cols);
                        const auto y = bench.put(normal(random, rows * (outs + 5)));
                        const int64_t bytes = linear_scratch_bytes(rows, cols);
                        LinearParams p{.x = bench.input(normal(random, 30 * 310)),
                                       .x_stride = 310,
                                       .x_rows = {},
                                       .y = y,
                                       .y_stride = outs + 5,
                                       .rows = rows,
                                       .weight = w,
                                       .input = product.input,
                                       .accumulate = rows == 9,
                                       .scratch = bench.room<std::byte>(bytes),
                                       .scratch_bytes = bytes};
                        if (rows == 8) p.x_rows = bench.input<int32_t>({29, 0, 0, 7, 3, 28, 1, 2});
                        linear(bench.stream, p);
                        outputs.push_back({"rows " + std::to_string(rows), bench.get(y), kSums});
                      }
                      return outputs;
                    }});
  }
  // Of widths that the tensor cores' kernels take, for every number of groups of rows, and more rows than one pass.
  for (const auto& product : products) {
    if (product.input == LinearInput::kExact) continue;
    list.push_back({std::string("linear_wide_") + product.name, [product](Bench& bench) {
                      Random random(16);
                      std::vector<Output> outputs;
                      for (const int64_t rows : {1, 2, 3, 8, 9, 19, 300}) {
                        for (const int64_t cols : {128, 1664, 4224}) {
                          const int64_t outs = 200;
                          const QuantizedMatrix w = matrix(bench, random, product.format, outs, cols);
                          const auto y = bench.put(normal(random, rows * (outs + 5)));
                          const int64_t bytes = linear_scratch_bytes(rows, cols);
                          LinearParams p{.x = bench.input(normal(random, 310 * (cols + 4))),
                                         .x_stride = cols + 4,
                                         .x_rows = {},
                                         .y = y,
                                         .y_stride = outs + 5,
                                         .rows = rows,
                                         .real_rows = {.count = bench.input<int32_t>(
                                                           {static_cast<int32_t>(rows) + (rows == 19 ? 3 : 7)}),
                                                       .before = 7},
                                         .weight = w,
                                         .input = product.input,
                                         .accumulate = rows == 9,
                                         .scratch = bench.room<std::byte>(bytes),
                                         .scratch_bytes = bytes};
                          if (rows == 2 || rows == 300) p.x_rows = bench.input(integers(random, rows, 0, 309));
                          linear(bench.stream, p);
                          outputs.push_back(
                              {std::to_string(rows) + " rows of " + std::to_string(cols), bench.get(y), kTensorSums});
                        }
                      }
                      return outputs;
                    }});
  }
  list.push_back({"router", [](Bench& bench) {
                    Random random(7);
                    std::vector<Output> outputs;
                    const struct {
                      int32_t experts, per_token, groups, kept;
                      RouterScoring scoring;
                      RouterGroupScore group_score;
                      bool bias, ties;
                    } kinds[] = {
                        {8, 2, 4, 2, RouterScoring::kSigmoid, RouterGroupScore::kTop2Sum, true, false},
                        {256, 8, 8, 4, RouterScoring::kSigmoid, RouterGroupScore::kTop2Sum, true, false},
                        {160, 6, 8, 3, RouterScoring::kSoftmax, RouterGroupScore::kMax, false, false},
                        {64, 6, 1, 1, RouterScoring::kSoftmax, RouterGroupScore::kMax, false, true},
                        {384, 8, 1, 1, RouterScoring::kSigmoid, RouterGroupScore::kTop2Sum, true, true},
                        {1000, 8, 250, 40, RouterScoring::kSigmoid, RouterGroupScore::kTop2Sum, true, false},
                        {1024, 40, 1, 1, RouterScoring::kSigmoid, RouterGroupScore::kTop2Sum, true, true},
                    };
                    for (const auto& kind : kinds) {
                      const int64_t tokens = 40;
                      std::vector<float> logits = normal(random, tokens * kind.experts);
                      // Ties everywhere, and rows of NaN and of infinities.
                      for (float& logit : logits) logit = kind.ties ? std::round(logit) : logit;
                      std::fill_n(logits.begin(), kind.experts, NAN);
                      std::fill_n(logits.begin() + kind.experts, kind.experts / 2, -INFINITY);
                      logits[static_cast<size_t>(3 * kind.experts - 1)] = NAN;  // of an expert that is not chosen
                      const auto ids = bench.room<int32_t>(tokens * kind.per_token);
                      const auto weights = bench.room<float>(tokens * kind.per_token);
                      RouterParams p{.logits = bench.input(logits),
                                     .expert_ids = ids,
                                     .expert_weights = weights,
                                     .tokens = tokens,
                                     .experts = kind.experts,
                                     .experts_per_token = kind.per_token,
                                     .groups = kind.groups,
                                     .topk_groups = kind.kept,
                                     .scoring = kind.scoring,
                                     .group_score = kind.group_score,
                                     .normalize = kind.scoring == RouterScoring::kSigmoid,
                                     .scale = 2.5f};
                      if (kind.bias) {
                        std::vector<float> bias = normal(random, kind.experts, 0.1f);
                        for (float& value : bias) value = kind.ties ? 0.0f : value;
                        p.bias = bench.input(bias);
                      }
                      router(bench.stream, p);
                      const std::string name = std::to_string(kind.experts) + " experts";
                      outputs.push_back({name + ", ids", bench.get(ids)});
                      outputs.push_back({name + ", weights", bench.get(weights), 2e-6});
                    }
                    return outputs;
                  }});
  for (const auto& [name, format] :
       {std::pair{"bf16", Format{.dtype = DType::kBF16}},
        std::pair{"fp8", Format{.dtype = DType::kF8E4M3, .scale_dtype = DType::kF8E8M0, .block = 128}}}) {
    // Tokens, hidden and intermediate size: of widths for the plain kernels, and for the tensor cores' with tiles of 8,
    // 16 and 32 rows.
    using Sizes = std::array<int64_t, 3>;
    const std::vector<Sizes> sizes = {{1, 160, 96},   {11, 160, 96},  {1030, 160, 96},  {1, 256, 128}, {3, 256, 384},
                                      {11, 256, 128}, {60, 384, 128}, {1030, 256, 128}, {2, 4224, 128}};
    list.push_back({std::string("mlp_") + name, [format, sizes](Bench& bench) {
                      Random random(8);
                      std::vector<Output> outputs;
                      for (const auto& [tokens, hidden, inner] : sizes) {
                        const int64_t bytes = mlp_scratch_bytes(tokens, hidden, inner);
                        const auto y = bench.put(normal(random, tokens * hidden));
                        mlp(bench.stream, {.x = bench.input(normal(random, tokens * hidden)),
                                           .y = y,
                                           .tokens = tokens,
                                           .weights = {.gate = matrix(bench, random, format, inner, hidden),
                                                       .up = matrix(bench, random, format, inner, hidden),
                                                       .down = matrix(bench, random, format, hidden, inner)},
                                           .accumulate = tokens == 11,
                                           .scratch = bench.room<std::byte>(bytes),
                                           .scratch_bytes = bytes});
                        // A last place more in an activation may round to the next bf16 before the second product.
                        outputs.push_back(
                            {std::to_string(tokens) + " tokens of " + std::to_string(hidden), bench.get(y), 1e-3});
                      }
                      return outputs;
                    }});
    list.push_back({std::string("moe_") + name, [format, sizes](Bench& bench) {
                      Random random(9);
                      std::vector<Output> outputs;
                      for (const auto& [tokens, hidden, inner] : sizes) {
                        const int32_t experts = 12, per_token = 3;
                        std::vector<ExpertWeights> weights;
                        weights.reserve(experts);
                        for (int32_t e = 0; e < experts; ++e) {
                          weights.push_back({.gate = matrix(bench, random, format, inner, hidden),
                                             .up = matrix(bench, random, format, inner, hidden),
                                             .down = matrix(bench, random, format, hidden, inner)});
                        }
                        // Expert 5 has no token; the second token is padding.
                        std::vector<int32_t> ids = integers(random, tokens * per_token, 0, experts - 1);
                        for (int32_t& id : ids) id = id == 5 ? 6 : id;
                        for (size_t i = 3; i < 6 && tokens > 1; ++i) ids[i] = -1;
                        const int64_t bytes = moe_scratch_bytes(tokens, per_token, experts, hidden, inner);
                        const auto y = bench.put(normal(random, tokens * hidden));
                        moe(bench.stream, {.x = bench.input(normal(random, tokens * hidden)),
                                           .y = y,
                                           .expert_ids = bench.input(ids),
                                           .expert_weights = bench.input(normal(random, tokens * per_token)),
                                           .experts = bench.input(weights),
                                           .first_expert = weights[0],
                                           .tokens = tokens,
                                           .experts_per_token = per_token,
                                           .num_experts = experts,
                                           .hidden = hidden,
                                           .intermediate = inner,
                                           .scratch = bench.room<std::byte>(bytes),
                                           .scratch_bytes = bytes});
                        outputs.push_back(
                            {std::to_string(tokens) + " tokens of " + std::to_string(hidden), bench.get(y), 1e-3});
                      }
                      return outputs;
                    }});
  }
  return list;
}

class OpsConformance : public testing::TestWithParam<Case> {};
TEST_P(OpsConformance, EqualsTheHost) { check(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Ops, OpsConformance, testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace lantern::conformance
