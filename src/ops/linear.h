// y[r, :] = W x[r, :] for every row r: the one dense product of the engine.
//
// Contract of every implementation:
// - The value of y[r, o] depends on row r of x and on W alone, bit by bit: not on the number of rows, their order, the
//   number of threads, or which rows travel together. K is reduced in one fixed order per output.
// - LinearInput::kRounded: with a bf16 or FP8 weight, x is rounded to bf16 (nearest even) first, as the matrix units
//   do; products are exact and accumulated in float. FP8 with block scales: one partial sum per block of block_cols
//   columns, multiplied by the block's scale and added in column order (on CUDA in runs of blocks, then the runs).
// - LinearInput::kExact: x stays float (router, indexer head weights). Used for small matrices only.
// - f32 and f16 weights always use x as float.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/fixed.h"
#include "device/row_count.h"
#include "device/stream.h"
#include "ops/quantized_matrix.h"

namespace lantern {

enum class LinearInput : uint8_t { kRounded, kExact };

struct LinearParams {
  DevPtr<const float> x;         // [>= rows, cols], row r at x + x_row(r) * x_stride
  int64_t x_stride = 0;          // elements
  DevPtr<const int32_t> x_rows;  // optional [rows]: x_row(r) = x_rows[r]; null: x_row(r) = r
  DevPtr<float> y;               // [rows, weight.rows], row r at y + r * y_stride
  int64_t y_stride = 0;          // elements
  int64_t rows = 0;              // 0 is allowed: nothing is done
  RowCount real_rows = {};       // of these
  QuantizedMatrix weight;
  LinearInput input = LinearInput::kRounded;
  bool accumulate = false;    // y += instead of y =
  DevPtr<std::byte> scratch;  // linear_scratch_bytes() for these sizes; contents undefined before and after
  int64_t scratch_bytes = 0;
};

// Scratch that any LinearParams with at most these rows and input features needs on this machine.
int64_t linear_scratch_bytes(int64_t max_rows, int64_t max_cols);

void linear(Stream& stream, const LinearParams& params);

// The host kernel itself, for host kernels of other operators. `tasks` are independent of each other (disjoint y) and
// share their threads; each brings scratch of its own.
void linear_host(std::span<const LinearParams> tasks, HostContext& context);

// What this machine will run, e.g. "linear.cpu.amx_bf16": for `lantern doctor`. Weights that it refuses (f32 and f16,
// kExact, unusual scale blocks) go to the next of the list that takes them (host_choice.h); all end at
// "linear.cpu.simple".
const char* linear_host_implementation();

struct LinearImplementation {
  const char* name;
  const char* missing;  // why this machine cannot run it; null: it can
};
// Every implementation that was built, best first.
std::vector<LinearImplementation> linear_host_implementations();
// From now on the list begins at `name`; "" puts the choice back to the best that the machine can run. Not while a
// product runs: meant for start-up and tests. not_found for an unknown name, unsupported when the machine lacks it.
Status force_linear_host_implementation(std::string_view name);

}  // namespace lantern
