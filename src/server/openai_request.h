// Requests of the OpenAI API, with the fields that vLLM adds, as the engine takes them:
// https://platform.openai.com/docs/api-reference (completions, chat). A field that asks for what Lantern cannot do is
// an error that names it; fields that nobody knows are ignored, since clients add such freely.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "server/grammar.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace lantern {

enum class OpenAiEndpoint : uint8_t { kCompletions, kChatCompletions };
// "/v1/completions", "/v1/chat/completions". Nothing for another path.
std::optional<OpenAiEndpoint> parse_openai_endpoint(std::string_view path);

// What a client is told: an HTTP status and the members of the "error" object.
struct OpenAiError {
  int32_t status = 400;
  std::string message = {};  // one sentence
  std::string type = "invalid_request_error";
  std::string param = {};           // the field; empty: null
  std::string code = {};            // empty: null
  int32_t retry_after_seconds = 0;  // when to try again; 0: nothing is said
};

// An error of the engine: a full queue is 503, what makes no sense 400.
OpenAiError openai_error_of(const Error& error);

struct OpenAiRequest {
  OpenAiEndpoint endpoint = OpenAiEndpoint::kCompletions;
  std::string model;  // as the client wrote it; empty: not at all
  std::vector<EngineRequest>
      prompts;                    // one for each prompt; the choices of prompt p have indices p * n to p * n + n - 1
  std::vector<std::string> echo;  // of each prompt: text to put before its output; empty: none
  std::vector<int32_t> stop_token_ids;  // that the client named: the model's own end tokens are no stop_reason
  // Of a chat: how its answer is written, whether the prompt has opened a thinking block, and the tools it names (the
  // texts of JSON objects).
  std::optional<ChatFormat> chat_format;
  bool starts_thinking = false;
  std::vector<std::string> tools;
  bool echoes = false;           // completions: the prompt is part of the text
  bool hides_output = false;     // of a completion: only the echo is shown
  int32_t logprobs = -1;         // likeliest tokens to list for each token; -1: no log-probabilities
  int32_t prompt_logprobs = -1;  // the same for the prompt, in the field of that name
  bool streams = false;
  bool include_usage = false;     // of a stream: a chunk of its own at the end
  bool continuous_usage = false;  // of a stream: in every chunk
  int32_t stream_interval = 0;    // of a stream: tokens of a choice in one chunk; 0: as the server has it
  bool include_reasoning = true;  // of a chat
  bool return_token_ids = false;
  bool return_drafted = false;     // which tokens drafts had foretold
  bool return_selections = false;  // which tokens of the context sparse attention read for each
  bool tokens_as_ids = false;      // tokens of log-probabilities are written "token_id:N"
  std::string request_id;          // that the client chose; empty: none
};

// What a model brings with it.
struct OpenAiModel {
  std::vector<std::string> names;        // that it is served under; the first is told to clients
  const Tokenizer* tokenizer = nullptr;  // outlives the reader
  const ChatEncoder* chat = nullptr;     // null: no conversations, and
  std::string no_chat;                   // why
  int32_t max_model_len = 0;
  int32_t vocab_size = 0;
  int32_t max_logprobs = -1;  // of the engine
  bool sparse_attention = false;
  int32_t max_traced_rows = 0;          // of the engine
  GrammarCompiler* grammars = nullptr;  // outlives the reader; null: no structured output
  bool streams = false;                 // answers may be streamed
  bool answers = true;                  // false: prompts are made alone
  // Where a request says nothing (generation_config.json); unset: 1, 1, all.
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
};

// `body` is the text of a JSON object. Waits for a form of structured output to be compiled. `next_seed` seeds requests
// that name no seed.
std::variant<OpenAiRequest, OpenAiError> read_openai_request(OpenAiEndpoint endpoint, std::string_view body,
                                                             const OpenAiModel& model, uint64_t next_seed);

}  // namespace lantern
