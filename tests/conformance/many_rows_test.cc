// Products of more rows than one tile of the plain tensor core kernels takes, and that each row's bits are those it has
// in any other company.
#include "attention/mla.h"
#include "conformance/conformance.h"
#include "conformance/matrices.h"
#include "model/kv_up_projection.h"
#include "ops/linear.h"
#include "ops/moe.h"

namespace lantern::conformance {
namespace {

// As in ops_test.cc.
constexpr double kTensorSums = 1e-5;
constexpr double kActivations = 1e-3;
constexpr double kSums = 2e-6;

const struct {
  const char* name;
  Format format;
} kFormats[] = {
    {"bf16", {.dtype = DType::kBF16}},
    {"fp8_f32", {.dtype = DType::kF8E4M3, .scale_dtype = DType::kF32, .block = 128}},
    {"fp8_e8m0", {.dtype = DType::kF8E4M3, .scale_dtype = DType::kF8E8M0, .block = 128}},
};

// Columns with fewer pieces than runs of K, and with both numbers of runs, whose pieces they do not share out evenly.
constexpr int64_t kColumns[] = {128, 1664, 4224};

struct Linear {
  LinearParams params;
  Fixed<float> y;
};

Linear linear_of(Bench& bench, Random& random, const QuantizedMatrix& w, int64_t rows) {
  const int64_t x_rows = 310, stride = w.rows + 5, bytes = linear_scratch_bytes(rows, w.cols);
  const auto y = bench.put(normal(random, rows * stride));
  return {.params = {.x = bench.input(normal(random, x_rows * (w.cols + 4))),
                     .x_stride = w.cols + 4,
                     .x_rows = bench.input(integers(random, rows, 0, x_rows - 1)),
                     .y = y,
                     .y_stride = stride,
                     .rows = rows,
                     .weight = w,
                     .scratch = bench.room<std::byte>(bytes),
                     .scratch_bytes = bytes},
          .y = y};
}

struct Experts {
  std::vector<ExpertWeights> weights;
  int64_t hidden, inner;
};

Experts experts_of(Bench& bench, Random& random, const Format& format, int32_t count, int64_t hidden, int64_t inner) {
  Experts experts{.weights = {}, .hidden = hidden, .inner = inner};
  for (int32_t e = 0; e < count; ++e) {
    experts.weights.push_back({.gate = matrix(bench, random, format, inner, hidden),
                               .up = matrix(bench, random, format, inner, hidden),
                               .down = matrix(bench, random, format, hidden, inner)});
  }
  return experts;
}

constexpr int32_t kPerToken = 2;

// Tokens of one product through the experts; x, ids and weights are those of token 0.
void moe_of(Bench& bench, const Experts& experts, DevPtr<const float> x, DevPtr<const int32_t> ids,
            DevPtr<const float> weights, DevPtr<float> y, int64_t tokens) {
  const auto count = static_cast<int32_t>(experts.weights.size());
  const int64_t bytes = moe_scratch_bytes(tokens, kPerToken, count, experts.hidden, experts.inner);
  moe(bench.stream, {.x = x,
                     .y = y,
                     .expert_ids = ids,
                     .expert_weights = weights,
                     .experts = bench.input(experts.weights),
                     .first_expert = experts.weights[0],
                     .tokens = tokens,
                     .experts_per_token = kPerToken,
                     .num_experts = count,
                     .hidden = experts.hidden,
                     .intermediate = experts.inner,
                     .scratch = bench.room<std::byte>(bytes),
                     .scratch_bytes = bytes});
}
void mlp_of(Bench& bench, const Experts& experts, DevPtr<const float> x, DevPtr<float> y, int64_t tokens) {
  const int64_t bytes = mlp_scratch_bytes(tokens, experts.hidden, experts.inner);
  mlp(bench.stream, {.x = x,
                     .y = y,
                     .tokens = tokens,
                     .weights = experts.weights[0],
                     .accumulate = true,
                     .scratch = bench.room<std::byte>(bytes),
                     .scratch_bytes = bytes});
}

// How many values differ in any bit.
Output differences(const std::string& name, const std::vector<float>& a, const std::vector<float>& b) {
  CHECK(a.size() == b.size(), "{} and {} values", a.size(), b.size());
  int32_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += static_cast<int32_t>(std::memcmp(&a[i], &b[i], sizeof(float)) != 0);
  return {name + ", values that differ in other company", std::vector<int32_t>{count}};
}

// Slices of `rows` rows, of each number of rows that kernels treat differently.
template <class Visit>
void slices(int64_t rows, const Visit& visit) {
  constexpr int64_t kSizes[] = {1, 2, 5, 8, 13, 32, 33, 70};
  size_t at = 0;
  for (int64_t first = 0; first < rows;) {
    const int64_t count = std::min(kSizes[at++ % std::size(kSizes)], rows - first);
    visit(first, count);
    first += count;
  }
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const auto& [name, format] : kFormats) {
    list.push_back({std::string("linear_") + name, [format](Bench& bench) {
                      Random random(21);
                      std::vector<Output> outputs;
                      for (const int64_t rows : {33, 64, 65, 200, 1000, 1040}) {
                        for (const int64_t cols : kColumns) {
                          const QuantizedMatrix w = matrix(bench, random, format, 200, cols);
                          Linear l = linear_of(bench, random, w, rows);
                          l.params.accumulate = rows == 65;
                          if (rows != 64) l.params.x_rows = {};
                          if (rows > 310) l.params.x_stride = 4;  // rows that overlap
                          const auto real = static_cast<int32_t>(rows == 200 ? rows - 70 : rows);
                          l.params.real_rows = {.count = bench.input<int32_t>({real + 7}), .before = 7};
                          linear(bench.stream, l.params);
                          outputs.push_back(
                              {std::to_string(rows) + " rows of " + std::to_string(cols), bench.get(l.y), kTensorSums});
                        }
                      }
                      return outputs;
                    }});
    list.push_back({std::string("linear_alone_") + name, [format](Bench& bench) {
                      Random random(22);
                      std::vector<Output> outputs;
                      for (const int64_t rows : {64, 300}) {
                        for (const int64_t cols : kColumns) {
                          const QuantizedMatrix w = matrix(bench, random, format, 200, cols);
                          const Linear all = linear_of(bench, random, w, rows);
                          linear(bench.stream, all.params);
                          const auto y = bench.put(bench.get(all.y));
                          slices(rows, [&](int64_t first, int64_t count) {
                            LinearParams p = all.params;
                            p.rows = count;
                            p.x_rows = borrow_fixed(p.x_rows.get() + first, count);
                            p.y = borrow_fixed(y.data() + first * p.y_stride, count * p.y_stride);
                            linear(bench.stream, p);
                          });
                          outputs.push_back(differences(std::to_string(rows) + " rows of " + std::to_string(cols),
                                                        bench.get(all.y), bench.get(y)));
                        }
                      }
                      return outputs;
                    }});
    // Of runs of two and of three chunks of terms, and of outputs of one tile and of two.
    list.push_back(
        {std::string("kv_projections_alone_") + name, [format](Bench& bench) {
           Random random(24);
           std::vector<Output> outputs;
           for (const auto& [nope, v] : {std::pair{128, 128}, std::pair{192, 256}}) {
             const int32_t heads = 3, rank = 512, qk = nope + 64, tokens = 150;
             const QuantizedMatrix w = matrix(bench, random, format, heads * (nope + v), rank);
             const KvUpProjection kv_b = kv_up_projection(w, heads, nope, v);
             const auto q = bench.input(normal(random, int64_t{tokens} * heads * qk));
             const auto latents = bench.input(normal(random, int64_t{tokens} * heads * rank));
             Fixed<float> q_latent[2], out[2];
             for (auto& to : q_latent) to = bench.room<float>(int64_t{tokens} * heads * rank);
             for (auto& to : out) to = bench.room<float>(int64_t{tokens} * heads * v);
             const auto project = [&](int which, int64_t first, int64_t count) {
               absorb_query(bench.stream, {.q = q.sub(first * heads * qk, count * heads * qk),
                                           .q_token_stride = int64_t{heads} * qk,
                                           .q_head_stride = qk,
                                           .kv_b = kv_b,
                                           .q_latent = q_latent[which].sub(first * heads * rank, count * heads * rank),
                                           .tokens = count});
               project_value(bench.stream, {.out_latent = latents.sub(first * heads * rank, count * heads * rank),
                                            .kv_b = kv_b,
                                            .out = out[which].sub(first * heads * v, count * heads * v),
                                            .tokens = count});
             };
             project(0, 0, tokens);
             slices(tokens, [&](int64_t first, int64_t count) { project(1, first, count); });
             const std::string shape = std::to_string(nope) + " and " + std::to_string(v);
             outputs.push_back({"q_latent " + shape, bench.get(q_latent[0]), kSums});
             outputs.push_back({"out " + shape, bench.get(out[0]), kSums});
             outputs.push_back(differences("q_latent " + shape, bench.get(q_latent[0]), bench.get(q_latent[1])));
             outputs.push_back(differences("out " + shape, bench.get(out[0]), bench.get(out[1])));
           }
           return outputs;
         }});
    list.push_back({std::string("experts_alone_") + name, [format](Bench& bench) {
                      Random random(23);
                      std::vector<Output> outputs;
                      const int64_t tokens = 300;
                      for (const auto& [hidden, inner] : {std::pair{256, 640}, std::pair{4224, 128}}) {
                        const Experts experts = experts_of(bench, random, format, 4, hidden, inner);
                        const auto x = bench.input(normal(random, tokens * hidden));
                        // Expert 3 has none, expert 0 most.
                        std::vector<int32_t> choice = integers(random, tokens * kPerToken, 0, 4);
                        for (int32_t& id : choice) id = id > 2 ? 0 : id;
                        for (int i = 10; i < 14; ++i) choice[static_cast<size_t>(i)] = -1;
                        const auto ids = bench.input(choice);
                        const auto weights = bench.input(normal(random, tokens * kPerToken));
                        const std::vector<float> before = normal(random, tokens * hidden);
                        const auto moe_all = bench.put(before), moe_y = bench.put(before);
                        const auto mlp_all = bench.put(before), mlp_y = bench.put(before);
                        moe_of(bench, experts, x, ids, weights, moe_all, tokens);
                        mlp_of(bench, experts, x, mlp_all, tokens);
                        slices(tokens, [&](int64_t first, int64_t count) {
                          const auto x_part = borrow_fixed(x.data() + first * hidden, count * hidden);
                          const int64_t at = first * kPerToken, pairs = count * kPerToken;
                          moe_of(bench, experts, x_part, borrow_fixed(ids.data() + at, pairs),
                                 borrow_fixed(weights.data() + at, pairs),
                                 borrow_fixed(moe_y.data() + first * hidden, count * hidden), count);
                          mlp_of(bench, experts, x_part, borrow_fixed(mlp_y.data() + first * hidden, count * hidden),
                                 count);
                        });
                        const std::string shape = std::to_string(hidden) + " x " + std::to_string(inner);
                        outputs.push_back({"moe " + shape, bench.get(moe_all), kActivations});
                        outputs.push_back({"mlp " + shape, bench.get(mlp_all), kActivations});
                        outputs.push_back(differences("moe " + shape, bench.get(moe_all), bench.get(moe_y)));
                        outputs.push_back(differences("mlp " + shape, bench.get(mlp_all), bench.get(mlp_y)));
                      }
                      return outputs;
                    }});
  }
  return list;
}

class ManyRowsConformance : public testing::TestWithParam<Case> {};
TEST_P(ManyRowsConformance, EqualsTheHost) { check(GetParam()); }
INSTANTIATE_TEST_SUITE_P(ManyRows, ManyRowsConformance, testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace lantern::conformance
