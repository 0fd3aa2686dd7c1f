#include "engine/request.h"

#include <fmt/format.h>

#include <algorithm>

namespace lantern {
namespace {

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

Status check_logprobs(int32_t count, const char* field, const EngineSettings& settings) {
  RETURN_IF_ERROR(check_num_logprobs(count, field));
  if (count <= settings.max_logprobs) return {};
  if (settings.max_logprobs < 0) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{} was asked for, and this engine gives none; raise max_logprobs", field));
  }
  return invalid(fmt::format("{} is {}, above max_logprobs, which is {}; raise that or ask for fewer", field, count,
                             settings.max_logprobs));
}

}  // namespace

std::string_view to_string(EndReason reason) {
  switch (reason) {
    case EndReason::kNone: return "none";
    case EndReason::kStop: return "stop";
    case EndReason::kLength: return "length";
    case EndReason::kCancelled: return "cancelled";
    case EndReason::kDeadline: return "deadline";
    case EndReason::kFailed: return "failed";
  }
  return "unknown";
}

int32_t max_length(const Request& request, const EngineSettings& settings) {
  const int64_t wanted = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  return static_cast<int32_t>(std::min<int64_t>(wanted, settings.limits.max_model_len));
}

Status check_request(const Request& request, const EngineSettings& settings) {
  const StepLimits& limits = settings.limits;
  if (request.prompt.empty()) return invalid("the prompt is empty; give at least one token");
  if (request.max_tokens < 1) return invalid(fmt::format("max_tokens is {}; ask for at least 1", request.max_tokens));
  if (request.n < 1) return invalid(fmt::format("n is {}; ask for at least 1 choice", request.n));
  if (request.priority < 0) return invalid(fmt::format("priority is {}; 0 is the most urgent", request.priority));
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens) {
    return invalid(fmt::format("min_tokens is {}; it lies between 0 and max_tokens, which is {}", request.min_tokens,
                               request.max_tokens));
  }
  RETURN_IF_ERROR(check_sampling(request.sampling));
  RETURN_IF_ERROR(check_token_rules(request.token_rules()));
  RETURN_IF_ERROR(check_logprobs(request.logprobs, "logprobs", settings));
  RETURN_IF_ERROR(check_logprobs(request.prompt_logprobs, "prompt_logprobs", settings));
  if (request.trace_selections && settings.max_traced_rows == 0) {
    return Error(ErrorCode::kUnsupported,
                 "trace_selections was asked for, and this engine keeps no selections; raise max_traced_rows, with a "
                 "model that has sparse attention");
  }
  if (request.prompt.size() >= static_cast<size_t>(limits.max_model_len)) {
    return invalid(fmt::format("the prompt has {} tokens and the context holds {}; shorten it or raise max_model_len",
                               request.prompt.size(), limits.max_model_len));
  }
  if (request.constraint != nullptr && settings.vocab_size == 0) {
    return Error(ErrorCode::kUnsupported,
                 "this engine cannot constrain tokens: its settings have no vocab_size; set it");
  }
  if (request.n > limits.max_requests) {
    return invalid(fmt::format("n is {} and {} sequences run at a time; lower it or raise max_num_seqs", request.n,
                               limits.max_requests));
  }
  const int32_t blocks = settings.blocks_for(max_length(request, settings));
  if (blocks > limits.num_blocks - 1) {
    return invalid(
        fmt::format("prompt and output take up to {} blocks of {} tokens and the cache has {}; lower "
                    "max_tokens or give the cache more memory",
                    blocks, limits.block_size, limits.num_blocks - 1));
  }
  return {};
}

Status check_vocabulary(const Request& request, int32_t vocab) {
  RETURN_IF_ERROR(check_token_ids(request.prompt, vocab, "the prompt"));
  return check_token_ids(request.token_rules(), vocab);
}

}  // namespace lantern
