#include "plan_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/check.h"
#include "emulated_plan.h"

namespace lantern::test {

PlanCase make_case(const Ints& seq_lens, const Ints& query_lens, int32_t max_query_len, int32_t block_size) {
  CHECK(seq_lens.size() == query_lens.size(), "{} lengths and {} query lengths", seq_lens.size(), query_lens.size());
  PlanCase c;
  c.num_requests = static_cast<int32_t>(seq_lens.size());
  c.query_start_loc = {0};
  c.seq_lens = seq_lens;
  c.block_table.emplace_back();
  int32_t block = 1, widest_row = 1, longest = 1;
  for (size_t b = 0; b < seq_lens.size(); ++b) {
    c.query_start_loc.push_back(c.query_start_loc.back() + query_lens[b]);
    Ints& row = c.block_table[0].emplace_back();
    for (int32_t at = 0; at < seq_lens[b]; at += block_size) row.push_back(block++);
    widest_row = std::max(widest_row, static_cast<int32_t>(row.size()));
    longest = std::max(longest, seq_lens[b]);
  }
  c.num_tokens = c.query_start_loc.back();
  StepLimits& limits = c.config.limits;
  limits.max_requests = std::max(c.num_requests, 1);
  limits.max_query_len = max_query_len;
  limits.max_tokens = std::max(c.num_tokens, limits.max_requests * max_query_len);
  limits.block_size = block_size;
  limits.max_blocks_per_request = widest_row;
  limits.num_blocks = block;
  limits.max_model_len = longest;
  return c;
}

namespace {

// The memory of a plan's outputs, and what lies between them.
class PlanMemory {
 public:
  explicit PlanMemory(Device& device) : device_(device) {
    for (const MemoryLedger::Entry& entry : device.ledger().entries()) {
      if (entry.owner != "step plan") continue;
      begin_ = const_cast<std::byte*>(entry.begin);
      ints_ = entry.bytes / sizeof(int32_t);
    }
    CHECK(begin_ != nullptr, "the ledger knows no step plan");
  }
  Ints read() const {
    Ints values(ints_);
    device_.copy_to_host(values.data(), begin_, ints_ * sizeof(int32_t));
    return values;
  }
  void write(const Ints& values) const {
    device_.copy_to_device(begin_, values.data(), values.size() * sizeof(int32_t));
  }

 private:
  Device& device_;
  std::byte* begin_ = nullptr;
  size_t ints_ = 0;
};

void expect_same(const char* implementation, const Ints& got, const Ints& want) {
  const auto [at, in_want] = std::mismatch(got.begin(), got.end(), want.begin(), want.end());
  if (at == got.end() && in_want == want.end()) return;
  throw std::runtime_error(fmt::format("{} left {} at word {} of the plan's memory where the host left {}",
                                       implementation, *at, at - got.begin(), *in_want));
}

}  // namespace

PlanResult run_plan(const PlanCase& plan_case) {
  Ints want;
  const auto host_and_emulated = [&want](Stream& stream, const StepPlanParams& params) {
    const PlanMemory memory(stream.device());
    const Ints before = memory.read();
    plan_step(stream, params);
    want = memory.read();
    for (const BlockOrder order : {BlockOrder::kForwards, BlockOrder::kBackwards, BlockOrder::kStrides}) {
      memory.write(before);
      emulate_plan_kernels(params, order);
      expect_same("the emulated kernel", memory.read(), want);
    }
  };
  const std::unique_ptr<Device> device = make_host_device(1);
  Result<PlanResult> result = replay_plan(*device, plan_case, host_and_emulated);
  CHECK(result.ok(), "{}", result.error().message());
  if (Device* gpu = gpu_device()) {
    const Result<PlanResult> on_gpu =
        replay_plan(*gpu, plan_case, [&want](Stream& stream, const StepPlanParams& params) {
          plan_step(stream, params);
          stream.synchronize();
          expect_same("the GPU", PlanMemory(stream.device()).read(), want);
        });
    CHECK(on_gpu.ok(), "{}", on_gpu.error().message());
  }
  return std::move(result).value();
}

Device* gpu_device() {
  static const std::unique_ptr<Device> device = [] {
    Result<std::unique_ptr<Device>> made = make_cuda_device();
    if (made.ok()) return std::move(made).value();
    fmt::print("plans are not compared with a GPU's: {}\n", made.error().message());
    return std::unique_ptr<Device>();
  }();
  return device.get();
}

PlanResult run_poisoned(PlanCase plan_case) {
  plan_case.poison = true;
  return run_plan(plan_case);
}

std::vector<std::pair<int32_t, PlanFault>> faults(const PlanResult& result) {
  std::vector<std::pair<int32_t, PlanFault>> list;
  list.reserve(result.errors.size());
  for (const PlanResult::Fault& error : result.errors) list.emplace_back(error.request, error.fault);
  return list;
}

}  // namespace lantern::test
