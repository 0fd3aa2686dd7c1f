#include "golden/loaded_case.h"

#include <gtest/gtest.h>

namespace lantern::golden {

LoadedCase::LoadedCase(std::string_view name, int shards, int threads)
    : LoadedCase(name, shards, make_host_device(threads)) {}

LoadedCase::LoadedCase(std::string_view name, int shards, std::unique_ptr<Device> device)
    : golden_(load_golden_case(name)), checkpoint_(golden_, shards), device_(std::move(device)) {}

RunOptions LoadedCase::golden_options() const {
  RunOptions options;
  if (golden_.rounded()) options.layouts.latent = LatentLayout::kBf16;
  return options;
}

std::unique_ptr<ModelRun> LoadedCase::make_run(const RunOptions& options,
                                               const std::function<void(ModelConfig&)>& change) {
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
  auto run = ModelRun::create(*device_, std::move(config).value(), std::move(weights).value(), options);
  if (!run.ok()) {
    ADD_FAILURE() << golden_.name << ": " << run.error().message();
    return nullptr;
  }
  return std::move(run).value();
}

}  // namespace lantern::golden
