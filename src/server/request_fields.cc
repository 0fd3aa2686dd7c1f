#include "server/request_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace lantern {
namespace {

namespace json = boost::json;
using enum FieldUse;

constexpr uint8_t C = kOfCompletions, H = kOfChats, R = kOfResponses, M = kOfMessages;

constexpr std::string_view kBeams = "answers are drawn, not searched for with beams";
constexpr std::string_view kTextOnly = "this model takes and gives text only";
constexpr std::string_view kOwnCode = "no code of a request runs here";
constexpr std::string_view kSampler = "it is no setting here; use temperature, top_p, top_k and min_p";
constexpr std::string_view kForm = "use structured_outputs";
constexpr std::string_view kNotTold = "it is told in chats and completions alone";
constexpr std::string_view kNoBudget = "thinking has no budget of its own";
constexpr std::string_view kNotTruncated = "prompts are not truncated";
constexpr std::string_view kWhoAsks = "it says who asks, which changes no answer";
constexpr std::string_view kCachedAnyway = "prefixes are cached and found by themselves";
constexpr std::string_view kOneServer = "there is one server to send it to";

constexpr RequestField kFields[] = {
    {"model", kPassed, C | H | R | M},
    {"prompt", kRead, C},
    {"messages", kRead, H | M},
    {"input", kRead, R},
    {"instructions", kRead, R},
    {"system", kRead, M},
    {"max_tokens", kPassed, C | H | M},
    {"max_completion_tokens", kRead, H},
    {"max_output_tokens", kRead, R},
    {"n", kRead, C | H},
    {"echo", kRead, C},
    {"stream", kPassed, C | H | R | M},
    {"stream_options", kRead, C | H},
    {"stream_interval", kRead, C | H},
    {"temperature", kPassed, C | H | R | M},
    {"top_p", kPassed, C | H | R | M},
    {"top_k", kPassed, C | H | R | M},
    {"min_p", kPassed, C | H | R | M},
    {"seed", kPassed, C | H | R | M},
    {"presence_penalty", kPassed, C | H | R | M},
    {"frequency_penalty", kPassed, C | H | R | M},
    {"repetition_penalty", kPassed, C | H | R | M},
    {"logit_bias", kPassed, C | H | R | M},
    {"bad_words", kPassed, C | H | R | M},
    {"allowed_token_ids", kPassed, C | H | R | M},
    {"min_tokens", kPassed, C | H | R | M},
    {"stop", kPassed, C | H | R},
    {"stop_sequences", kRead, M},
    {"stop_token_ids", kPassed, C | H | R | M},
    {"include_stop_str_in_output", kPassed, C | H | R | M},
    {"ignore_eos", kPassed, C | H | R | M},
    {"add_special_tokens", kRead, C},
    {"skip_special_tokens", kRead, C},
    {"logprobs", kRead, C | H},
    {"top_logprobs", kRead, H | R},
    {"prompt_logprobs", kRead, C | H},
    {"include", kRead, R},
    {"return_token_ids", kRead, C | H},
    {"return_drafted", kRead, C | H},
    {"return_selections", kRead, C | H},
    {"return_tokens_as_token_ids", kRead, C | H},
    {"priority", kPassed, C | H | R | M},
    {"cache_salt", kPassed, C | H | R | M},
    {"request_id", kPassed, C | H | R | M},
    {"add_generation_prompt", kRead, H},
    {"chat_template_kwargs", kPassed, H | R | M},
    {"thinking", kRead, H | M},
    {"enable_thinking", kRead, H},
    {"reasoning", kRead, R},
    {"reasoning_effort", kRead, H},
    {"include_reasoning", kRead, H},
    {"tools", kRead, H | R | M},
    {"tool_choice", kRead, H | R | M},
    {"parallel_tool_calls", kPassed, H | R},
    {"response_format", kRead, C | H},
    {"text", kRead, R},
    {"output_config", kRead, M},
    {"structured_outputs", kPassed, C | H | R | M},
    {"guided_json", kPassed, C | H | R | M},
    {"guided_regex", kPassed, C | H | R | M},
    {"guided_choice", kPassed, C | H | R | M},
    {"guided_grammar", kPassed, C | H | R | M},

    {"user", kIgnored, C | H | R | M, kWhoAsks},
    {"safety_identifier", kIgnored, C | H | R, kWhoAsks},
    {"metadata", kIgnored, C | H | R | M, "it is for whoever asks; responses repeat it"},
    {"store", kIgnored, C | H | R, "nothing is stored; responses say so"},
    {"service_tier", kIgnored, C | H | R | M, "there is one tier; priority is the field for it"},
    {"speed", kIgnored, M, "all answers come as fast as they can"},
    {"prompt_cache_key", kIgnored, C | H | R, kCachedAnyway},
    {"prompt_cache_retention", kIgnored, C | H | R, kCachedAnyway},
    {"cache_control", kIgnored, M, kCachedAnyway},
    {"cache_prompt", kIgnored, C | H, kCachedAnyway},
    {"session_id", kIgnored, C | H | R, kOneServer},
    {"rid", kIgnored, C | H, kOneServer},
    {"data_parallel_rank", kIgnored, C | H, "the ranks share their work by themselves"},
    {"truncation_side", kIgnored, C | H, kNotTruncated},
    {"spaces_between_special_tokens", kIgnored, C | H | R, "no tokenizer here puts any"},
    {"skip_special_tokens", kIgnored, H | R, "a chat's special tokens are read: they tell its parts apart"},
    {"guided_decoding_backend", kIgnored, C | H, "there is one"},
    {"stream_reasoning", kIgnored, H, "thoughts come as they are made"},
    {"stream_options", kIgnored, R | M, "these streams always tell their usage, and nothing pads them"},
    {"stream_interval", kIgnored, R | M, "every piece is an event"},

    {"suffix", kRefused, C, "text cannot be filled in before a suffix"},
    {"best_of", kRefused, C | H, "all choices are given; use n", "[1]"},
    {"n", kRefused, R | M, "there is one answer; ask chats for more", "[1]"},
    {"use_beam_search", kRefused, C | H | R, kBeams},
    {"length_penalty", kRefused, C | H | R, kBeams, "[1]"},
    {"early_stopping", kRefused, C | H | R, kBeams},
    {"typical_p", kRefused, C | H, kSampler, "[1]"},
    {"tfs_z", kRefused, C | H, kSampler, "[1]"},
    {"mirostat", kRefused, C | H, kSampler},
    {"dynatemp_range", kRefused, C | H, kSampler},
    {"xtc_probability", kRefused, C | H, kSampler},
    {"dry_multiplier", kRefused, C | H, kSampler},
    {"top_n_sigma", kRefused, C | H, kSampler, "[-1, 0]"},
    {"repeat_penalty", kRefused, C | H, "use repetition_penalty", "[1]"},
    {"repetition_detection", kRefused, C | H, "no answer is ended for repeating itself"},
    {"logits_processors", kRefused, C | H | R, kOwnCode},
    {"custom_logit_processor", kRefused, C | H, kOwnCode},
    {"vllm_xargs", kRefused, C | H | R, kOwnCode},
    {"grammar", kRefused, C | H, kForm},
    {"json_schema", kRefused, C | H, kForm},
    {"regex", kRefused, C | H, kForm},
    {"ebnf", kRefused, C | H, kForm},
    {"guided_whitespace_pattern", kRefused, C | H, "white space is the form's own"},
    {"response_format", kRefused, R, "use text.format"},
    {"response_format", kRefused, M, "use output_config.format"},
    {"output_format", kRefused, M, "use output_config.format"},
    {"max_tokens", kRefused, R, "use max_output_tokens"},
    {"max_completion_tokens", kRefused, R, "use max_output_tokens"},
    {"max_completion_tokens", kRefused, C | M, "use max_tokens"},
    {"max_output_tokens", kRefused, C | H | M, "use max_tokens"},
    {"max_new_tokens", kRefused, C | H, "use max_tokens"},
    {"n_predict", kRefused, C | H, "use max_tokens"},
    {"stop_sequences", kRefused, C | H | R, "use stop"},
    {"stop", kRefused, M, "use stop_sequences"},
    {"messages", kRefused, R, "use input"},
    {"logprob_token_ids", kRefused, C | H | R, "log-probabilities are those of the likeliest tokens"},
    {"top_logprobs", kRefused, C, "it is a field of chats; give logprobs a number"},
    {"logprobs", kRefused, R, "use include with \"message.output_text.logprobs\""},
    {"logprobs", kRefused, M, kNotTold},
    {"top_logprobs", kRefused, M, kNotTold},
    {"prompt_logprobs", kRefused, R | M, kNotTold},
    {"return_token_ids", kRefused, R | M, kNotTold},
    {"return_drafted", kRefused, R | M, kNotTold},
    {"return_selections", kRefused, R | M, kNotTold},
    {"return_tokens_as_token_ids", kRefused, R | M, kNotTold},
    {"return_hidden_states", kRefused, C | H, "they do not leave the model"},
    {"detokenize", kRefused, C | H, "answers are text; return_token_ids adds their tokens", "[true]"},
    {"truncate_prompt_tokens", kRefused, C | H | R, kNotTruncated},
    {"truncation", kRefused, R, kNotTruncated, "[\"disabled\"]"},
    {"prompt_embeds", kRefused, C | H | R, "prompts are text or token ids"},
    {"kv_transfer_params", kRefused, C | H | R, "caches are not moved between servers"},
    {"lora_path", kRefused, C | H, "adapters are not loaded"},
    {"echo", kRefused, H | R | M, "completions have it; an answer here is a message of its own"},
    {"add_special_tokens", kRefused, H | R, "the chat format has those that it needs"},
    {"add_generation_prompt", kRefused, R | M, "there is an answer always", "[true]"},
    {"continue_final_message", kRefused, H | R | M, "an answer begins a message of its own"},
    {"chat_template", kRefused, H | R | M, "chats have the model's own format; completions take any prompt"},
    {"documents", kRefused, H | R, "put their text into a message"},
    {"mm_processor_kwargs", kRefused, H | R, kTextOnly},
    {"media_io_kwargs", kRefused, H | R, kTextOnly},
    {"audio", kRefused, H, kTextOnly},
    {"modalities", kRefused, H, kTextOnly, "[[\"text\"], []]"},
    {"prediction", kRefused, H, "drafts are the model's own"},
    {"web_search_options", kRefused, H, "nothing is searched for; give the model a tool"},
    {"functions", kRefused, H, "use tools"},
    {"function_call", kRefused, H, "use tool_choice", "[\"none\", \"auto\"]"},
    {"verbosity", kRefused, H, "say it in a message", "[\"medium\"]"},
    {"reasoning", kRefused, H, "use reasoning_effort or thinking"},
    {"reasoning_effort", kRefused, R, "use reasoning.effort"},
    {"reasoning_effort", kRefused, M, "use thinking"},
    {"thinking", kRefused, R, "use reasoning.effort"},
    {"include_reasoning", kRefused, R | M, "thoughts are items and blocks of their own", "[true]"},
    {"separate_reasoning", kRefused, H, "thoughts are a field of their own", "[true]"},
    {"reasoning_format", kRefused, H, "thoughts are a field of their own", "[\"auto\", \"deepseek\"]"},
    {"thinking_token_budget", kRefused, H | R | M, kNoBudget},
    {"thinking_budget", kRefused, H, kNoBudget},
    {"previous_response_id", kRefused, R, "responses are not stored; send the conversation as input"},
    {"conversation", kRefused, R, "conversations are not stored; send them as input"},
    {"prompt", kRefused, R, "prompts are not stored; send instructions and input"},
    {"background", kRefused, R, "nothing runs in the background; use stream"},
    {"max_tool_calls", kRefused, R, "no tools run here"},
    {"moderation", kRefused, R, "nothing is moderated"},
    {"context_management", kRefused, R | M, "the context is what the request says", R"([[], {"edits": []}])"},
    {"mcp_servers", kRefused, M, "no tools run here"},
    {"container", kRefused, M, "no tools run here"},
    {"inference_geo", kRefused, M, "the server is where it is"},
};

bool same(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

bool asks_for_nothing(const json::value& value, std::string_view nothing) {
  if (value.is_null()) return true;
  const json::value values = json::parse(nothing.empty() ? R"([false, 0, "", []])" : nothing);
  return std::ranges::any_of(values.get_array(), [&](const json::value& one) { return same(value, one); });
}

}  // namespace

std::span<const RequestField> request_fields() { return kFields; }

std::optional<OpenAiError> refused_field(const json::object& body, RequestApi api) {
  for (const RequestField& field : kFields) {
    if (field.use != kRefused || (field.apis & api) == 0) continue;
    const json::value* value = body.if_contains(field.name);
    if (value == nullptr || asks_for_nothing(*value, field.nothing)) continue;
    return OpenAiError{.message = fmt::format("{} is not supported: {}", field.name, field.why),
                       .param = std::string(field.name),
                       .code = "unsupported_parameter"};
  }
  return std::nullopt;
}

json::object passed_fields(const json::object& body, RequestApi api) {
  json::object passed;
  for (const RequestField& field : kFields) {
    if (field.use != kPassed || (field.apis & api) == 0) continue;
    const json::value* value = body.if_contains(field.name);
    if (value != nullptr && !value->is_null()) passed[field.name] = *value;
  }
  return passed;
}

OpenAiError with_param_renamed(OpenAiError error,
                               std::span<const std::pair<std::string_view, std::string_view>> names) {
  for (const auto& [of_chat, of_request] : names) {
    if (error.param != of_chat) continue;
    error.param = of_request;
    // Messages name the field first where they name it.
    if (error.message.starts_with(of_chat)) error.message.replace(0, of_chat.size(), of_request);
    break;
  }
  return error;
}

}  // namespace lantern
