// How a run is held against a golden case, and by which tolerances.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "golden/golden_case.h"
#include "golden/model_run.h"

namespace lantern::golden {

// Differences are relative to the largest |value| of the compared golden tensor.
struct Tolerance {
  // Two float32 implementations differ by about 2e-6 here (the goldens record 1e-6 against a float64 run); 1e-4 leaves
  // room for other summation orders. The smallest known mistake moves logits by 50 times as much (trap_margins).
  // With inputs of matrix products rounded to bf16, a difference of 1e-6 can move a value across a rounding boundary,
  // worth 2^-9 of it; over three random layers such flips grow to 8e-3 between two correct runs, 1e-3 on average,
  // while a run that does not round is 5e-3 off on average.
  // On CUDA attention rounds its queries and weights to bf16 as well: twice as much.
  double max = 1e-4;
  double mean = 1e-5;
  // A discrete choice may differ where the scores on both sides of the boundary lie closer than this (router: absolute,
  // scores are in [0, 1]; indexer: relative to the largest score). Goldens are made so that exact runs never use it.
  double choice_gap = 1e-5;
  // Part of the positions that may be set aside because of such a choice.
  double max_undecided = 0;
};
Tolerance tolerance_of(const GoldenCase& golden, DeviceKind device = DeviceKind::kCpu);

struct Comparison {
  std::vector<std::string> problems;  // empty: equal within tolerance
  double logits_error = 0;            // largest difference of a logit, in units of the tolerance's scale (relative)
  double logits_mean = 0;
  double hidden_error = 0;
  int undecided = 0;  // positions set aside
  int positions = 0;

  std::string summary() const;
};

// Everything the case holds about one sequence: choices first, then values at positions whose choices were the same.
Comparison compare_sequence(const GoldenCase& golden, int sequence, const SequenceCapture& got);
// The same for the MTP layer (names "mtp.*").
Comparison compare_mtp(const GoldenCase& golden, int sequence, const SequenceCapture& got);

// Largest and mean difference of rows `positions` of `got` to the golden's rows, relative; rows in `skip` left out.
struct Difference {
  double max = 0;
  double mean = 0;
  int32_t worst_position = -1;
};
Difference difference(const Matrix& got, const GoldenTensor& want, const std::vector<int32_t>& positions,
                      const std::set<int32_t>& skip);

}  // namespace lantern::golden
