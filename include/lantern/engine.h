// Lantern's engine for C++ programs: a model, served to many threads by one engine. A header over engine_c.h, so that a
// program and the library may be built by different compilers and with different standard libraries.
//
//   auto engine = lantern::Engine::create({.model_dir = "models/tiny"});
//   if (!engine.ok()) return complain(engine.error().message);
//   auto stream = engine->submit({.prompt = "Question: What is 6 times 7?", .max_tokens = 64});
//   while (auto output = stream->next()) std::cout << output->text << std::flush;
//
// An Engine may be used by any number of threads at once; a TokenStream by one at a time, except for cancel(). No call
// waits for the engine but create(), next(), next_for() and drain().
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lantern/engine_c.h"

namespace lantern {
// Part of every name that the linker sees, so that nothing of this meets what a statically linked library calls alike.
inline namespace abi1 {

struct Error {
  lantern_status status = LANTERN_OK;
  std::string message;  // one sentence: what, where, what to change
};

// A value, or why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // Precondition: ok().
  T& value() { return std::get<0>(state_); }
  T& operator*() { return value(); }
  T* operator->() { return &value(); }
  // Precondition: !ok().
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

// What 0 and empty mean is said at lantern_engine_config.
struct EngineConfig {
  std::string model_dir;
  std::string device = "auto";          // "cpu", "cuda", or "auto": cuda where there is one
  std::string kv_cache_dtype = "auto";  // "auto", "bf16", "fp8" or "f32"
  int32_t threads = 0;
  int32_t max_model_len = 0;
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t num_draft_tokens = 0;
  int32_t max_queued = 0;
  int64_t kv_cache_bytes = 0;
  int32_t data_parallel_size = 0;
  bool prefix_caching = true;
  bool strict_config = false;
  int32_t max_logprobs = 0;
  std::string drafter = "auto";  // "auto", "mtp" or "ngram"
  std::string graphs = "auto";   // "auto", "none", "piecewise", "full", "full_and_piecewise" or "verify"
};

struct Message {
  std::string role;  // "system", "user", "assistant", ...
  std::string content;
};

// What a constrained request is asked before each of its tokens: the choice so far, without the prompt, and which
// tokens may follow it. Nothing is allowed at first.
class NextToken {
 public:
  explicit NextToken(const lantern_allowed_tokens_call& call) : call_(call) {}
  int32_t choice() const { return call_.choice; }
  const int32_t* tokens() const { return call_.tokens; }
  size_t num_tokens() const { return call_.num_tokens; }

  void allow(int32_t token) {
    const auto word = static_cast<size_t>(token) / 32;
    if (token >= 0 && word < call_.mask_words) call_.mask[word] |= uint32_t{1} << (token % 32);
  }
  void allow_all() { std::fill_n(call_.mask, call_.mask_words, ~uint32_t{0}); }

 private:
  const lantern_allowed_tokens_call& call_;
};

struct Request {
  // Exactly one of these three.
  std::vector<int32_t> prompt_tokens = {};      // ids, special tokens included
  std::string prompt = {};                      // text; special tokens in it are recognised
  std::vector<Message> messages = {};           // written in the format that the model was trained on
  std::optional<bool> thinking = std::nullopt;  // of a conversation; unset: as the format does by itself

  int32_t max_tokens = 0;  // of each choice; 0: what the context has room for
  int32_t n = 1;           // choices
  float temperature = 0;   // 0: greedy
  float top_p = 1;
  float min_p = 0;
  int32_t top_k = 0;  // 0: all
  int32_t min_tokens = 0;
  uint64_t seed = 0;

  std::vector<std::string> stop = {};  // strings that end the text
  std::vector<int32_t> stop_token_ids = {};
  bool include_stop = false;  // what ended the text is part of it
  bool ignore_eos = false;
  bool keep_special_tokens = false;
  int32_t priority = 0;                 // 0 is the most urgent
  std::chrono::milliseconds timeout{};  // from submission to the last token; 0: none
  std::string cache_salt = {};          // only requests of the same salt share prefixes

  float repetition_penalty = 1;                            // above 0, of tokens in the prompt or the output
  float presence_penalty = 0;                              // in [-2, 2], of tokens in the output
  float frequency_penalty = 0;                             // in [-2, 2], for each time that the output has the token
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // token id and what is added to its logit, in [-100, 100]
  std::vector<std::string> bad_words = {};                 // that the text must not contain

  // Log-probabilities of the output's tokens, with so many of the likeliest tokens of each position (0: none but its
  // own); of the prompt's tokens but the first. See lantern_request.
  std::optional<int32_t> logprobs = std::nullopt;
  std::optional<int32_t> prompt_logprobs = std::nullopt;

  // Says before each token which ones may come; empty: all may. Called on the engine's thread between steps: everybody
  // waits for it, and it may not use the engine. Where it throws or allows nothing, its choice ends with
  // LANTERN_END_FAILED.
  std::function<void(NextToken&)> allowed_tokens = {};
};

struct TokenLogprob {
  float logprob = 0;                           // natural logarithm, under the model itself
  int32_t rank = 0;                            // 1: the likeliest token of all
  std::vector<std::pair<int32_t, float>> top;  // the likeliest tokens of its position with theirs
};

// What came of a choice since its last output.
struct Output {
  int32_t choice = 0;
  std::vector<int32_t> tokens;  // a stop token among them
  std::string text;
  lantern_end_reason end_reason = LANTERN_NOT_ENDED;  // the choice's last output has another
  int32_t stop_token = -1;                            // that ended it
  std::string stop_string;                            // that ended it
  std::string error;                                  // why it failed
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;           // of the prompt, found by the prefix cache; with the last output
  std::vector<TokenLogprob> logprobs;  // of `tokens`, where the request wants them
  // With choice 0, before its first token: of the prompt's tokens from the second one on, those that came since the
  // last output.
  std::vector<TokenLogprob> prompt_logprobs;

  bool ended() const { return end_reason != LANTERN_NOT_ENDED; }
};

namespace detail {

inline Error last_error(lantern_status status) { return {status, lantern_last_error()}; }

inline const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

inline std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  all.reserve(texts.size());
  for (const std::string& text : texts) all.push_back(text.c_str());
  return all;
}

inline std::vector<TokenLogprob> read_logprobs(const lantern_logprobs& from) {
  std::vector<TokenLogprob> all(from.num_tokens);
  const auto k = static_cast<size_t>(from.num_top);
  for (size_t t = 0; t < all.size(); ++t) {
    all[t].logprob = from.logprobs[t];
    all[t].rank = from.ranks[t];
    for (size_t i = t * k; i < (t + 1) * k; ++i) all[t].top.emplace_back(from.top_tokens[i], from.top_logprobs[i]);
  }
  return all;
}

using AllowedTokens = std::function<void(NextToken&)>;

inline int32_t ask_allowed_tokens(void* context, const lantern_allowed_tokens_call* call) noexcept {
  const auto fail = [&](const char* why) {
    std::strncpy(call->error, why, call->error_bytes - 1);
    return 1;
  };
  try {
    NextToken next(*call);
    (*static_cast<AllowedTokens*>(context))(next);
    return 0;
  } catch (const std::exception& exception) {
    return fail(exception.what());
  } catch (...) {
    return fail("it threw something that is no exception");
  }
}
inline void release_allowed_tokens(void* context) { delete static_cast<AllowedTokens*>(context); }

struct DestroyEngine {
  void operator()(lantern_engine* engine) const { lantern_engine_destroy(engine); }
};
struct DestroyStream {
  void operator()(lantern_stream* stream) const { lantern_stream_destroy(stream); }
};

}  // namespace detail

// A request's outputs. Gone before its choices have ended, it cancels them. May outlive the engine.
class TokenStream {
 public:
  // Waits for the next output. Nothing when every choice has ended and all was read.
  std::optional<Output> next() { return take(-1); }
  // Nothing also when none comes in time; ended() tells the two apart. Waits for nothing where `timeout` is below 0, as
  // what is left until a moment that has passed.
  std::optional<Output> next_for(std::chrono::milliseconds timeout) {
    return take(std::max<int64_t>(timeout.count(), 0));
  }
  // Every choice has ended and all was read.
  bool ended() const { return ended_; }
  // Choices that have not ended end with LANTERN_END_CANCELLED. Any thread.
  void cancel() { lantern_stream_cancel(stream_.get()); }

 private:
  friend class Engine;
  explicit TokenStream(lantern_stream* stream) : stream_(stream) {}

  std::optional<Output> take(int64_t timeout_ms) {
    lantern_output from{};
    from.struct_size = sizeof(from);
    const lantern_status status = lantern_stream_next(stream_.get(), timeout_ms, &from);
    ended_ = status != LANTERN_OK && status != LANTERN_TIMEOUT;
    if (status != LANTERN_OK) return std::nullopt;
    Output output;
    output.choice = from.choice;
    output.tokens.assign(from.tokens, from.tokens + from.num_tokens);
    output.text.assign(from.text, from.text_bytes);
    output.end_reason = static_cast<lantern_end_reason>(from.end_reason);
    output.stop_token = from.stop_token;
    output.stop_string = from.stop_string;
    output.error = from.error;
    output.prompt_tokens = from.prompt_tokens;
    output.cached_tokens = from.cached_tokens;
    output.logprobs = detail::read_logprobs(from.logprobs);
    output.prompt_logprobs = detail::read_logprobs(from.prompt_logprobs);
    return output;
  }

  std::unique_ptr<lantern_stream, detail::DestroyStream> stream_;
  bool ended_ = false;
};

class Engine {
 public:
  // Loads a model. Errors: everything that can be wrong with a checkpoint or a setting, and too little memory.
  static Result<Engine> create(const EngineConfig& config) {
    lantern_engine_config c{};
    c.struct_size = sizeof(c);
    c.model_dir = config.model_dir.c_str();
    c.device = detail::or_null(config.device);
    c.kv_cache_dtype = detail::or_null(config.kv_cache_dtype);
    c.threads = config.threads;
    c.max_model_len = config.max_model_len;
    c.max_num_seqs = config.max_num_seqs;
    c.max_num_batched_tokens = config.max_num_batched_tokens;
    c.num_draft_tokens = config.num_draft_tokens;
    c.max_queued = config.max_queued;
    c.kv_cache_bytes = config.kv_cache_bytes;
    c.data_parallel_size = config.data_parallel_size;
    c.no_prefix_caching = config.prefix_caching ? 0 : 1;
    c.strict_config = config.strict_config ? 1 : 0;
    c.max_logprobs = config.max_logprobs;
    c.drafter = detail::or_null(config.drafter);
    c.graphs = detail::or_null(config.graphs);
    lantern_engine* engine = nullptr;
    const lantern_status status = lantern_engine_create(&c, &engine);
    if (status != LANTERN_OK) return detail::last_error(status);
    return Engine(engine);
  }

  // Errors: a request that makes no sense or could never be served, a full queue, an engine that drains.
  Result<TokenStream> submit(const Request& request) {
    const std::vector<const char*> stop = detail::pointers(request.stop);
    std::vector<const char*> roles;
    std::vector<const char*> contents;
    for (const Message& message : request.messages) {
      roles.push_back(message.role.c_str());
      contents.push_back(message.content.c_str());
    }
    std::vector<int32_t> bias_tokens;
    std::vector<float> biases;
    for (const auto& [token, bias] : request.logit_bias) {
      bias_tokens.push_back(token);
      biases.push_back(bias);
    }
    const std::vector<const char*> bad_words = detail::pointers(request.bad_words);
    lantern_request r{};
    r.struct_size = sizeof(r);
    if (!request.prompt_tokens.empty()) r.prompt_tokens = request.prompt_tokens.data();
    r.num_prompt_tokens = request.prompt_tokens.size();
    r.prompt = detail::or_null(request.prompt);
    if (!roles.empty()) r.message_roles = roles.data();
    r.message_contents = contents.data();
    r.num_messages = static_cast<uint32_t>(roles.size());
    if (request.thinking) r.thinking = *request.thinking ? 1 : -1;
    r.max_tokens = request.max_tokens;
    r.n = request.n;
    r.temperature = request.temperature;
    r.top_p = request.top_p;
    r.min_p = request.min_p;
    r.top_k = request.top_k;
    r.min_tokens = request.min_tokens;
    r.seed = request.seed;
    r.stop = stop.data();
    r.num_stop = stop.size();
    r.stop_token_ids = request.stop_token_ids.data();
    r.num_stop_token_ids = request.stop_token_ids.size();
    r.include_stop = request.include_stop ? 1 : 0;
    r.ignore_eos = request.ignore_eos ? 1 : 0;
    r.keep_special_tokens = request.keep_special_tokens ? 1 : 0;
    r.priority = request.priority;
    r.timeout_ms = request.timeout.count();
    r.cache_salt = detail::or_null(request.cache_salt);
    r.repetition_penalty = request.repetition_penalty;
    r.presence_penalty = request.presence_penalty;
    r.frequency_penalty = request.frequency_penalty;
    r.num_logit_biases = static_cast<uint32_t>(biases.size());
    r.logit_bias_tokens = bias_tokens.data();
    r.logit_biases = biases.data();
    r.bad_words = bad_words.data();
    r.num_bad_words = bad_words.size();
    r.logprobs = request.logprobs ? 1 : 0;
    r.top_logprobs = request.logprobs.value_or(0);
    r.prompt_logprobs = request.prompt_logprobs ? 1 : 0;
    r.top_prompt_logprobs = request.prompt_logprobs.value_or(0);
    if (request.allowed_tokens) {  // the engine's, once the request is accepted
      r.allowed_tokens = &detail::ask_allowed_tokens;
      r.allowed_tokens_context = std::make_unique<detail::AllowedTokens>(request.allowed_tokens).release();
      r.release_allowed_tokens_context = &detail::release_allowed_tokens;
    }
    lantern_stream* stream = nullptr;
    const lantern_status status = lantern_engine_submit(engine_.get(), &r, &stream);
    if (status != LANTERN_OK) {
      Error error = detail::last_error(status);
      detail::release_allowed_tokens(r.allowed_tokens_context);
      return error;
    }
    return TokenStream(stream);
  }

  // No request is accepted from now on. Waits until all that are in have ended; false when `timeout` passes before.
  bool drain(std::optional<std::chrono::milliseconds> timeout = std::nullopt) {
    return lantern_engine_drain(engine_.get(), timeout ? std::max<int64_t>(timeout->count(), 0) : -1) == LANTERN_OK;
  }

  lantern_engine_stats stats() const {
    lantern_engine_stats stats{};
    stats.struct_size = sizeof(stats);
    (void)lantern_engine_get_stats(engine_.get(), &stats);  // cannot fail: both are there
    return stats;
  }
  // Of one rank of a data-parallel engine; num_ranks is 0 where there is no such rank.
  lantern_engine_stats rank_stats(int32_t rank) const {
    lantern_engine_stats stats{};
    stats.struct_size = sizeof(stats);
    (void)lantern_engine_get_rank_stats(engine_.get(), rank, &stats);
    return stats;
  }

 private:
  explicit Engine(lantern_engine* engine) : engine_(engine) {}

  std::unique_ptr<lantern_engine, detail::DestroyEngine> engine_;
};

}  // namespace abi1
}  // namespace lantern
