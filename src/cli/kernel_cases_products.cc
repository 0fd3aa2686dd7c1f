// Matrix products, experts, router and norms at the sizes of DeepSeek-V3.2.
#include <fmt/format.h>

#include "cli/kernel_cases.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/norm.h"

namespace lantern::cli {
namespace {

constexpr int64_t kFloat = sizeof(float);

KernelWork linear_work(KernelMemory& memory, bool fp8, int64_t rows, int64_t out, int64_t in) {
  const QuantizedMatrix weight = fp8 ? memory.fp8(out, in) : memory.bf16(out, in);
  const int64_t scratch = linear_scratch_bytes(rows, in);
  const LinearParams params{.x = memory.floats(rows * in),
                            .x_stride = in,
                            .x_rows = {},
                            .y = memory.room<float>(rows * out),
                            .y_stride = out,
                            .rows = rows,
                            .weight = weight,
                            .scratch = memory.room<std::byte>(scratch),
                            .scratch_bytes = scratch};
  return {.launch = [params](Stream& stream) { linear(stream, params); },
          .bytes = matrix_bytes(weight) + rows * (in + out) * kFloat,
          .flops = 2.0 * static_cast<double>(rows * in * out)};
}

// For the largest products, which no launch's cost hides: two fifths of the tensor cores' 990 TFLOP/s for the rows of
// prompts, near the bytes' floor for those of decodes.
KernelGoal linear_goal(int64_t rows, int64_t out, int64_t in) {
  if (out * in < int64_t{7168} * 16384) return {};
  if (rows >= 2048) return {.us = 2.0 * static_cast<double>(rows * out * in) / (0.4 * 990e6)};
  return {.share = rows == 64 ? 0.6 : 0};
}

struct MoeShape {
  int32_t experts, per_token;
  int64_t hidden, intermediate;
};

// Tokens share no expert while there are enough: the most bytes that so few tokens can ask for.
KernelWork moe_work(KernelMemory& memory, const MoeShape& shape, int32_t tokens) {
  std::vector<ExpertWeights> experts;
  experts.reserve(static_cast<size_t>(shape.experts));
  for (int32_t e = 0; e < shape.experts; ++e) {
    experts.push_back({.gate = memory.fp8(shape.intermediate, shape.hidden),
                       .up = memory.fp8(shape.intermediate, shape.hidden),
                       .down = memory.fp8(shape.hidden, shape.intermediate)});
  }
  const int32_t pairs = tokens * shape.per_token;
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(pairs));
  // Odd, so that it meets every expert of a power of two; far apart in memory, as a router's choices are.
  for (int32_t i = 0; i < pairs; ++i) ids.push_back(i * 37 % shape.experts);
  const int64_t scratch = moe_scratch_bytes(tokens, shape.per_token, shape.experts, shape.hidden, shape.intermediate);
  const ExpertWeights& one = experts.front();
  const int64_t expert_bytes = matrix_bytes(one.gate) + matrix_bytes(one.up) + matrix_bytes(one.down);
  const MoeParams params{.x = memory.floats(tokens * shape.hidden),
                         .y = memory.floats(tokens * shape.hidden),
                         .expert_ids = memory.put(ids),
                         .expert_weights = memory.floats(pairs),
                         .experts = memory.put(experts),
                         .first_expert = experts[0],
                         .tokens = tokens,
                         .experts_per_token = shape.per_token,
                         .num_experts = shape.experts,
                         .hidden = shape.hidden,
                         .intermediate = shape.intermediate,
                         .scratch = memory.room<std::byte>(scratch),
                         .scratch_bytes = scratch};
  return {.launch = [params](Stream& stream) { moe(stream, params); },
          .bytes = std::min(pairs, shape.experts) * expert_bytes + 3 * tokens * shape.hidden * kFloat,
          .flops = 6.0 * static_cast<double>(pairs * shape.hidden * shape.intermediate)};
}

KernelWork router_work(KernelMemory& memory, int32_t tokens) {
  constexpr int32_t kExperts = 256, kPerToken = 8;
  const RouterParams params{.logits = memory.floats(int64_t{tokens} * kExperts, 3.0f),
                            .bias = memory.floats(kExperts, 0.1f),
                            .expert_ids = memory.room<int32_t>(int64_t{tokens} * kPerToken),
                            .expert_weights = memory.room<float>(int64_t{tokens} * kPerToken),
                            .tokens = tokens,
                            .experts = kExperts,
                            .experts_per_token = kPerToken,
                            .groups = 8,
                            .topk_groups = 4,
                            .scale = 2.5f};
  return {.launch = [params](Stream& stream) { router(stream, params); },
          .bytes = (int64_t{tokens} * (kExperts + 2 * kPerToken) + kExperts) * kFloat};
}

KernelWork norm_work(KernelMemory& memory, int64_t rows, int64_t cols) {
  const AddRmsNormParams params{.delta = memory.floats(rows * cols),
                                .residual = memory.floats(rows * cols),
                                .weight = memory.floats(cols),
                                .y = memory.room<float>(rows * cols),
                                .rows = rows,
                                .cols = cols};
  return {.launch = [params](Stream& stream) { add_rms_norm(stream, params); },
          .bytes = (4 * rows + 1) * cols * kFloat};
}

// What a graph of one kernel takes that has nothing to do: no other case can take less.
KernelWork nothing_work(KernelMemory& memory) {
  const FillParams params{.x = memory.room<float>(1), .count = 1, .value = 1.0f};
  return {.launch = [params](Stream& stream) { fill(stream, params); }, .bytes = kFloat};
}

}  // namespace

std::vector<KernelCase> product_kernel_cases(CaseSize size) {
  std::vector<KernelCase> list;
  list.push_back({.name = "fill of one value", .make = [](KernelMemory& memory, int) { return nothing_work(memory); }});
  const struct {
    bool fp8;
    int32_t out, in;
    bool prompts;  // also as many rows as prompts bring
  } products[] = {
      {true, 7168, 16384, true}, {true, 24576, 1536, true},  {true, 2112, 7168, true},
      {true, 7168, 2048, true},  {false, 7168, 16384, true}, {false, 129280, 7168, false},
  };
  for (const auto& product : products) {
    for (const int64_t rows : {1, 8, 64, 512, 2048}) {
      if (rows > 64 && !product.prompts) continue;
      const int64_t out = sized(size, product.out), in = sized(size, product.in);
      list.push_back({.name = fmt::format("linear {} {}x{} rows {}", product.fp8 ? "fp8" : "bf16", out, in, rows),
                      .goal = goal_of(size, linear_goal(rows, out, in)),
                      .make = [fp8 = product.fp8, rows, out, in](KernelMemory& memory, int) {
                        return linear_work(memory, fp8, rows, out, in);
                      }});
    }
  }
  const MoeShape shape{
      .experts = sized(size, 256), .per_token = 8, .hidden = sized(size, 7168), .intermediate = sized(size, 2048)};
  for (const int32_t tokens : {1, 8, 64, 256, 2048}) {
    list.push_back(
        {.name = fmt::format("moe fp8 {}x{}x{} tokens {}", shape.experts, shape.hidden, shape.intermediate, tokens),
         .goal = goal_of(size, {.share = tokens == 8 ? 0.7 : 0}),
         .make = [shape, tokens](KernelMemory& memory, int) { return moe_work(memory, shape, tokens); }});
  }
  for (const int32_t tokens : {1, 64}) {
    list.push_back({.name = fmt::format("router 256 experts tokens {}", tokens),
                    .make = [tokens](KernelMemory& memory, int) { return router_work(memory, tokens); }});
  }
  const int64_t cols = sized(size, 7168);
  list.push_back({.name = fmt::format("add_rms_norm {} rows 1", cols),
                  .make = [cols](KernelMemory& memory, int) { return norm_work(memory, 1, cols); }});
  return list;
}

}  // namespace lantern::cli
