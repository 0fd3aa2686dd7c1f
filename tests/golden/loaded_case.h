// A golden case as a checkpoint on disk, read by the engine's own config reader and weight loader.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "golden/golden_case.h"
#include "golden/model_run.h"

namespace lantern::golden {

class LoadedCase {
 public:
  LoadedCase(std::string_view name, int shards);

  const GoldenCase& golden() const { return golden_; }
  // A model that stores caches unrounded, or latents in bf16 where the golden does. `change` alters the configuration
  // after reading, to make a known mistake. Null, with a test failure that says why, when anything is refused.
  std::unique_ptr<ModelRun> make_run(const std::function<void(ModelConfig&)>& change = nullptr,
                                     IndexSelectParams::Mode index_mode = IndexSelectParams::Mode::kScore);

 private:
  GoldenCase golden_;
  TemporaryCheckpoint checkpoint_;
  std::unique_ptr<Device> device_;
};

}  // namespace lantern::golden
