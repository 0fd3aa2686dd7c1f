#include "engine/load_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/log.h"
#include "device/memory_room.h"
#include "engine/measure_step_cost.h"
#include "engine/model_executor.h"
#include "engine/model_setup.h"
#include "engine/selection_tracer.h"
#include "engine/session.h"
#include "model/model_memory.h"

namespace lantern {
namespace {

constexpr int32_t kBlockSize = 64;  // tokens
constexpr int32_t kDefaultStepTokens = 512;

constexpr int32_t kMostRanks = 64;

// What the executors need and do not own, in the order in which it must go; by rank.
struct ModelsOnDevices {
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Model>> models;
};

Status at_least_one(const char* name, int32_t value) {
  if (value >= 1) return {};
  return Error(ErrorCode::kInvalidArgument, fmt::format("{} is {}; set it to at least 1", name, value));
}

Status check_counts(const EngineOptions& options) {
  RETURN_IF_ERROR(at_least_one("max_num_seqs", options.max_num_seqs));
  RETURN_IF_ERROR(at_least_one("max_queued", options.max_queued));
  if (options.data_parallel_size < 1 || options.data_parallel_size > kMostRanks) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("data_parallel_size is {}; set it to 1 up to {}", options.data_parallel_size, kMostRanks));
  }
  if (options.num_draft_tokens < 0 || options.num_draft_tokens > static_cast<int32_t>(EngineReport::kMaxDrafts)) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("{} draft tokens are outside [0, {}]",
                                                          options.num_draft_tokens, EngineReport::kMaxDrafts));
  }
  if (options.max_num_batched_tokens < 0 || options.kv_cache_bytes < 0) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("max_num_batched_tokens is {} and kv_cache_bytes {}; neither may be below 0",
                             options.max_num_batched_tokens, options.kv_cache_bytes));
  }
  return {};
}

Result<int32_t> choose_context(const ModelConfig& config, int32_t asked) {
  if (asked < 0 || asked > config.max_position_embeddings) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("max_model_len {} is outside [1, {}], the context that the model's config gives", asked,
                             config.max_position_embeddings));
  }
  return asked > 0 ? asked : std::min(config.max_position_embeddings, kDefaultMaxModelLen);
}

// How many blocks the caches have, the null block included.
Result<int32_t> choose_num_blocks(const EngineOptions& options, int64_t block_bytes, int32_t blocks_per_context,
                                  int64_t free_bytes) {
  const bool asked = options.kv_cache_bytes > 0;
  const int64_t bytes = (asked ? options.kv_cache_bytes : free_bytes / 2) / options.data_parallel_size;
  constexpr int64_t kMostBlocks = INT32_MAX / kBlockSize - 1;  // beside the null block
  const int64_t wanted = std::min(int64_t{options.max_num_seqs} * blocks_per_context, kMostBlocks);
  const int64_t blocks = asked ? bytes / block_bytes : std::min(bytes / block_bytes, wanted);
  if (blocks > kMostBlocks) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} bytes hold {} blocks of {} tokens, but tokens in the caches are numbered up to {}; "
                             "lower kv_cache_bytes",
                             bytes, blocks, kBlockSize, INT32_MAX));
  }
  if (blocks < blocks_per_context) {
    return Error(
        ErrorCode::kOutOfMemory,
        fmt::format("one context takes {} blocks of {} bytes in the caches and {} bytes{} hold {}; lower "
                    "max_model_len or {}",
                    blocks_per_context, block_bytes, bytes, options.data_parallel_size > 1 ? " for each rank" : "",
                    blocks, asked ? "raise kv_cache_bytes" : "free some memory"));
  }
  return static_cast<int32_t>(blocks) + 1;
}

Result<EngineSettings> choose_settings(const EngineOptions& options, const ModelConfig& config,
                                       const KvCacheLayouts& layouts, int64_t free_bytes) {
  EngineSettings settings;
  StepLimits& limits = settings.limits;
  ASSIGN_OR_RETURN(limits.max_model_len, choose_context(config, options.max_model_len));
  limits.block_size = kBlockSize;
  limits.max_blocks_per_request = (limits.max_model_len + kBlockSize - 1) / kBlockSize;
  limits.max_requests = options.max_num_seqs;
  limits.max_query_len = 1 + options.num_draft_tokens;
  limits.index_topk = config.has_indexer() ? config.index_topk : 0;
  const int64_t for_drafts = limits.max_sample_rows();
  const int64_t step_tokens = options.max_num_batched_tokens > 0 ? options.max_num_batched_tokens
                                                                 : std::max<int64_t>(kDefaultStepTokens, for_drafts);
  if (step_tokens < for_drafts || step_tokens > INT32_MAX) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("max_num_batched_tokens is {}, and a step of max_num_seqs {} with {} draft tokens each has "
                    "{}; raise the first or lower the others",
                    step_tokens, options.max_num_seqs, options.num_draft_tokens, for_drafts));
  }
  limits.max_tokens = static_cast<int32_t>(step_tokens);
  const int64_t block_bytes = kv_bytes_per_token(config, layouts, kBlockSize) * kBlockSize;
  ASSIGN_OR_RETURN(limits.num_blocks,
                   choose_num_blocks(options, block_bytes, limits.max_blocks_per_request, free_bytes));
  settings.max_queued = options.max_queued;
  settings.prefix_caching = options.prefix_caching;
  settings.adaptive_drafts = options.adaptive_drafts;
  settings.max_logprobs = options.max_logprobs;
  const auto most_rows = static_cast<int32_t>(std::min<int64_t>(limits.max_sample_rows(), INT32_MAX));
  settings.max_traced_rows = config.has_indexer() ? std::min(options.max_traced_rows, most_rows) : 0;
  settings.vocab_size = config.vocab_size;
  return EngineSettings::checked(settings);
}

// What grows with the settings, of all ranks, before anything of it is allocated: on a CPU they share the memory.
Status check_settings_fit(const Device& device, const ModelConfig& config, const EngineSettings& settings,
                          const ModelOptions& options, int32_t ranks) {
  const StepLimits& limits = settings.limits;
  const ModelMemory model = model_memory(config, options, device.worker_count());
  const int64_t texts = int64_t{limits.max_requests} * limits.max_model_len * int64_t{sizeof(int32_t)};
  const std::array needs = {MemoryNeed{"the caches", ranks * model.caches},
                            MemoryNeed{"a step's activations", ranks * model.activations},
                            MemoryNeed{fmt::format("the tokens of {} sequences", limits.max_requests), ranks * texts}};
  return check_room(device, needs, "lower kv_cache_bytes, max_num_seqs, max_num_batched_tokens or max_model_len");
}

struct LoadedWeights {
  ModelConfig config;
  std::unique_ptr<WeightStore> weights;
};

Result<LoadedWeights> load_model_weights(const EngineOptions& options, Drafter drafter, Device& device) {
  LoadedWeights loaded;
  const MtpLayers mtp =
      options.num_draft_tokens > 0 && drafter != Drafter::kNgram ? MtpLayers::kKeep : MtpLayers::kDrop;
  if (options.dummy.empty()) {
    ASSIGN_OR_RETURN(loaded.config, load_model_config(options.model_dir, {.strict = options.strict_config}));
    RETURN_IF_ERROR(keep_layers(loaded.config, 0, mtp));
    ASSIGN_OR_RETURN(loaded.weights, load_weights(options.model_dir, loaded.config, device));
    return loaded;
  }
  ASSIGN_OR_RETURN(const std::string json, builtin_config_json(options.dummy));
  ASSIGN_OR_RETURN(loaded.config, parse_model_config(json, {}));
  RETURN_IF_ERROR(keep_layers(loaded.config, options.layers, mtp));
  ASSIGN_OR_RETURN(loaded.weights, make_dummy_weights(loaded.config, options.dummy_format, 0, device));
  return loaded;
}

// A device for each rank, with its share of the threads: a pool of threads serves one caller at a time.
Result<std::vector<std::unique_ptr<Device>>> make_devices(const EngineOptions& options) {
  std::vector<std::unique_ptr<Device>> devices;
  const int32_t ranks = options.data_parallel_size;
  const int32_t all = ranks > 1 && options.threads == 0 ? usable_cores() : options.threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const int32_t share = ranks == 1 ? all : std::max((all + rank) / ranks, 1);
    // Ranks share weights in main memory.
    const std::string name = ranks > 1 && options.device == "auto" ? "cpu" : options.device;
    ASSIGN_OR_RETURN(std::unique_ptr<Device> device, make_device(name, share));
    if (ranks > 1 && device->kind() != DeviceKind::kCpu) {
      return Error(
          ErrorCode::kUnsupported,
          fmt::format("data_parallel_size is {}, and ranks share weights in main memory; set device to cpu, or "
                      "data_parallel_size to 1",
                      ranks));
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

Result<LoadedEngine> load_engine(const EngineOptions& options) {
  RETURN_IF_ERROR(check_counts(options));
  ASSIGN_OR_RETURN(const Drafter drafter, parse_drafter(options.drafter));
  LoadedEngine loaded;
  if (options.dummy.empty()) {
    if (options.model_dir.empty()) return Error(ErrorCode::kInvalidArgument, "no model directory was given");
    ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::load(options.model_dir));
    loaded.tokenizer = std::make_shared<const Tokenizer>(std::move(tokenizer));
  }
  const auto owned = std::make_shared<ModelsOnDevices>();
  ASSIGN_OR_RETURN(owned->devices, make_devices(options));
  Device& device = *owned->devices.front();
  ASSIGN_OR_RETURN(const GraphMode graphs, parse_graph_mode(options.graphs, device.kind()));
  ASSIGN_OR_RETURN(LoadedWeights weights, load_model_weights(options, drafter, device));
  ASSIGN_OR_RETURN(const KvCacheLayouts layouts, parse_kv_cache_dtype(options.kv_cache_dtype, weights.config));
  loaded.weight_bytes = weights.weights->weights().total_bytes();
  loaded.kv_bytes_per_token = kv_bytes_per_token(weights.config, layouts, kBlockSize);
  loaded.device = device.description();
  // Mapped weights count as free memory, but every step wants them.
  const bool mapped = options.dummy.empty() && device.kind() == DeviceKind::kCpu;
  const auto free_bytes = static_cast<int64_t>(device.available_bytes()) - (mapped ? loaded.weight_bytes : 0);
  ASSIGN_OR_RETURN(EngineSettings settings,
                   choose_settings(options, weights.config, layouts, std::max<int64_t>(free_bytes, 0)));

  if (settings.max_traced_rows > 0) {
    ASSIGN_OR_RETURN(loaded.traced_layer, choose_traced_layer(weights.config, options.traced_layer));
  }
  ModelOptions model_options = model_options_for(settings, layouts);
  model_options.mla_form = options.mla_form;
  RETURN_IF_ERROR(check_settings_fit(device, weights.config, settings, model_options, options.data_parallel_size));

  // So far the first device holds the weights and nothing else; recorded launches of the others may read them too.
  for (size_t rank = 1; rank < owned->devices.size(); ++rank) register_weights_of(device, *owned->devices[rank]);
  const std::shared_ptr<const WeightStore> shared_weights = std::move(weights.weights);
  const HashKey hash_key = HashKey::random();
  std::vector<Engine::Parts> ranks(owned->devices.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    Device& own = *owned->devices[rank];
    ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::create(own, weights.config, shared_weights, model_options));
    owned->models.push_back(std::move(model));
    // Once for all ranks, which must decide alike.
    if (rank == 0 && options.adaptive_drafts && options.num_draft_tokens > 0) {
      const Model& first = *owned->models.front();
      const bool mtp = drafter == Drafter::kMtp || (drafter == Drafter::kAuto && first.has_mtp());
      ASSIGN_OR_RETURN(settings.step_cost, measure_step_cost(own, first, settings, mtp));
      const StepCost& cost = settings.step_cost;
      log_debug("a step of 1 token takes {:.3f} ms, one of {} {:.3f} ms; the drafter's layer {:.3f} and {:.3f} ms",
                1e3 * cost.step.at(1), options.max_num_seqs, 1e3 * cost.step.at(options.max_num_seqs),
                1e3 * cost.draft_layer.at(1), 1e3 * cost.draft_layer.at(options.max_num_seqs));
    }
    const ExecutorHooks hooks = rank < options.hooks.size() ? options.hooks[rank] : ExecutorHooks{};
    Engine::Parts& parts = ranks[rank];
    ASSIGN_OR_RETURN(parts.executor, make_model_executor(own, *owned->models.back(), settings,
                                                         {.drafter = drafter,
                                                          .synthetic_acceptance = options.synthetic_acceptance,
                                                          .count_experts = options.count_experts,
                                                          .traced_layer = loaded.traced_layer,
                                                          .graphs = graphs},
                                                         &loaded.graphs));
    if (hooks.wrap) parts.executor = hooks.wrap(std::move(parts.executor));
    own.seal();
    parts.settings = settings;
    parts.tokenizer = loaded.tokenizer;
    parts.vocab_size = weights.config.vocab_size;
    parts.eos_token_ids = weights.config.eos_token_ids;
    parts.hash_key = hash_key;
    parts.keep_alive = owned;
  }
  if (loaded.graphs.num_graphs > 0) {
    log_info("captured {} graphs ({}) in {:.2f} s on each rank; they take {:.1f} MB: {}", loaded.graphs.num_graphs,
             to_string(loaded.graphs.mode), loaded.graphs.seconds, static_cast<double>(loaded.graphs.bytes) / 1e6,
             loaded.graphs.buckets);
  }
  loaded.memory = device.ledger().table();
  Model& first = *owned->models.front();
  loaded.model = std::shared_ptr<Model>(owned, &first);
  loaded.config = std::shared_ptr<const ModelConfig>(owned, &first.config());
  ASSIGN_OR_RETURN(loaded.engine, Engine::create(std::move(ranks)));
  return loaded;
}

}  // namespace lantern
