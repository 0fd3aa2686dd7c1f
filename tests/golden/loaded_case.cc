#include "golden/loaded_case.h"

#include <gtest/gtest.h>

namespace lantern::golden {

LoadedCase::LoadedCase(std::string_view name, int shards)
    : golden_(load_golden_case(name)), checkpoint_(golden_, shards), device_(make_host_device(2)) {}

std::unique_ptr<ModelRun> LoadedCase::make_run(const std::function<void(ModelConfig&)>& change,
                                               IndexSelectParams::Mode index_mode) {
  // Strict: the configs carry what published files carry, and every field of it must be known.
  auto config = load_model_config(checkpoint_.dir(), {.strict = true});
  if (!config.ok()) {
    ADD_FAILURE() << golden_.name << ": " << config.error().message();
    return nullptr;
  }
  if (change) change(*config);
  auto weights = load_weights(checkpoint_.dir(), *config, *device_);
  if (!weights.ok()) {
    ADD_FAILURE() << golden_.name << ": " << weights.error().message();
    return nullptr;
  }
  const KvCacheLayouts layouts{golden_.rounded() ? LatentLayout::kBf16 : LatentLayout::kF32, IndexKeyLayout::kF32};
  auto run = ModelRun::create(*device_, std::move(config).value(), std::move(weights).value(), layouts, index_mode);
  if (!run.ok()) {
    ADD_FAILURE() << golden_.name << ": " << run.error().message();
    return nullptr;
  }
  return std::move(run).value();
}

}  // namespace lantern::golden
