#include "emulated_plan.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "attention/plan/plan_rows_kernel.h"
#include "attention/plan/plan_schedules_kernel.h"

namespace lantern::test {
namespace {

template <class F>
void each_block(int32_t blocks, BlockOrder order, const F& f) {
  for (int32_t i = 0; i < blocks; ++i) f(HostBlock(order == BlockOrder::kForwards ? i : blocks - 1 - i, order));
}

}  // namespace

void emulate_plan_kernels(const StepPlanParams& params, BlockOrder order) {
  const plan::RowsGrid grid = plan::rows_grid(params.bucket);
  each_block(grid.row_blocks + grid.tile_blocks, order,
             [&](HostBlock block) { plan::RowsKernel<HostBlock>(block, params).run(); });
  const auto shared = std::make_unique<plan::SchedulesShared>();
  each_block(plan::schedule_blocks(params), order, [&](HostBlock block) {
    std::memset(shared.get(), 0x7f, sizeof(*shared));
    plan::SchedulesKernel<HostBlock>(block, *shared, params).run();
  });
}

}  // namespace lantern::test
