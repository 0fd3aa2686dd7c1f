// Every implementation that this machine can run, against float64 sums over the rounded operands.
#include "ops/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/host_choice.h"

namespace lantern {
namespace {

struct Case {
  DType dtype = DType::kBF16;
  int64_t rows = 1;      // of x
  int64_t outputs = 16;  // rows of W
  int64_t cols = 32;
  LinearInput input = LinearInput::kRounded;
  int32_t block_rows = 0;
  int32_t block_cols = 0;
  DType scale_dtype = DType::kF32;
  float global_scale = 1.0f;
  int64_t row_padding = 0;    // bytes between rows of W beyond their length
  int64_t scale_padding = 0;  // scales between rows of scales
  bool accumulate = false;
  bool gather = false;
  int64_t y_padding = 0;

  std::string name() const {
    return std::string(to_string(dtype)) + " " + std::to_string(rows) + "x" + std::to_string(outputs) + "x" +
           std::to_string(cols) + " block " + std::to_string(block_rows) + "x" + std::to_string(block_cols) +
           (input == LinearInput::kExact ? " exact" : "") + (accumulate ? " accumulate" : "") +
           (gather ? " gather" : "");
  }
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Owns the operands of a case; params() points into them.
struct Operands {
  explicit Operands(const Case& test_case, uint32_t seed = 1) : c(test_case) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const int64_t element = static_cast<int64_t>(dtype_bytes(c.dtype, 1));
    row_bytes = c.cols * element + c.row_padding;
    // 0xff is NaN in every dtype here: reading padding shows.
    weight.assign(static_cast<size_t>(c.outputs * row_bytes), std::byte{0xff});
    for (int64_t i = 0; i < c.outputs; ++i) {
      for (int64_t j = 0; j < c.cols; ++j) {
        std::byte* at = weight.data() + i * row_bytes + j * element;
        const float value = normal(random);
        switch (c.dtype) {
          case DType::kF32: std::memcpy(at, &value, 4); break;
          case DType::kF16: {
            const f16_t v = to_f16(value);
            std::memcpy(at, &v, 2);
            break;
          }
          case DType::kBF16: {
            const bf16_t v = to_bf16(value);
            std::memcpy(at, &v, 2);
            break;
          }
          default: {
            uint8_t bits = static_cast<uint8_t>(random());  // every code, subnormals and zeros included, but no NaN
            if ((bits & 0x7f) == 0x7f) bits &= 0x8f;
            *at = std::byte{bits};
          }
        }
      }
    }
    if (c.block_rows != 0) {
      scale_stride = ceil_div(c.cols, c.block_cols) + c.scale_padding;
      const int64_t count = ceil_div(c.outputs, c.block_rows) * scale_stride;
      std::uniform_real_distribution<float> uniform(0.25f, 4.0f);
      for (int64_t i = 0; i < count; ++i) {
        const float scale = uniform(random);
        if (c.scale_dtype == DType::kF32) {
          const auto* bytes = reinterpret_cast<const std::byte*>(&scale);
          scales.insert(scales.end(), bytes, bytes + 4);
        } else {
          scales.push_back(static_cast<std::byte>(to_e8m0_ceil(scale).bits));
        }
      }
    }
    const int64_t x_count = c.gather ? c.rows + 5 : c.rows;
    x_stride = c.cols + 3;
    x.assign(static_cast<size_t>(x_count * x_stride), NAN);
    for (int64_t r = 0; r < x_count; ++r) {
      for (int64_t k = 0; k < c.cols; ++k) x[static_cast<size_t>(r * x_stride + k)] = normal(random);
    }
    if (c.gather) {
      for (int64_t r = 0; r < c.rows; ++r)
        x_rows.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(x_count)));
    }
    y_stride = c.outputs + c.y_padding;
    y_before.resize(static_cast<size_t>(c.rows * y_stride));
    for (float& v : y_before) v = c.accumulate ? normal(random) : NAN;
    y = y_before;
    scratch.resize(static_cast<size_t>(linear_scratch_bytes(c.rows, c.cols)));
    std::memset(scratch.data(), 0xff, scratch.size());
  }

  LinearParams params() {
    LinearParams p;
    p.x = borrow_fixed(static_cast<const float*>(x.data()), static_cast<int64_t>(x.size()));
    p.x_stride = x_stride;
    if (c.gather) p.x_rows = borrow_fixed(static_cast<const int32_t*>(x_rows.data()), c.rows);
    p.y = borrow_fixed(y.data(), static_cast<int64_t>(y.size()));
    p.y_stride = y_stride;
    p.rows = c.rows;
    p.weight.data = borrow_fixed(static_cast<const std::byte*>(weight.data()), static_cast<int64_t>(weight.size()));
    p.weight.dtype = c.dtype;
    p.weight.rows = c.outputs;
    p.weight.cols = c.cols;
    p.weight.row_bytes = row_bytes;
    if (c.block_rows != 0) {
      p.weight.scales = borrow_fixed(static_cast<const std::byte*>(scales.data()), static_cast<int64_t>(scales.size()));
      p.weight.scale_dtype = c.scale_dtype;
      p.weight.block_rows = c.block_rows;
      p.weight.block_cols = c.block_cols;
      p.weight.scale_row_stride = scale_stride;
    }
    p.weight.global_scale = c.global_scale;
    p.input = c.input;
    p.accumulate = c.accumulate;
    p.scratch = borrow_fixed(scratch.data(), static_cast<int64_t>(scratch.size()));
    p.scratch_bytes = static_cast<int64_t>(scratch.size());
    return p;
  }

  double weight_value(int64_t i, int64_t j) const {
    const std::byte* at = weight.data() + i * row_bytes + j * static_cast<int64_t>(dtype_bytes(c.dtype, 1));
    double q;
    if (c.dtype == DType::kF32) {
      float v;
      std::memcpy(&v, at, 4);
      q = v;
    } else if (c.dtype == DType::kF8E4M3) {
      q = to_float(e4m3_t{static_cast<uint8_t>(*at)});
    } else {
      uint16_t bits;
      std::memcpy(&bits, at, 2);
      q = c.dtype == DType::kF16 ? to_float(f16_t{bits}) : to_float(bf16_t{bits});
    }
    if (c.block_rows != 0) {
      const int64_t index = i / c.block_rows * scale_stride + j / c.block_cols;
      if (c.scale_dtype == DType::kF32) {
        float scale;
        std::memcpy(&scale, scales.data() + index * 4, 4);
        q *= scale;
      } else {
        q *= std::ldexp(1.0, static_cast<int>(scales[static_cast<size_t>(index)]) - 127);
      }
    }
    return q * c.global_scale;
  }

  double x_value(int64_t r, int64_t k) const {
    const int64_t source = c.gather ? x_rows[static_cast<size_t>(r)] : r;
    const float value = x[static_cast<size_t>(source * x_stride + k)];
    const bool rounded = c.input == LinearInput::kRounded && c.dtype != DType::kF32 && c.dtype != DType::kF16;
    return rounded ? to_float(to_bf16(value)) : value;
  }

  // Largest |y - reference| / sum |a b| over all outputs, in units of 2^-24; infinity when padding was written.
  double error() const {
    std::vector<double> weights;
    for (int64_t o = 0; o < c.outputs; ++o) {
      for (int64_t k = 0; k < c.cols; ++k) weights.push_back(weight_value(o, k));
    }
    std::vector<double> row(static_cast<size_t>(c.cols));
    double worst = 0.0;
    for (int64_t r = 0; r < c.rows; ++r) {
      for (size_t k = 0; k < row.size(); ++k) row[k] = x_value(r, static_cast<int64_t>(k));
      for (int64_t o = 0; o < y_stride; ++o) {
        const size_t at = static_cast<size_t>(r * y_stride + o);
        if (o >= c.outputs) {
          if (std::memcmp(&y[at], &y_before[at], 4) != 0) return INFINITY;
          continue;
        }
        double sum = c.accumulate ? y_before[at] : 0.0;
        double magnitude = std::abs(sum);
        for (size_t k = 0; k < row.size(); ++k) {
          const double product = weights[static_cast<size_t>(o * c.cols) + k] * row[k];
          sum += product;
          magnitude += std::abs(product);
        }
        const double relative = std::abs(static_cast<double>(y[at]) - sum) / magnitude * 0x1p24;
        if (!(relative <= worst)) worst = relative;  // NaN sticks
        if (std::isnan(worst)) return worst;
      }
    }
    return worst;
  }

  Case c;
  int64_t row_bytes = 0;
  int64_t scale_stride = 0;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  std::vector<std::byte> weight, scales, scratch;
  std::vector<float> x, y, y_before;
  std::vector<int32_t> x_rows;
};

// Sums of K products in float err by at most K * 2^-24 of sum |a b|, by chance by about sqrt(K) * 2^-24; 4 * sqrt(K) +
// 8 lies far below one wrong product (2^24 / K for products of like size) for every K here, and above chance.
double tolerance(const Case& c) { return 4.0 * std::sqrt(static_cast<double>(c.cols)) + 8.0; }

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kF16, DType::kF32}) {
    for (const int64_t cols : {1, 8, 16, 24, 31, 32, 33, 40, 63, 64, 96, 100, 127, 128, 129, 200, 576, 1000, 2048}) {
      list.push_back({.dtype = dtype, .rows = 3, .outputs = 37, .cols = cols});
    }
    for (const int64_t outputs : {1, 2, 15, 16, 17, 31, 32, 33, 64, 576}) {
      list.push_back({.dtype = dtype, .rows = 5, .outputs = outputs, .cols = 192, .y_padding = 3});
    }
    for (const int64_t rows : {1, 2, 3, 6, 7, 15, 16, 17, 31, 32, 33, 47, 64, 100, 512, 513, 530}) {
      list.push_back({.dtype = dtype, .rows = rows, .outputs = 40, .cols = 160, .gather = rows % 2 == 1});
    }
    list.push_back({.dtype = dtype, .rows = 21, .outputs = 50, .cols = 130, .row_padding = 1});
    list.push_back({.dtype = dtype, .rows = 40, .outputs = 48, .cols = 256, .row_padding = 34, .accumulate = true});
    list.push_back({.dtype = dtype, .rows = 18, .outputs = 35, .cols = 90, .global_scale = 0.37f, .accumulate = true});
    list.push_back({.dtype = dtype, .rows = 18, .outputs = 35, .cols = 90, .input = LinearInput::kExact});
    list.push_back({.dtype = dtype, .rows = 33, .outputs = 64, .cols = 1600, .gather = true, .y_padding = 1});
  }
  for (const DType scale_dtype : {DType::kF32, DType::kF8E8M0}) {
    for (const int64_t rows : {1, 2, 3, 7, 16, 33, 64, 513}) {
      for (const auto& [outputs, cols] : {std::pair<int64_t, int64_t>{576, 256}, {128, 576}, {300, 328}, {40, 100}}) {
        if (rows > 64 && outputs > 128) continue;
        list.push_back({.dtype = DType::kF8E4M3,
                        .rows = rows,
                        .outputs = outputs,
                        .cols = cols,
                        .block_rows = 128,
                        .block_cols = 128,
                        .scale_dtype = scale_dtype,
                        .global_scale = rows == 2 ? 0.5f : 1.0f,
                        .row_padding = cols % 3,
                        .scale_padding = rows % 2,
                        .accumulate = rows == 33,
                        .gather = rows == 16});
      }
    }
    for (const int64_t rows : {1, 20}) {
      list.push_back({.dtype = DType::kF8E4M3,
                      .rows = rows,
                      .outputs = 256,
                      .cols = 640,
                      .block_rows = 128,
                      .block_cols = 256,
                      .scale_dtype = scale_dtype});
    }
    for (const auto& [block_rows, block_cols] :
         {std::pair<int32_t, int32_t>{1, 128}, {64, 64}, {32, 32}, {16, 48}, {3, 7}, {1, 100000}, {128, 256}}) {
      list.push_back({.dtype = DType::kF8E4M3,
                      .rows = 19,
                      .outputs = 150,
                      .cols = 300,
                      .block_rows = block_rows,
                      .block_cols = block_cols,
                      .scale_dtype = scale_dtype});
      list.push_back({.dtype = DType::kBF16,
                      .rows = 2,
                      .outputs = 20,
                      .cols = 300,
                      .block_rows = block_rows,
                      .block_cols = block_cols,
                      .scale_dtype = scale_dtype});
    }
  }
  return list;
}

std::vector<std::string> runnable() {
  std::vector<std::string> names;
  for (const LinearImplementation& i : linear_host_implementations()) {
    if (i.missing == nullptr) names.emplace_back(i.name);
  }
  return names;
}

class Linear : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    bool can_run = false;
    for (const LinearImplementation& i : linear_host_implementations()) {
      if (GetParam() != i.name) continue;
      can_run = i.missing == nullptr;
      if (!can_run) GTEST_SKIP() << i.name << " cannot run here: " << i.missing;
    }
    ASSERT_TRUE(force_linear_host_implementation(GetParam()).ok());
  }
  void TearDown() override { ASSERT_TRUE(force_linear_host_implementation("").ok()); }

  void run(Operands& operands) { run(operands.params()); }
  void run(const LinearParams& params) { linear_host({&params, 1}, context_); }

  ThreadPool threads_{2};
  HostContext context_{threads_};
};

TEST_P(Linear, EqualsFloat64WithinTheErrorOfFloatSums) {
  for (const Case& c : cases()) {
    Operands operands(c);
    run(operands);
    EXPECT_LE(operands.error(), tolerance(c)) << c.name();
  }
}

TEST_P(Linear, ToleranceSeesAScaleOfTheNextBlock) {
  for (const int64_t rows : {1, 64}) {
    Operands operands(
        {.dtype = DType::kF8E4M3, .rows = rows, .outputs = 256, .cols = 2048, .block_rows = 128, .block_cols = 128});
    operands.scales.resize(operands.scales.size() + 4);  // the shifted view's last scale
    LinearParams params = operands.params();
    params.weight.scales = borrow_fixed(static_cast<const std::byte*>(operands.scales.data() + 4), 1);
    run(params);
    EXPECT_GT(operands.error(), tolerance(operands.c) * 100.0);
  }
}

TEST_P(Linear, ToleranceSeesOneColumnLeftOut) {
  Operands operands({.rows = 4, .outputs = 64, .cols = 2048});
  LinearParams params = operands.params();
  params.weight.cols -= 1;
  run(params);
  EXPECT_GT(operands.error(), tolerance(operands.c) * 10.0);
}

// Bit for bit, whatever travels along: rows alone, in another order, in chunks, with 1, 2 or 3 threads.
TEST_P(Linear, ARowsBitsDependOnThatRowAlone) {
  std::vector<Case> list;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kF16, DType::kF32}) {
    for (const int64_t cols : {24, 40, 131, 512, 1544}) {
      list.push_back({.dtype = dtype, .rows = 77, .outputs = 100, .cols = cols, .accumulate = cols == 40});
    }
    list.push_back({.dtype = dtype, .rows = 530, .outputs = 70, .cols = 1100});
    list.push_back({.dtype = dtype, .rows = 50, .outputs = 32, .cols = 96, .input = LinearInput::kExact});
  }
  for (const int64_t rows : {33, 530}) {
    list.push_back({.dtype = DType::kF8E4M3,
                    .rows = rows,
                    .outputs = 200,
                    .cols = 1096,
                    .block_rows = 128,
                    .block_cols = 128,
                    .accumulate = true});
    list.push_back({.dtype = DType::kF8E4M3,
                    .rows = rows,
                    .outputs = 64,
                    .cols = 320,
                    .block_rows = 32,
                    .block_cols = 64,
                    .scale_dtype = DType::kF8E8M0});
  }
  // Scale blocks that do not divide a round number of columns, and one wider than any.
  for (const int32_t block_cols : {96, 384, 2048}) {
    list.push_back(
        {.dtype = DType::kF8E4M3, .rows = 40, .outputs = 37, .cols = 2110, .block_rows = 16, .block_cols = block_cols});
  }
  for (const Case& c : list) {
    // Panels are the driver's matter, the same for all; here they would take a minute.
    if (GetParam() == "linear.cpu.simple" && c.rows > 100) continue;
    Operands operands(c);
    run(operands);
    const std::vector<float> whole = operands.y;
    const auto equal = [&](const char* what) {
      EXPECT_EQ(std::memcmp(whole.data(), operands.y.data(), whole.size() * sizeof(float)), 0) << c.name() << what;
    };
    for (const int count : {1, 3}) {
      operands.y = operands.y_before;
      ThreadPool pool(count);
      HostContext context{pool};
      const LinearParams params = operands.params();
      linear_host({&params, 1}, context);
      equal(" threads");
    }
    for (const int64_t step : {1, 7, 16, 19}) {
      operands.y = operands.y_before;
      for (int64_t row = 0; row < c.rows; row += step) {
        LinearParams params = operands.params();
        params.rows = std::min(step, c.rows - row);
        params.x = borrow_fixed(static_cast<const float*>(operands.x.data() + row * operands.x_stride), 1);
        params.y = borrow_fixed(operands.y.data() + row * operands.y_stride, 1);
        run(params);
      }
      equal(" rows in chunks");
    }
    operands.y = operands.y_before;
    std::vector<int32_t> order(static_cast<size_t>(c.rows));
    for (int64_t r = 0; r < c.rows; ++r) order[static_cast<size_t>(r)] = static_cast<int32_t>((r * 29 + 3) % c.rows);
    LinearParams params = operands.params();
    params.x_rows = borrow_fixed(static_cast<const int32_t*>(order.data()), c.rows);
    std::vector<float> permuted(whole.size());
    for (int64_t r = 0; r < c.rows; ++r) {
      std::memcpy(permuted.data() + r * operands.y_stride,
                  operands.y_before.data() + order[static_cast<size_t>(r)] * operands.y_stride,
                  static_cast<size_t>(operands.y_stride) * sizeof(float));
    }
    params.y = borrow_fixed(permuted.data(), static_cast<int64_t>(permuted.size()));
    run(params);
    for (int64_t r = 0; r < c.rows; ++r) {
      EXPECT_EQ(std::memcmp(permuted.data() + r * operands.y_stride,
                            whole.data() + order[static_cast<size_t>(r)] * operands.y_stride,
                            static_cast<size_t>(c.outputs) * sizeof(float)),
                0)
          << c.name() << " permuted row " << r;
    }
  }
}

TEST_P(Linear, TasksOfDifferentKindsShareTheThreads) {
  std::vector<Operands> operands;
  for (uint32_t i = 0; i < 150; ++i) {  // more than one wave of tasks
    const DType dtype = i % 5 == 0 ? DType::kF32 : i % 2 == 0 ? DType::kBF16 : DType::kF8E4M3;
    Case c{.dtype = dtype, .rows = static_cast<int64_t>(i % 7), .outputs = 20 + static_cast<int64_t>(i), .cols = 100};
    if (i == 70) c.rows = 600;
    if (dtype == DType::kF8E4M3) c.block_rows = c.block_cols = 128;
    operands.emplace_back(c, i);
  }
  std::vector<LinearParams> tasks;
  tasks.reserve(operands.size());
  for (Operands& o : operands) tasks.push_back(o.params());
  linear_host(tasks, context_);
  for (const Operands& o : operands) EXPECT_LE(o.error(), tolerance(o.c)) << o.c.name();
}

TEST_P(Linear, NoRowsAndNoTasksDoNothing) {
  LinearParams params = Operands({}).params();
  params.rows = 0;
  params.x = {};
  params.y = {};
  run(params);
  linear_host({}, context_);
}

// Rows of the identity select single weights: one row at a time and all at once, tiles full and not.
TEST_P(Linear, EveryCodeOfE4m3IsExact) {
  for (const int64_t cols : {256, 250}) {
    Operands operands({.dtype = DType::kF8E4M3, .rows = cols, .outputs = 256, .cols = cols});
    const auto code = [](int64_t o, int64_t k) {
      const auto bits = static_cast<uint8_t>(o + k);
      return e4m3_t{(bits & 0x7f) == 0x7f ? uint8_t{0} : bits};  // NaN would spread to all products of its row
    };
    for (int64_t o = 0; o < 256; ++o) {
      for (int64_t k = 0; k < cols; ++k) {
        operands.weight[static_cast<size_t>(o * operands.row_bytes + k)] = std::byte{code(o, k).bits};
      }
    }
    for (int64_t r = 0; r < cols; ++r) {
      for (int64_t k = 0; k < cols; ++k) operands.x[static_cast<size_t>(r * operands.x_stride + k)] = r == k;
    }
    for (const int64_t step : {int64_t{1}, cols}) {
      operands.y = operands.y_before;
      for (int64_t row = 0; row < cols; row += step) {
        LinearParams params = operands.params();
        params.rows = step;
        params.x = borrow_fixed(static_cast<const float*>(operands.x.data() + row * operands.x_stride), 1);
        params.y = borrow_fixed(operands.y.data() + row * operands.y_stride, 1);
        run(params);
      }
      for (int64_t r = 0; r < cols; ++r) {
        for (int64_t o = 0; o < 256; ++o) {
          ASSERT_EQ(operands.y[static_cast<size_t>(r * operands.y_stride + o)], to_float(code(o, r)))
              << "code " << int{code(o, r).bits} << ", " << step << " rows at a time, " << cols << " columns";
        }
      }
    }
  }
}

// By few rows and many, in steps of whole tiles and in others; both codes of e4m3.
TEST_P(Linear, NotANumberStaysOne) {
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kF16, DType::kF32}) {
    for (const int64_t rows : {1, 20, 40}) {
      for (const int64_t cols : {200, 256}) {
        Operands operands({.dtype = dtype, .rows = rows, .outputs = 40, .cols = cols});
        const size_t element = dtype_bytes(dtype, 1);
        const auto at = [&](int64_t o, int64_t k) {
          return operands.weight.data() + o * operands.row_bytes + k * static_cast<int64_t>(element);
        };
        // All ones is NaN in each of these; 0x7f as well in e4m3.
        std::memset(at(3, 77), 0xff, element);
        std::memset(at(17, 140), 0xff, element);
        if (dtype == DType::kF8E4M3) *at(3, 77) = std::byte{0x7f};
        run(operands);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t o = 0; o < 40; ++o) {
            EXPECT_EQ(std::isnan(operands.y[static_cast<size_t>(r * operands.y_stride + o)]), o == 3 || o == 17)
                << to_string(dtype) << " output " << o << ", " << rows << " rows, " << cols << " columns";
          }
        }
      }
    }
  }
}

std::vector<std::string> built() {
  std::vector<std::string> names;
  for (const LinearImplementation& i : linear_host_implementations()) names.emplace_back(i.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Implementations, Linear, testing::ValuesIn(built()),
                         [](const auto& parameter) { return parameter.param.substr(parameter.param.rfind('.') + 1); });

TEST(LinearImplementations, EndAtOneThatTakesEverything) {
  const std::vector<std::string> names = runnable();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.back(), "linear.cpu.simple");
  EXPECT_EQ(linear_host_implementation(), names.front());
}

// What --explain-dispatch says of a weight is what runs.
TEST(LinearImplementations, AreConsideredAsTheyAreChosen) {
  Operands plain({.dtype = DType::kF32, .outputs = 3, .cols = 7});
  Operands rounded({.dtype = DType::kBF16, .outputs = 32, .cols = 64});
  for (const std::string& forced : runnable()) {
    ASSERT_TRUE(force_linear_host_implementation(forced).ok());
    for (Operands* operands : {&plain, &rounded}) {
      for (const LinearInput input : {LinearInput::kRounded, LinearInput::kExact}) {
        const std::vector<Considered> all = consider_linear_host(operands->params().weight, input);
        ASSERT_EQ(all.size(), linear_host_implementations().size());
        const auto chosen = std::ranges::find_if(all, [](const Considered& c) { return !c.refusal; });
        ASSERT_NE(chosen, all.end());
        EXPECT_FALSE(all.back().refusal);
        // Units of matrix products round x, and read no f32.
        const bool in_float = input == LinearInput::kExact || operands == &plain;
        const bool begins_later = forced == "linear.cpu.simple";
        EXPECT_EQ(chosen->name, in_float && !begins_later ? "linear.cpu.highway" : forced);
        for (auto before = all.begin(); before != chosen; ++before) EXPECT_STRNE(before->refusal.reason, "");
      }
    }
  }
  ASSERT_TRUE(force_linear_host_implementation("").ok());
}

TEST(LinearImplementations, RefuseUnknownNames) {
  const Status status = force_linear_host_implementation("fastest");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(status.error().message().find("linear.cpu.simple"), std::string::npos);
  EXPECT_STREQ(linear_host_implementation(), runnable().front().c_str());
}

TEST(QuantizedMatrixTest, ReadsElementsAndCountsBytes) {
  for (const DType scale_dtype : {DType::kF32, DType::kF8E8M0}) {
    Operands operands({.dtype = DType::kF8E4M3,
                       .outputs = 130,
                       .cols = 200,
                       .block_rows = 128,
                       .block_cols = 128,
                       .scale_dtype = scale_dtype,
                       .global_scale = 0.5f,
                       .row_padding = 3,
                       .scale_padding = 2});
    const QuantizedMatrix w = operands.params().weight;
    for (const int64_t i : {0, 127, 128, 129}) {
      for (const int64_t j : {0, 127, 128, 199}) {
        EXPECT_NEAR(dequantized(w, i, j), operands.weight_value(i, j), 1e-6 * std::abs(operands.weight_value(i, j)));
      }
    }
    EXPECT_EQ(matrix_bytes(w), 130 * 200 + 4 * (scale_dtype == DType::kF32 ? 4 : 1));
  }
  Operands half({.dtype = DType::kF16, .outputs = 3, .cols = 7});
  EXPECT_EQ(matrix_bytes(half.params().weight), 42);
  EXPECT_EQ(static_cast<double>(dequantized(half.params().weight, 2, 6)), half.weight_value(2, 6));
  EXPECT_EQ(block_scale(half.params().weight, 0, 0), 1.0f);
}

}  // namespace
}  // namespace lantern
