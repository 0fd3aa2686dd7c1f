#include "engine/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "attention/plan/step_limits.h"
#include "base/log.h"
#include "engine/model_setup.h"
#include "engine/speculative_run.h"
#include "engine/step_buffers.h"
#include "model/config.h"

namespace lantern {
namespace {

constexpr int32_t kBlockSize = 64;
constexpr int32_t kMostMaxModelLen = INT32_MAX / kBlockSize * kBlockSize - kBlockSize;
constexpr int32_t kSampleRows = 32;  // rows of logits at once while scoring

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<int32_t> choose_max_model_len(const ModelConfig& config, int32_t asked) {
  if (asked < 0 || asked > config.max_position_embeddings) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a context of {} tokens is outside [1, {}], what the model's config gives; lower "
                             "max_model_len",
                             asked, config.max_position_embeddings));
  }
  // Slots of the cache are numbered by int32, and block 0 is none of the sequence's.
  if (asked > kMostMaxModelLen) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a context of {} tokens is more than the {} that a cache can number; lower "
                             "max_model_len",
                             asked, kMostMaxModelLen));
  }
  if (asked > 0) return asked;
  if (config.max_position_embeddings > kDefaultMaxModelLen) {
    log_info("the context is limited to {} of the model's {} tokens; --max-model-len raises it", kDefaultMaxModelLen,
             config.max_position_embeddings);
  }
  return std::min(config.max_position_embeddings, kDefaultMaxModelLen);
}

}  // namespace

Session::Session() = default;
Session::~Session() = default;

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "unknown";
}

Result<std::unique_ptr<Device>> make_device(const std::string& name, int32_t threads) {
  if (name == "cpu") return make_host_device(threads);
  if (name == "cuda" || name == "auto") {
    Result<std::unique_ptr<Device>> device = make_cuda_device();
    if (!device.ok() && name == "auto") return make_host_device(threads);
    if (!device.ok()) return std::move(device).error().within("--device cuda");
    return device;
  }
  return Error(ErrorCode::kInvalidArgument, fmt::format("--device {} is not known; use cpu, cuda or auto", name));
}

Result<std::unique_ptr<Session>> Session::load(const SessionOptions& options) {
  ASSIGN_OR_RETURN(auto device, make_device(options.device, options.threads));
  ASSIGN_OR_RETURN(ModelConfig config, load_model_config(options.model_dir, {.strict = options.strict_config}));
  ASSIGN_OR_RETURN(auto weights, load_weights(options.model_dir, config, *device));
  return create(std::move(device), std::move(config), std::move(weights), options);
}

Result<std::unique_ptr<Session>> Session::load_dummy(const std::string& name, int32_t layers, DummyFormat format,
                                                     uint64_t seed, const SessionOptions& options) {
  ASSIGN_OR_RETURN(auto device, make_device(options.device, options.threads));
  ASSIGN_OR_RETURN(const std::string json, builtin_config_json(name));
  ASSIGN_OR_RETURN(ModelConfig config, parse_model_config(json, {}));
  RETURN_IF_ERROR(keep_layers(config, layers, MtpLayers::kDrop));
  ASSIGN_OR_RETURN(auto weights, make_dummy_weights(config, format, seed, *device));
  return create(std::move(device), std::move(config), std::move(weights), options);
}

Result<std::unique_ptr<Session>> Session::create(std::unique_ptr<Device> device, ModelConfig config,
                                                 std::unique_ptr<WeightStore> weights, const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session);
  session->device_ = std::move(device);
  // Declared after the session, so that on an error the weights go before the device that holds them.
  std::unique_ptr<WeightStore> owned_weights = std::move(weights);
  ModelOptions model_options;
  ASSIGN_OR_RETURN(model_options.layouts, parse_kv_cache_dtype(options.kv_cache_dtype, config));
  ASSIGN_OR_RETURN(session->max_model_len_, choose_max_model_len(config, options.max_model_len));
  if (options.prefill_chunk < 1) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--prefill-chunk {} must be at least 1", options.prefill_chunk));
  }
  if (options.indexer == "recent") {
    model_options.index_mode = IndexSelectParams::Mode::kRecent;
  } else if (options.indexer != "model") {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--indexer {} is not known; use model or recent", options.indexer));
  }
  if (options.indexer == "recent" && !config.has_indexer()) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--indexer recent: {} has no indexer to replace", to_string(config.architecture)));
  }
  model_options.index_hadamard = options.index_hadamard;
  model_options.mla_form = options.mla_form;
  if (options.draft_tokens < 0 || options.draft_tokens > kMaxDraftTokens) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--draft-tokens {} is outside [0, {}]", options.draft_tokens, kMaxDraftTokens));
  }
  ModelExecutorOptions executor;
  ASSIGN_OR_RETURN(executor.drafter, parse_drafter(options.drafter));
  ASSIGN_OR_RETURN(executor.graphs, parse_graph_mode(options.graphs, session->device_->kind()));
  StepLimits& limits = model_options.limits;
  limits.max_requests = 1;
  limits.max_query_len = 1 + options.draft_tokens;
  limits.max_tokens = std::max(std::min(options.prefill_chunk, session->max_model_len_), limits.max_query_len);
  limits.block_size = kBlockSize;
  limits.max_blocks_per_request = (session->max_model_len_ + kBlockSize - 1) / kBlockSize;
  limits.num_blocks = limits.max_blocks_per_request + 1;  // block 0 is the null block
  limits.max_model_len = session->max_model_len_;
  model_options.sample_rows = kSampleRows;
  ASSIGN_OR_RETURN(session->model_,
                   Model::create(*session->device_, std::move(config), std::move(owned_weights), model_options));
  session->stream_ = std::make_unique<Stream>(*session->device_);
  session->buffers_ = std::make_unique<StepBuffers>();
  RETURN_IF_ERROR(session->buffers_->create(*session->device_, limits, kSampleRows, session->config().vocab_size));
  if (options.draft_tokens > 0 || executor.graphs != GraphMode::kNone) {
    executor.synthetic_acceptance = options.synthetic_acceptance;
    ASSIGN_OR_RETURN(session->speculative_, SpeculativeRun::create(*session->device_, *session->model_, executor));
  }
  session->device_->seal();
  return session;
}

Status Session::check_tokens(std::span<const int32_t> tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config().vocab_size) {
      return Error(ErrorCode::kInvalidArgument, fmt::format("token id {} at index {} is outside the vocabulary of {}",
                                                            tokens[i], i, config().vocab_size));
    }
  }
  return {};
}

void Session::step(std::span<const int32_t> tokens, int32_t begin, bool decode) {
  buffers_->run_plan(*stream_, tokens, begin, decode);
  model_->forward(*stream_, buffers_->view(), buffers_->token_ids());
}

void Session::logits_of_rows(int32_t first_row, int32_t count) {
  buffers_->set_sample_rows(*device_, first_row, count);
  model_->logits(*stream_, buffers_->sample_rows(), count);
}

Result<GenerateResult> Session::generate(const GenerateRequest& request, const OnToken& on_token,
                                         const OnProgress& on_prefill) {
  const auto prompt_size = static_cast<int64_t>(request.prompt.size());
  if (prompt_size == 0) return Error(ErrorCode::kInvalidArgument, "the prompt is empty; give at least one token");
  if (prompt_size >= max_model_len_) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the prompt has {} tokens, but the context holds {} and at least one must remain for the "
                             "answer; shorten the prompt or raise --max-model-len",
                             prompt_size, max_model_len_));
  }
  if (request.max_tokens < 1) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("max_tokens {} must be at least 1", request.max_tokens));
  }
  RETURN_IF_ERROR(check_tokens(request.prompt));
  RETURN_IF_ERROR(check_sampling(request.sampling));
  std::vector<int32_t> stop_token_ids = request.ignore_eos ? std::vector<int32_t>() : config().eos_token_ids;
  stop_token_ids.insert(stop_token_ids.end(), request.stop_token_ids.begin(), request.stop_token_ids.end());
  const TokenRules rules{.logit_bias = request.logit_bias,
                         .bad_words = request.bad_words,
                         .stop_token_ids = stop_token_ids,
                         .min_tokens = request.min_tokens};
  RETURN_IF_ERROR(check_token_rules(rules));
  if (request.min_tokens > request.max_tokens) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("min_tokens is {}, above max_tokens, which is {}",
                                                          request.min_tokens, request.max_tokens));
  }
  RETURN_IF_ERROR(check_token_ids(rules, config().vocab_size));

  if (speculative_ != nullptr) return speculative_->generate(request, on_token, on_prefill);

  GenerateResult result;
  const auto start = std::chrono::steady_clock::now();
  const int32_t chunk = model_->options().limits.max_tokens;
  int32_t last_rows = 0;
  for (int32_t begin = 0; begin < prompt_size; begin += chunk) {
    last_rows = static_cast<int32_t>(std::min<int64_t>(chunk, prompt_size - begin));
    step(std::span(request.prompt).subspan(static_cast<size_t>(begin), static_cast<size_t>(last_rows)), begin, false);
    if (on_prefill && !on_prefill(begin + last_rows)) {
      result.prefill_seconds = seconds_since(start);
      result.finish_reason = FinishReason::kCancelled;
      return result;
    }
  }
  logits_of_rows(last_rows - 1, 1);

  const int32_t room = max_model_len_ - static_cast<int32_t>(prompt_size);
  const int32_t limit = std::min(request.max_tokens, room);
  buffers_->start_text(*stream_, {.sampling = request.sampling,
                                  .rules = rules,
                                  .tokens = request.prompt,
                                  .prompt_len = static_cast<int32_t>(prompt_size)});
  auto decode_start = start;
  for (int32_t position = 0; position < limit; ++position) {
    ASSIGN_OR_RETURN(const int32_t token, buffers_->sample(*stream_, *model_, position));
    if (position == 0) {
      result.prefill_seconds = seconds_since(start);
      decode_start = std::chrono::steady_clock::now();
    }
    result.decode_seconds = seconds_since(decode_start);
    if (std::ranges::find(stop_token_ids, token) != stop_token_ids.end()) {
      result.finish_reason = FinishReason::kStop;
      return result;
    }
    result.tokens.push_back(token);
    const Continue answer = on_token ? on_token(token) : Continue::kYes;
    if (answer != Continue::kYes) {
      result.finish_reason = answer == Continue::kStop ? FinishReason::kStop : FinishReason::kCancelled;
      return result;
    }
    if (position + 1 == limit) break;
    step({&token, 1}, static_cast<int32_t>(prompt_size) + position, true);
    logits_of_rows(0, 1);
  }
  result.finish_reason = FinishReason::kLength;
  return result;
}

DraftCounts Session::draft_counts() const {
  DraftCounts counts;
  if (speculative_ == nullptr) return counts;
  const EngineStats& stats = speculative_->stats();
  const auto drafts = static_cast<size_t>(model_->options().limits.max_query_len - 1);
  counts.checked.assign(stats.drafts_checked.begin(), stats.drafts_checked.begin() + static_cast<ptrdiff_t>(drafts));
  counts.accepted.assign(stats.drafts_accepted.begin(), stats.drafts_accepted.begin() + static_cast<ptrdiff_t>(drafts));
  return counts;
}

GraphCounts Session::graph_counts() const {
  if (speculative_ == nullptr) return {};
  const GraphReport& graphs = speculative_->graphs();
  return {.mode = graphs.mode, .num_graphs = graphs.num_graphs, .steps_replayed = speculative_->stats().steps_replayed};
}

Result<std::vector<TokenScore>> Session::score(std::span<const int32_t> tokens, int32_t top_k,
                                               const OnProgress& on_progress) {
  const auto count = static_cast<int32_t>(std::min<size_t>(tokens.size(), INT32_MAX));
  if (count < 2) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("scoring needs at least two tokens, the text has {}: the first one has no context", count));
  }
  if (count > max_model_len_) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the text has {} tokens, but the context holds {}; shorten it or raise --max-model-len",
                             count, max_model_len_));
  }
  if (top_k < 0 || top_k > StepBuffers::kMaxTopLogprobs) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} alternatives were asked for; between 0 and {} can be given", top_k,
                             StepBuffers::kMaxTopLogprobs));
  }
  RETURN_IF_ERROR(check_tokens(tokens));
  std::vector<TokenScore> scores;
  scores.reserve(tokens.size() - 1);
  const int32_t chunk = model_->options().limits.max_tokens;
  // The last token predicts nothing that is asked for.
  for (int32_t begin = 0; begin < count - 1; begin += chunk) {
    const int32_t rows = std::min(chunk, count - 1 - begin);
    step(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)), begin, false);
    for (int32_t row = 0; row < rows; row += kSampleRows) {
      const int32_t some = std::min(kSampleRows, rows - row);
      logits_of_rows(row, some);
      const auto next = tokens.subspan(static_cast<size_t>(int64_t{begin} + row + 1), static_cast<size_t>(some));
      RETURN_IF_ERROR(buffers_->score_rows(*stream_, *model_, next, int64_t{begin} + row + 1, top_k,
                                           [&](TokenScore score) { scores.push_back(std::move(score)); }));
    }
    if (on_progress && !on_progress(begin + rows)) break;
  }
  return scores;
}

}  // namespace lantern
