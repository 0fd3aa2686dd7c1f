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
  explicit LoadedCase(std::string_view name, int shards = 1, int threads = 2);
  LoadedCase(std::string_view name, int shards, std::unique_ptr<Device> device);

  const GoldenCase& golden() const { return golden_; }
  // Caches that store values unrounded, or latents in bf16 where the golden rounds them so.
  RunOptions golden_options() const;
  // `change` alters the configuration after reading, to make a known mistake. Null, with a test failure that says why,
  // when anything is refused.
  std::unique_ptr<ModelRun> make_run(const RunOptions& options,
                                     const std::function<void(ModelConfig&)>& change = nullptr);
  std::unique_ptr<ModelRun> make_run() { return make_run(golden_options()); }

 private:
  GoldenCase golden_;
  TemporaryCheckpoint checkpoint_;
  std::unique_ptr<Device> device_;
};

}  // namespace lantern::golden
