// include/lantern/engine_c.h over Engine.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/c_struct.h"
#include "engine/bad_words.h"
#include "engine/load_engine.h"
#include "engine/token_constraint.h"
#include "lantern/engine_c.h"
#include "text/chat.h"

struct lantern_engine {
  lantern::LoadedEngine loaded;
  std::unique_ptr<const lantern::ChatEncoder> chat;  // null where the checkpoint's chat format is not known
  std::string no_chat;                               // why
};

struct lantern_stream {
  lantern::TokenStream tokens;
  lantern::Output output;  // what the caller's pointers point into
  int32_t prompt_tokens = 0;
};

namespace lantern {
namespace {

static_assert(static_cast<int>(EndReason::kStop) == LANTERN_END_STOP &&
              static_cast<int>(EndReason::kLength) == LANTERN_END_LENGTH &&
              static_cast<int>(EndReason::kCancelled) == LANTERN_END_CANCELLED &&
              static_cast<int>(EndReason::kDeadline) == LANTERN_END_TIMEOUT &&
              static_cast<int>(EndReason::kFailed) == LANTERN_END_FAILED);

std::string& last_error() {
  thread_local std::string message;
  return message;
}

lantern_status finish(const Status& status) {
  if (status.ok()) return LANTERN_OK;
  last_error() = status.error().message();
  switch (status.error().code()) {
    case ErrorCode::kInvalidArgument: return LANTERN_INVALID_ARGUMENT;
    case ErrorCode::kNotFound: return LANTERN_NOT_FOUND;
    case ErrorCode::kUnsupported: return LANTERN_UNSUPPORTED;
    case ErrorCode::kCorrupt: return LANTERN_CORRUPT;
    case ErrorCode::kIo: return LANTERN_IO;
    case ErrorCode::kOutOfMemory: return LANTERN_OUT_OF_MEMORY;
  }
  return LANTERN_INVALID_ARGUMENT;
}

Error refuse(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

// Sizes of version 1.
template <class Struct>
constexpr size_t kFirstSize = sizeof(Struct);
template <>
constexpr size_t kFirstSize<lantern_engine_config> = offsetof(lantern_engine_config, max_logprobs);
template <>
constexpr size_t kFirstSize<lantern_request> = offsetof(lantern_request, logprobs);
template <>
constexpr size_t kFirstSize<lantern_output> = offsetof(lantern_output, logprobs);
template <>
constexpr size_t kFirstSize<lantern_engine_stats> = offsetof(lantern_engine_stats, num_ranks);

template <class Struct>
Result<Struct> read_struct(const Struct* from, const char* name) {
  return read_c_struct(from, name, LANTERN_ENGINE_ABI_VERSION, kFirstSize<Struct>);
}
template <class Struct>
void write_struct(const Struct& from, Struct* to) {
  const uint32_t size = to->struct_size;
  std::memcpy(to, &from, std::min<size_t>(size, sizeof(Struct)));
  to->struct_size = size;
}

// Longer than any program runs; more would overflow the clock.
std::chrono::milliseconds bounded(int64_t timeout_ms) {
  constexpr int64_t kLongest = int64_t{1000} * 3600 * 24 * 365;
  return std::chrono::milliseconds(std::min(timeout_ms, kLongest));
}

std::string text_or(const char* text, const char* absent) { return text == nullptr ? absent : text; }

Status create(const lantern_engine_config* config, lantern_engine** engine) {
  if (engine == nullptr) return refuse("engine is NULL");
  *engine = nullptr;
  ASSIGN_OR_RETURN(const lantern_engine_config c, read_struct(config, "lantern_engine_config"));
  if (c.model_dir == nullptr) return refuse("lantern_engine_config.model_dir is NULL; name the model's folder");
  EngineOptions options;
  options.model_dir = c.model_dir;
  options.device = text_or(c.device, "auto");
  options.threads = c.threads;
  options.kv_cache_dtype = text_or(c.kv_cache_dtype, "auto");
  options.strict_config = c.strict_config != 0;
  options.max_model_len = c.max_model_len;
  if (c.max_num_seqs != 0) options.max_num_seqs = c.max_num_seqs;
  options.max_num_batched_tokens = c.max_num_batched_tokens;
  options.num_draft_tokens = c.num_draft_tokens;
  options.drafter = text_or(c.drafter, "auto");
  options.graphs = text_or(c.graphs, "auto");
  if (c.max_queued != 0) options.max_queued = c.max_queued;
  options.prefix_caching = c.no_prefix_caching == 0;
  options.kv_cache_bytes = c.kv_cache_bytes;
  if (c.max_logprobs != 0) options.max_logprobs = c.max_logprobs;
  if (c.data_parallel_size != 0) options.data_parallel_size = c.data_parallel_size;

  auto made = std::make_unique<lantern_engine>();
  ASSIGN_OR_RETURN(made->loaded, load_engine(options));
  const Tokenizer& tokenizer = *made->loaded.tokenizer;
  const Result<ChatFormat> format = detect_chat_format(made->loaded.config->model_type, tokenizer);
  Result<ChatEncoder> chat =
      format.ok() ? ChatEncoder::create(*format, tokenizer) : Result<ChatEncoder>(format.error());
  if (chat.ok()) {
    made->chat = std::make_unique<const ChatEncoder>(std::move(*chat));
  } else {
    made->no_chat = chat.error().message();
  }
  *engine = made.release();
  return {};
}

Result<ChatRole> parse_role(const char* name) {
  if (name == nullptr) return refuse("a message's role is NULL");
  const std::string_view role = name;
  if (role == "system") return ChatRole::kSystem;
  if (role == "developer") return ChatRole::kDeveloper;
  if (role == "user") return ChatRole::kUser;
  if (role == "assistant") return ChatRole::kAssistant;
  if (role == "tool") return ChatRole::kTool;
  return refuse(fmt::format("'{}' is no role; use system, developer, user, assistant or tool", role));
}

Result<std::vector<int32_t>> encode_messages(const lantern_engine& engine, const lantern_request& r) {
  if (engine.chat == nullptr) return Error(ErrorCode::kUnsupported, engine.no_chat);
  if (r.num_messages == 0 || r.message_contents == nullptr)
    return refuse("message_roles needs message_contents, and num_messages of each, at least 1");
  std::vector<ChatMessage> messages(r.num_messages);
  for (uint32_t i = 0; i < r.num_messages; ++i) {
    ASSIGN_OR_RETURN(messages[i].role, parse_role(r.message_roles[i]));
    messages[i].content = text_or(r.message_contents[i], "");
  }
  ChatOptions options;
  if (r.thinking != 0) options.thinking = r.thinking > 0;
  return engine.chat->encode(messages, options);
}

Result<std::vector<int32_t>> read_prompt(const lantern_engine& engine, const lantern_request& r) {
  const int given =
      (r.prompt_tokens != nullptr ? 1 : 0) + (r.prompt != nullptr ? 1 : 0) + (r.message_roles != nullptr ? 1 : 0);
  if (given != 1) {
    return refuse(fmt::format(
        "a lantern_request has exactly one of prompt_tokens, prompt and message_roles, but {} were given", given));
  }
  if (r.prompt_tokens != nullptr) return std::vector<int32_t>(r.prompt_tokens, r.prompt_tokens + r.num_prompt_tokens);
  if (r.message_roles != nullptr) return encode_messages(engine, r);
  // A text of nothing but the beginning-of-sentence token would be generated from in silence.
  if (*r.prompt == '\0') return refuse("the prompt is empty; give at least one character");
  return engine.loaded.tokenizer->encode(r.prompt);
}

Status read_lists(const Tokenizer& tokenizer, const lantern_request& r, Request& to) {
  if (r.num_logit_biases > 0 && (r.logit_bias_tokens == nullptr || r.logit_biases == nullptr))
    return refuse("num_logit_biases is not 0, but lantern_request.logit_bias_tokens or logit_biases is NULL");
  for (uint32_t i = 0; i < r.num_logit_biases; ++i)
    to.logit_bias.push_back({.token = r.logit_bias_tokens[i], .bias = r.logit_biases[i]});
  if (r.num_bad_words > 0 && r.bad_words == nullptr)
    return refuse("lantern_request.bad_words is NULL, but num_bad_words is not 0");
  std::vector<std::string> words;
  words.reserve(r.num_bad_words);
  for (size_t i = 0; i < r.num_bad_words; ++i) words.push_back(text_or(r.bad_words[i], ""));
  ASSIGN_OR_RETURN(to.bad_words, encode_bad_words(tokenizer, words));
  return {};
}

// How many likeliest tokens are wanted; -1: no log-probabilities.
Result<int32_t> read_logprobs(int32_t wanted, int32_t top, const char* name) {
  if (top < 0) return refuse(fmt::format("lantern_request.top_{} is {}; give 0 or more", name, top));
  if (wanted == 0 && top != 0)
    return refuse(fmt::format("lantern_request.top_{} is {}, but {} is 0; set that to 1 as well", name, top, name));
  return wanted != 0 ? top : -1;
}

// A caller's function as a hook.
class CallbackConstraint final : public TokenConstraint {
 public:
  CallbackConstraint(lantern_allowed_tokens function, void* context) : function_(function), context_(context) {}
  ~CallbackConstraint() override {
    if (release_ != nullptr) release_(context_);
  }
  // From now on the context is the hook's to release.
  void take_context(void (*release)(void*)) { release_ = release; }

  Status allow(int32_t choice, std::span<const int32_t> output, std::span<uint32_t> mask) override {
    std::array<char, 512> error{};
    lantern_allowed_tokens_call call{};
    call.struct_size = sizeof(call);
    call.choice = choice;
    call.tokens = output.data();
    call.num_tokens = output.size();
    call.mask = mask.data();
    call.mask_words = mask.size();
    call.error = error.data();
    call.error_bytes = error.size();
    const int32_t result = function_(context_, &call);
    if (result == 0) return {};
    error.back() = '\0';
    return refuse(error.front() != '\0' ? std::string(error.data())
                                        : fmt::format("lantern_request.allowed_tokens returned {}", result));
  }

 private:
  lantern_allowed_tokens function_;
  void* context_;
  void (*release_)(void*) = nullptr;
};

lantern_logprobs view_of(const Logprobs& from) {
  lantern_logprobs to{};
  to.num_tokens = from.size();
  to.num_top = from.width;
  to.logprobs = from.logprobs.data();
  to.ranks = from.ranks.data();
  to.top_tokens = from.top_tokens.data();
  to.top_logprobs = from.top_logprobs.data();
  return to;
}

Status submit(lantern_engine* engine, const lantern_request* request, lantern_stream** stream) {
  if (engine == nullptr || stream == nullptr) return refuse(engine == nullptr ? "engine is NULL" : "stream is NULL");
  *stream = nullptr;
  ASSIGN_OR_RETURN(const lantern_request r, read_struct(request, "lantern_request"));
  EngineRequest submitted;
  Request& to = submitted.request;
  ASSIGN_OR_RETURN(to.prompt, read_prompt(*engine, r));
  const int64_t room = engine->loaded.engine->settings().limits.max_model_len - static_cast<int64_t>(to.prompt.size());
  to.max_tokens = r.max_tokens != 0 ? r.max_tokens : static_cast<int32_t>(std::max<int64_t>(room, 1));
  to.n = r.n != 0 ? r.n : 1;
  to.sampling.temperature = r.temperature;
  to.sampling.top_p = r.top_p != 0 ? r.top_p : 1.0f;
  to.sampling.top_k = r.top_k;
  to.sampling.min_p = r.min_p;
  to.sampling.seed = r.seed;
  if (r.repetition_penalty != 0) to.sampling.repetition_penalty = r.repetition_penalty;
  to.sampling.presence_penalty = r.presence_penalty;
  to.sampling.frequency_penalty = r.frequency_penalty;
  RETURN_IF_ERROR(read_lists(*engine->loaded.tokenizer, r, to));
  to.min_tokens = r.min_tokens;
  ASSIGN_OR_RETURN(to.logprobs, read_logprobs(r.logprobs, r.top_logprobs, "logprobs"));
  ASSIGN_OR_RETURN(to.prompt_logprobs, read_logprobs(r.prompt_logprobs, r.top_prompt_logprobs, "prompt_logprobs"));
  to.priority = r.priority;
  to.cache_salt = text_or(r.cache_salt, "");
  if (r.num_stop > 0 && r.stop == nullptr) return refuse("lantern_request.stop is NULL, but num_stop is not 0");
  for (size_t i = 0; i < r.num_stop; ++i) submitted.stop.push_back(text_or(r.stop[i], ""));
  if (r.num_stop_token_ids > 0 && r.stop_token_ids == nullptr)
    return refuse("lantern_request.stop_token_ids is NULL, but num_stop_token_ids is not 0");
  if (r.num_stop_token_ids > 0) to.stop_token_ids.assign(r.stop_token_ids, r.stop_token_ids + r.num_stop_token_ids);
  if (r.message_roles != nullptr && r.ignore_eos == 0) {
    const std::vector<TokenId>& ends = engine->chat->stop_ids();
    to.stop_token_ids.insert(to.stop_token_ids.end(), ends.begin(), ends.end());
  }
  submitted.include_stop = r.include_stop != 0;
  submitted.ignore_eos = r.ignore_eos != 0;
  submitted.skip_special_tokens = r.keep_special_tokens == 0;
  if (r.timeout_ms != 0) submitted.timeout = bounded(r.timeout_ms);

  std::shared_ptr<CallbackConstraint> constraint;
  if (r.allowed_tokens != nullptr)
    to.constraint = constraint = std::make_shared<CallbackConstraint>(r.allowed_tokens, r.allowed_tokens_context);
  const auto prompt_tokens = static_cast<int32_t>(to.prompt.size());
  ASSIGN_OR_RETURN(TokenStream tokens, engine->loaded.engine->submit(std::move(submitted)));
  if (constraint != nullptr) constraint->take_context(r.release_allowed_tokens_context);
  *stream = new lantern_stream{.tokens = std::move(tokens), .output = {}, .prompt_tokens = prompt_tokens};
  return {};
}

Result<TokenStream::Wait> next(lantern_stream* stream, int64_t timeout_ms, lantern_output* output) {
  if (stream == nullptr) return refuse("stream is NULL");
  ASSIGN_OR_RETURN(lantern_output to, read_struct(output, "lantern_output"));
  TokenStream::Wait came = TokenStream::Wait::kOutput;
  if (timeout_ms < 0) {
    if (!stream->tokens.next(stream->output)) came = TokenStream::Wait::kEnd;
  } else {
    came = stream->tokens.next_for(stream->output, bounded(timeout_ms));
  }
  if (came != TokenStream::Wait::kOutput) return came;
  const Output& from = stream->output;
  to.choice = from.choice;
  to.tokens = from.tokens.data();
  to.num_tokens = from.tokens.size();
  to.text = from.text.c_str();
  to.text_bytes = from.text.size();
  to.end_reason = static_cast<int32_t>(from.end_reason);
  to.stop_token = from.stop_token;
  to.stop_string = from.stop_string.c_str();
  to.error = from.error.c_str();
  to.prompt_tokens = stream->prompt_tokens;
  to.cached_tokens = from.cached_tokens;
  to.logprobs = view_of(from.logprobs);
  to.prompt_logprobs = view_of(from.prompt_logprobs);
  write_struct(to, output);
  return came;
}

// Of all ranks where `rank` is below 0.
Status get_stats(const lantern_engine* engine, int32_t rank, lantern_engine_stats* stats) {
  ASSIGN_OR_RETURN(lantern_engine_stats to, read_struct(stats, "lantern_engine_stats"));
  const EngineReport report =
      rank < 0 ? engine->loaded.engine->report() : engine->loaded.engine->rank_reports()[static_cast<size_t>(rank)];
  const StepLimits& limits = engine->loaded.engine->settings().limits;
  to.num_running = report.num_running;
  to.num_waiting = report.num_waiting;
  to.num_blocks = report.num_blocks;
  to.num_free_blocks = report.num_free_blocks;
  to.num_cached_blocks = report.num_cached_blocks;
  to.block_size = limits.block_size;
  to.max_model_len = limits.max_model_len;
  to.num_submitted = report.choices_submitted;
  to.num_ended = 0;
  for (const int64_t ended : report.choices_ended) to.num_ended += ended;
  to.num_preemptions = report.preemptions;
  to.prompt_tokens = report.prompt_tokens;
  to.prompt_tokens_cached = report.prompt_tokens_cached;
  to.output_tokens = report.output_tokens;
  to.steps = report.steps;
  to.drafts_checked = to.drafts_accepted = 0;
  for (size_t i = 0; i < EngineReport::kMaxDrafts; ++i) {
    to.drafts_checked += report.drafts_checked[i];
    to.drafts_accepted += report.drafts_accepted[i];
  }
  to.step_seconds = report.step_seconds;
  to.executor_seconds = report.executor_seconds;
  to.num_ranks = rank < 0 ? engine->loaded.engine->num_ranks() : 1;
  to.dummy_steps = report.dummy_steps;
  write_struct(to, stats);
  return {};
}

}  // namespace
}  // namespace lantern

uint32_t lantern_engine_abi_version() { return LANTERN_ENGINE_ABI_VERSION; }

lantern_status lantern_engine_create(const lantern_engine_config* config, lantern_engine** engine) {
  return lantern::finish(lantern::create(config, engine));
}

void lantern_engine_destroy(lantern_engine* engine) { delete engine; }

lantern_status lantern_engine_submit(lantern_engine* engine, const lantern_request* request, lantern_stream** stream) {
  return lantern::finish(lantern::submit(engine, request, stream));
}

lantern_status lantern_engine_drain(lantern_engine* engine, int64_t timeout_ms) {
  if (engine == nullptr) return lantern::finish(lantern::refuse("engine is NULL"));
  const auto timeout = timeout_ms < 0 ? std::nullopt : std::optional(lantern::bounded(timeout_ms));
  return engine->loaded.engine->drain(timeout) ? LANTERN_OK : LANTERN_TIMEOUT;
}

lantern_status lantern_engine_get_stats(const lantern_engine* engine, lantern_engine_stats* stats) {
  if (engine == nullptr) return lantern::finish(lantern::refuse("engine is NULL"));
  return lantern::finish(lantern::get_stats(engine, -1, stats));
}

lantern_status lantern_engine_get_rank_stats(const lantern_engine* engine, int32_t rank, lantern_engine_stats* stats) {
  if (engine == nullptr) return lantern::finish(lantern::refuse("engine is NULL"));
  const int32_t ranks = engine->loaded.engine->num_ranks();
  if (rank < 0 || rank >= ranks) {
    return lantern::finish(
        lantern::refuse(fmt::format("rank {} is outside [0, {}), the ranks of this engine", rank, ranks)));
  }
  return lantern::finish(lantern::get_stats(engine, rank, stats));
}

lantern_status lantern_stream_next(lantern_stream* stream, int64_t timeout_ms, lantern_output* output) {
  const lantern::Result<lantern::TokenStream::Wait> came = lantern::next(stream, timeout_ms, output);
  if (!came.ok()) return lantern::finish(came.error());
  if (*came == lantern::TokenStream::Wait::kTimeout) return LANTERN_TIMEOUT;
  return *came == lantern::TokenStream::Wait::kEnd ? LANTERN_END : LANTERN_OK;
}

void lantern_stream_cancel(lantern_stream* stream) {
  if (stream != nullptr) stream->tokens.cancel();
}

void lantern_stream_destroy(lantern_stream* stream) { delete stream; }

const char* lantern_last_error() { return lantern::last_error().c_str(); }
