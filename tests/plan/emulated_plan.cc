#include "emulated_plan.h"

#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "attention/plan/plan_rows_kernel.h"
#include "attention/plan/plan_schedules_kernel.h"

namespace lantern::test {
namespace {

int32_t nth_block(int32_t i, int32_t blocks, BlockOrder order) {
  return order == BlockOrder::kForwards ? i : blocks - 1 - i;
}

void emulate_rows(const StepPlanParams& params, const plan::PlanLaunch& launch, BlockOrder order) {
  const int32_t blocks = launch.rows.row_blocks + launch.rows.tile_blocks;
  for (int32_t i = 0; i < blocks; ++i) {
    HostBlock block(nth_block(i, blocks, order), order);
    plan::RowsKernel<HostBlock>(block, params, launch).run();
  }
}

// The first block, each time another, comes as far as it can before the first kernel runs; the others find that it has.
template <class Int>
void emulate(const StepPlanParams& params, const plan::PlanLaunch& launch, BlockOrder order) {
  bool rows_ran = false;
  const std::function<void()> rows = [&] {
    if (!std::exchange(rows_ran, true)) emulate_rows(params, launch, order);
  };
  const auto shared = std::make_unique<plan::SchedulesShared<Int>>();
  for (int32_t i = 0; i < launch.num_lists; ++i) {
    const int32_t index = (nth_block(i, launch.num_lists, order) + params.bucket.tokens) % launch.num_lists;
    HostBlock block(index, order, &rows);
    std::memset(shared.get(), 0x7f, sizeof(*shared));
    plan::SchedulesKernel<HostBlock, Int>(block, *shared, params, launch).run();
  }
}

}  // namespace

void emulate_plan_kernels(const StepPlanParams& params, BlockOrder order) {
  const plan::PlanLaunch launch(params);
  // In one order with the wide integers, whatever the batch, so that both are seen to do.
  if (launch.int32_schedules && order != BlockOrder::kStrides) {
    emulate<int32_t>(params, launch, order);
  } else {
    emulate<int64_t>(params, launch, order);
  }
}

}  // namespace lantern::test
