// An engine on a model: what a model directory (or the shapes of a public model) and settings make.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/step_graphs.h"
#include "model/model.h"

namespace lantern {

// For benchmarks: what is put around a rank's executor.
struct ExecutorHooks {
  std::function<std::unique_ptr<Executor>(std::unique_ptr<Executor>)> wrap = {};
};

struct EngineOptions {
  std::filesystem::path model_dir = {};
  // Instead of a directory: random weights with the shapes of a public model, its first `layers` layers (0: all).
  std::string dummy = {};
  int32_t layers = 0;
  DummyFormat dummy_format = DummyFormat::kBf16;

  std::string device = "auto";          // cpu, cuda, auto
  int32_t threads = 0;                  // of all ranks together; 0: every usable core
  std::string kv_cache_dtype = "auto";  // auto, bf16, fp8, f32
  bool strict_config = false;

  // Engines in step, which share the weights (data_parallel.h). What follows is for each of them, but for the memory of
  // the caches, which is for all.
  int32_t data_parallel_size = 1;
  int32_t max_model_len = 0;           // 0: the model's own context, at most kDefaultMaxModelLen
  int32_t max_num_seqs = 64;           // sequences that run at a time
  int32_t max_num_batched_tokens = 0;  // of a step; 0: 512, or what drafts for every sequence need
  int32_t num_draft_tokens = 0;        // for each sequence and step, at most; outputs are the same
  std::string drafter = "auto";        // auto, mtp, ngram: see Drafter
  double synthetic_acceptance = -1;    // model_executor.h
  bool adaptive_drafts = true;
  // Of the caches of all sequences. 0: full contexts for max_num_seqs, in half of the memory that is free after
  // loading.
  int64_t kv_cache_bytes = 0;
  int32_t max_queued = 10000;
  bool prefix_caching = true;
  int32_t max_logprobs = 20;  // as EngineSettings has it
  // As EngineSettings has it, and which layer's selections; -1: the last that makes one. None of a model without sparse
  // attention.
  int32_t max_traced_rows = 0;
  int32_t traced_layer = -1;

  MlaForm mla_form = MlaForm::kAuto;
  std::string graphs = "auto";  // see parse_graph_mode()

  bool count_experts = false;             // ModelExecutorOptions::count_experts
  std::vector<ExecutorHooks> hooks = {};  // by rank; where there are fewer, the rest has none
};

struct LoadedEngine {
  std::shared_ptr<const Tokenizer> tokenizer;  // null for a dummy
  std::shared_ptr<const ModelConfig> config;
  std::string device;              // description; of the first rank's
  int64_t weight_bytes = 0;        // of the model
  int64_t kv_bytes_per_token = 0;  // in all caches
  std::string memory;              // what the first rank's device holds, as a table (MemoryLedger::table)
  GraphReport graphs;              // of each rank
  int32_t traced_layer = -1;       // whose selections requests may trace; -1: none
  std::shared_ptr<Model> model;    // of the first rank; its weights and caches are the engine's
  std::unique_ptr<Engine> engine;
};

// Errors: everything that can be wrong with a checkpoint or an option, and out_of_memory with numbers.
Result<LoadedEngine> load_engine(const EngineOptions& options);

}  // namespace lantern
