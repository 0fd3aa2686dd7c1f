#include "server/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "engine/bad_words.h"
#include "server/allowed_ids.h"
#include "server/json_fields.h"
#include "server/openai_form.h"
#include "server/request_fields.h"

namespace lantern {
namespace {

namespace json = boost::json;
using std::string_view_literals::operator""sv;

constexpr int64_t kMostChoices = 128;
constexpr size_t kMostPrompts = 1024;
constexpr size_t kMostStops = 16;
constexpr size_t kMostStopBytes = 256;
constexpr size_t kMostBiases = 1024;
constexpr size_t kMostSaltBytes = 128;
constexpr size_t kMostRequestIdBytes = 128;
constexpr size_t kMostTools = 256;
constexpr int32_t kDefaultMaxTokens = 16;  // of a completion; a chat takes what the context has room for

class Reader {
 public:
  Reader(OpenAiEndpoint endpoint, const json::object& body, const OpenAiModel& model, uint64_t next_seed)
      : body_(body), fields_(body), model_(model), next_seed_(next_seed) {
    request_.endpoint = endpoint;
  }

  std::variant<OpenAiRequest, OpenAiError> read() {
    read_model();
    if (const auto error = refused_field(body_, is_chat() ? kOfChats : kOfCompletions)) fields_.fail(*error);
    read_streaming();
    read_how_to_answer();
    read_sampling();
    if (request_.endpoint == OpenAiEndpoint::kChatCompletions) {
      read_messages();
    } else {
      read_prompts();
    }
    read_length();
    read_logprobs();
    constrain_answers(fields_, model_, std::move(forced_calls_), answer_start_, request_);
    allow_ids();
    if (!fields_.ok()) return fields_.error();
    return std::move(request_);
  }

 private:
  bool is_chat() const { return request_.endpoint == OpenAiEndpoint::kChatCompletions; }

  void read_model() {
    fields_.text("model", request_.model);
    if (request_.model.empty() || std::ranges::find(model_.names, request_.model) != model_.names.end()) return;
    fields_.fail({.status = 404,
                  .message = fmt::format("the model '{}' is not served here; ask for '{}'", request_.model,
                                         model_.names.empty() ? std::string() : model_.names.front()),
                  .type = "not_found_error",
                  .param = "model",
                  .code = "model_not_found"});
  }

  void read_streaming() {
    fields_.boolean("stream", request_.streams);
    if (request_.streams && !model_.streams) unsupported("stream", "a batch has no streams");
    fields_.integer("stream_interval", request_.stream_interval, 0, 4096);
    const json::value* options = fields_.find("stream_options");
    if (options == nullptr) return;
    if (!request_.streams) return fields_.fail("stream_options", "stream_options needs stream; set that to true");
    if (!options->is_object())
      return fields_.fail("stream_options", fmt::format("stream_options must be an object, not {}", kind_of(*options)));
    JsonFields of(options->get_object());
    of.boolean("include_usage", request_.include_usage);
    of.boolean("continuous_usage_stats", request_.continuous_usage);
    if (!of.ok()) fields_.fail(of.error());
  }

  void read_how_to_answer() {
    fields_.boolean("include_reasoning", request_.include_reasoning);
    fields_.boolean("return_token_ids", request_.return_token_ids);
    fields_.boolean("return_drafted", request_.return_drafted);
    fields_.boolean("return_selections", request_.return_selections);
    if (request_.return_selections && !model_.sparse_attention)
      unsupported("return_selections", "this model has no sparse attention, each token reads all before it");
    if (request_.return_selections && model_.max_traced_rows == 0)
      unsupported("return_selections", "this server keeps no selections; raise --max-traced-rows");
    base_.request.trace_selections = request_.return_selections;
    fields_.boolean("return_tokens_as_token_ids", request_.tokens_as_ids);
    fields_.text("request_id", request_.request_id);
    if (request_.request_id.size() > kMostRequestIdBytes) {
      fields_.fail("request_id", fmt::format("request_id has {} bytes, and at most {} are allowed",
                                             request_.request_id.size(), kMostRequestIdBytes));
    }
  }
  void unsupported(std::string_view name, std::string_view why) {
    fields_.fail({.status = 400,
                  .message = fmt::format("{} is not supported: {}", name, why),
                  .type = "invalid_request_error",
                  .param = std::string(name),
                  .code = "unsupported_parameter"});
  }

  void read_sampling() {
    Request& r = base_.request;
    SamplingSettings& s = r.sampling;
    s.temperature = static_cast<float>(model_.temperature.value_or(1.0));
    s.top_p = static_cast<float>(model_.top_p.value_or(1.0));
    s.top_k = static_cast<int32_t>(model_.top_k.value_or(0));
    fields_.real("temperature", s.temperature, 0, 100);
    fields_.positive("top_p", s.top_p, 1);
    fields_.real("min_p", s.min_p, 0, 1);
    fields_.integer("top_k", s.top_k, -1, std::numeric_limits<int32_t>::max());
    fields_.real("presence_penalty", s.presence_penalty, -2, 2);
    fields_.real("frequency_penalty", s.frequency_penalty, -2, 2);
    fields_.positive("repetition_penalty", s.repetition_penalty, 100);
    s.seed = next_seed_;
    int64_t seed = 0;
    if (fields_.has("seed")) {
      fields_.integer64("seed", seed, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
      s.seed = static_cast<uint64_t>(seed);
    }
    read_logit_bias(r);
    read_bad_words(r);

    fields_.integer("n", r.n, 1, kMostChoices);
    fields_.texts("stop", base_.stop, kMostStops);
    for (const std::string& stop : base_.stop) {
      if (stop.size() > kMostStopBytes) {
        fields_.fail("stop", fmt::format("stop has a string of {} bytes, and at most {} are allowed", stop.size(),
                                         kMostStopBytes));
      }
    }
    fields_.boolean("include_stop_str_in_output", base_.include_stop);
    fields_.ids("stop_token_ids", r.stop_token_ids, model_.vocab_size - 1);
    request_.stop_token_ids = r.stop_token_ids;
    fields_.boolean("ignore_eos", base_.ignore_eos);
    if (!is_chat()) fields_.boolean("skip_special_tokens", base_.skip_special_tokens);
    fields_.integer("min_tokens", r.min_tokens, 0, std::numeric_limits<int32_t>::max());
    if (fields_.has("allowed_token_ids")) {
      fields_.ids("allowed_token_ids", allowed_ids_, model_.vocab_size - 1);
      if (allowed_ids_.empty())
        fields_.fail("allowed_token_ids", "allowed_token_ids is an empty list; give at least one token id");
    }
    fields_.integer("priority", r.priority, 0, std::numeric_limits<int32_t>::max());
    read_cache_salt(r);
  }

  // Of both, one could leave no token that the other allows.
  void allow_ids() {
    if (allowed_ids_.empty() || !fields_.ok()) return;
    const auto constraint = std::make_shared<AllowedIds>(allowed_ids_, model_.vocab_size);
    for (EngineRequest& prompt : request_.prompts) {
      Request& of = prompt.request;
      if (of.constraint != nullptr)
        return fields_.fail("allowed_token_ids",
                            "allowed_token_ids leaves no room for a form of the answer or a forced call; use one");
      const bool none_at_first = of.min_tokens > 0 && std::ranges::all_of(allowed_ids_, [&](int32_t id) {
                                   return std::ranges::find(of.stop_token_ids, id) != of.stop_token_ids.end();
                                 });
      if (none_at_first)
        return fields_.fail("allowed_token_ids",
                            "allowed_token_ids has but tokens that end the answer, which min_tokens forbids at first");
      of.constraint = constraint;
    }
  }

  void read_cache_salt(Request& r) {
    fields_.text("cache_salt", r.cache_salt);
    if (!fields_.has("cache_salt")) return;
    // What could be taken for a path or end a string somewhere.
    const bool clean = r.cache_salt.find_first_of(std::string_view("@/\\\0", 4)) == std::string::npos;
    if (r.cache_salt.empty() || r.cache_salt.size() > kMostSaltBytes || !clean) {
      fields_.fail("cache_salt",
                   fmt::format("cache_salt must have 1 to {} bytes, none of them @, /, \\ or NUL", kMostSaltBytes));
    }
  }

  void read_logit_bias(Request& r) {
    const json::value* value = fields_.find("logit_bias");
    if (value == nullptr) return;
    if (!value->is_object()) return fields_.fail("logit_bias", "logit_bias must be an object of token id to bias");
    if (value->get_object().size() > kMostBiases) {
      return fields_.fail("logit_bias", fmt::format("logit_bias has {} tokens, and at most {} are allowed",
                                                    value->get_object().size(), kMostBiases));
    }
    for (const auto& [key, bias] : value->get_object()) {
      int32_t token = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
      if (error != std::errc() || end != key.data() + key.size() || token < 0 || token >= model_.vocab_size) {
        return fields_.fail("logit_bias",
                            fmt::format("logit_bias has the key '{}', but keys are token ids from 0 to {}",
                                        std::string_view(key), model_.vocab_size - 1));
      }
      const double number = bias.is_number() ? bias.to_number<double>() : 1e9;
      if (!(number >= -100 && number <= 100)) {
        return fields_.fail("logit_bias",
                            fmt::format("logit_bias of token {} must be a number from -100 to 100, not {}", token,
                                        shown_to_client(bias)));
      }
      r.logit_bias.push_back({.token = token, .bias = static_cast<float>(number)});
    }
  }

  void read_bad_words(Request& r) {
    std::vector<std::string> words;
    fields_.texts("bad_words", words, kMaxBadWords);
    Result<std::vector<std::vector<int32_t>>> ids = encode_bad_words(*model_.tokenizer, words);
    if (!ids.ok()) return fields_.fail("bad_words", ids.error().message());
    r.bad_words = std::move(*ids);
  }

  // string, [string], [id] or [[id]]
  void read_prompts() {
    const json::value* prompt = fields_.find("prompt");
    if (prompt == nullptr) {
      return fields_.fail("prompt", "prompt is missing; give a string, a list of strings, or lists of token ids",
                          "missing_required_parameter");
    }
    bool add_special = true;
    fields_.boolean("add_special_tokens", add_special);
    fields_.boolean("echo", echo_);
    request_.echoes = echo_;
    if (!prompt->is_array()) return add_prompt(*prompt, add_special);
    const json::array& list = prompt->get_array();
    if (list.empty()) return fields_.fail("prompt", "prompt is an empty list; give at least one prompt");
    if (list[0].is_number()) return add_prompt(*prompt, add_special);
    if (list.size() > kMostPrompts)
      return fields_.fail("prompt",
                          fmt::format("prompt has {} items, and at most {} are allowed", list.size(), kMostPrompts));
    for (const json::value& item : list) add_prompt(item, add_special);
  }

  void add_prompt(const json::value& value, bool add_special) {
    if (!fields_.ok()) return;
    std::vector<int32_t> ids;
    std::string echoed;
    if (value.is_string()) {
      const std::string_view text = value.get_string();
      if (text.empty()) return fields_.fail("prompt", "the prompt is empty; give at least one character");
      Result<std::vector<TokenId>> encoded = model_.tokenizer->encode(text, {.add_special = add_special});
      if (!encoded.ok()) return fields_.fail("prompt", encoded.error().message());
      ids = std::move(*encoded);
      echoed = text;
    } else {
      json::object wrapped{{"prompt", value}};
      JsonFields one(wrapped);
      one.ids("prompt", ids, model_.vocab_size - 1);
      if (!one.ok()) return fields_.fail(one.error());
      if (ids.empty()) return fields_.fail("prompt", "the prompt is empty; give at least one token");
      if (echo_) echoed = model_.tokenizer->decode(ids, base_.skip_special_tokens);
    }
    add(std::move(ids));
    request_.echo.push_back(echo_ ? std::move(echoed) : std::string());
  }

  void add(std::vector<int32_t> ids) {
    request_.prompts.push_back(base_);
    request_.prompts.back().request.prompt = std::move(ids);
  }

  void read_messages() {
    if (fields_.ok() && model_.chat == nullptr)
      return fields_.fail({.status = 400, .message = model_.no_chat, .code = "unsupported_model"});
    const json::value* list = fields_.find("messages");
    if (list == nullptr || !list->is_array() || list->get_array().empty()) {
      return fields_.fail("messages", "messages must be a list of at least one message",
                          list == nullptr ? "missing_required_parameter" : "invalid_value");
    }
    std::vector<ChatMessage> messages;
    for (const json::value& item : list->get_array()) {
      messages.emplace_back();
      read_message(item, messages.size() - 1, messages.back());
      if (!fields_.ok()) return;
    }
    ChatOptions options;
    fields_.boolean("add_generation_prompt", options.add_generation_prompt);
    read_thinking(options);
    read_tools(options);
    if (!fields_.ok()) return;
    Result<std::vector<ChatPiece>> pieces = render_chat(model_.chat->format(), messages, options);
    if (!pieces.ok()) return fields_.fail("messages", pieces.error().message());
    if (model_.answers && !opens_an_answer(messages, options, *pieces)) {
      return fields_.fail("messages",
                          fmt::format("the last message has the role '{}', behind which no answer begins in this "
                                      "model's format; end with a user's message or a tool's result",
                                      to_string(messages.back().role)));
    }
    Result<std::vector<TokenId>> ids = model_.chat->encode(messages, options);
    if (!ids.ok()) return fields_.fail("messages", ids.error().message());
    request_.chat_format = model_.chat->format();
    request_.starts_thinking = model_.chat->starts_thinking(*pieces);
    request_.tools = std::move(options.tools);
    answer_start_.thinking = request_.starts_thinking;
    // Formats whose prompts leave it to the model to open the block.
    const bool opens_itself =
        request_.chat_format == ChatFormat::kGlm45 || request_.chat_format == ChatFormat::kKimiK2Thinking;
    answer_start_.may_think = opens_itself && !request_.starts_thinking && pieces->back().text != "</think>";
    base_.skip_special_tokens = false;  // what ends thinking is a special token in some vocabularies
    if (!base_.ignore_eos) {
      const std::vector<TokenId>& ends = model_.chat->stop_ids();
      base_.request.stop_token_ids.insert(base_.request.stop_token_ids.end(), ends.begin(), ends.end());
    }
    add(std::move(*ids));
    request_.echo.emplace_back();
  }

  // Some formats open an answer behind users' messages and tools' results alone: behind another's the model would make
  // up a text of its own.
  bool opens_an_answer(const std::vector<ChatMessage>& messages, ChatOptions options,
                       const std::vector<ChatPiece>& pieces) const {
    const ChatRole last = messages.back().role;
    if (!options.add_generation_prompt || last == ChatRole::kUser || last == ChatRole::kTool) return true;
    options.add_generation_prompt = false;
    const Result<std::vector<ChatPiece>> without = render_chat(model_.chat->format(), messages, options);
    return !without.ok() || *without != pieces;
  }

  // Tools that the model is told of, and whose calls are read from its answer.
  void read_tools(ChatOptions& options) {
    const json::value* list = fields_.find("tools");
    if (list != nullptr && !list->is_array())
      return fields_.fail("tools", fmt::format("tools must be a list, not {}", kind_of(*list)));
    if (list != nullptr && list->get_array().size() > kMostTools) {
      return fields_.fail(
          "tools", fmt::format("tools has {} items, and at most {} are allowed", list->get_array().size(), kMostTools));
    }
    std::vector<std::string_view> names;
    for (size_t i = 0; list != nullptr && i < list->get_array().size(); ++i) {
      const json::value& tool = list->get_array()[i];
      const json::value* type = member_of(&tool, "type");
      const json::value* function = member_of(&tool, "function");
      const json::value* name = member_of(function, "name");
      if (type == nullptr || *type != "function" || name == nullptr || !name->is_string() ||
          name->get_string().empty()) {
        return fields_.fail("tools", fmt::format("tools[{}] must be {{\"type\": \"function\", \"function\": "
                                                 "{{\"name\": ..., \"parameters\": ...}}}}",
                                                 i));
      }
      const json::value* parameters = member_of(function, "parameters");
      if (parameters != nullptr && !parameters->is_object() && !parameters->is_null()) {
        return fields_.fail("tools",
                            fmt::format("the parameters of tools[{}] must be a JSON schema, which is an object, "
                                        "not {}",
                                        i, kind_of(*parameters)));
      }
      names.emplace_back(name->get_string());
      options.tools.push_back(json::serialize(tool));
    }
    read_tool_choice(options, names);
  }

  void read_tool_choice(ChatOptions& options, const std::vector<std::string_view>& names) {
    bool several = true;
    fields_.boolean("parallel_tool_calls", several);
    const json::value* choice = fields_.find("tool_choice");
    if (choice == nullptr || *choice == "auto") return;
    if (*choice == "none") return options.tools.clear();
    const json::value* name = member_of(member_of(choice, "function"), "name");
    if (*choice != "required" && (name == nullptr || !name->is_string())) {
      return fields_.fail("tool_choice",
                          "tool_choice must be \"none\", \"auto\", \"required\" or "
                          "{\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
    if (name != nullptr && std::ranges::find(names, std::string_view(name->get_string())) == names.end()) {
      return fields_.fail("tool_choice", fmt::format("tool_choice names '{}', which is not among the tools",
                                                     std::string_view(name->get_string())));
    }
    if (names.empty()) {
      return fields_.fail("tool_choice", "tool_choice asks for a call, but there are no tools");
    }
    OutputForm form{.kind = OutputForm::Kind::kToolCalls, .format = model_.chat->format(), .tools = options.tools};
    form.several_calls = several && name == nullptr;
    if (name != nullptr) {
      const auto at = std::ranges::find(names, std::string_view(name->get_string())) - names.begin();
      form.tools = {options.tools[static_cast<size_t>(at)]};
    }
    forced_calls_ = std::move(form);
  }

  void read_message(const json::value& value, size_t index, ChatMessage& message) {
    if (!value.is_object())
      return fields_.fail("messages", fmt::format("messages[{}] must be an object, not {}", index, kind_of(value)));
    JsonFields of(value.get_object());
    std::string role;
    of.text("role", role);
    if (role == "system") {
      message.role = ChatRole::kSystem;
    } else if (role == "developer") {
      message.role = ChatRole::kDeveloper;
    } else if (role == "user") {
      message.role = ChatRole::kUser;
    } else if (role == "assistant") {
      message.role = ChatRole::kAssistant;
    } else if (role == "tool") {
      message.role = ChatRole::kTool;
    } else {
      of.fail("role", fmt::format("role is '{}'; use system, developer, user, assistant or tool", role));
    }
    if (message.role != ChatRole::kAssistant && of.find("content") == nullptr)
      of.fail("content", "content is missing; give a string or a list of text parts");
    read_content(of, message.content);
    for (const char* name : {"reasoning_content", "reasoning"}) {
      std::string reasoning;
      of.text(name, reasoning);
      if (!reasoning.empty() && !message.reasoning_content) message.reasoning_content = reasoning;
    }
    for (const char* name : {"prefix", "partial", "function_call"}) {
      const json::value* asked = of.find(name);
      if (asked != nullptr && *asked != false)
        of.fail(name,
                fmt::format("{} is not supported: {}", name,
                            name == "function_call"sv ? "use tool_calls" : "an answer begins a message of its own"));
    }
    of.text("name", message.name);
    of.text("tool_call_id", message.tool_call_id);
    if (const json::value* calls = of.find("tool_calls")) read_tool_calls(of, *calls, message);
    if (!of.ok()) {
      OpenAiError error = of.error();
      error.message = fmt::format("messages[{}]: {}", index, error.message);
      error.param = "messages";
      fields_.fail(std::move(error));
    }
  }

  // A string, or a list of {"type": "text", "text": ...}.
  static void read_content(JsonFields& of, std::string& content) {
    const json::value* value = of.find("content");
    if (value == nullptr || value->is_string()) return of.text("content", content);
    if (!value->is_array())
      return of.fail("content", fmt::format("content must be a string or a list of parts, not {}", kind_of(*value)));
    for (const json::value& item : value->get_array()) {
      const json::object* part = item.if_object();
      const json::value* type = part != nullptr ? part->if_contains("type") : nullptr;
      const json::value* text = part != nullptr ? part->if_contains("text") : nullptr;
      if (type == nullptr || !type->is_string() || type->get_string() != "text" || text == nullptr ||
          !text->is_string()) {
        return of.fail("content", "content has a part that is no text; this model takes text only");
      }
      content += std::string_view(text->get_string());
    }
  }

  static void read_tool_calls(JsonFields& of, const json::value& calls, ChatMessage& message) {
    if (!calls.is_array()) return of.fail("tool_calls", "tool_calls must be a list");
    for (const json::value& item : calls.get_array()) {
      const json::object* call = item.if_object();
      const json::value* function = call != nullptr ? call->if_contains("function") : nullptr;
      if (function == nullptr || !function->is_object())
        return of.fail("tool_calls", "tool_calls has an item without a function");
      ChatToolCall& to = message.tool_calls.emplace_back();
      JsonFields of_call(*call);
      of_call.text("id", to.id);
      JsonFields of_function(function->get_object());
      of_function.text("name", to.name);
      of_function.text("arguments", to.arguments);
      if (!of_call.ok()) return of.fail(of_call.error());
      if (!of_function.ok()) return of.fail(of_function.error());
      if (to.name.empty()) return of.fail("tool_calls", "tool_calls has a call without the name of its function");
    }
  }

  // chat_template_kwargs {"thinking"} or {"enable_thinking"}, DeepSeek's {"thinking": {"type": "enabled"}}, or
  // reasoning_effort, of which "none" is thinking or not and the others are for models that know them: of GLM-5.2's
  // two, "xhigh" and "max" are the greater and the rest is the lesser, as its publisher's service has it.
  void read_thinking(ChatOptions& options) {
    std::string effort;
    fields_.text("reasoning_effort", effort);
    constexpr std::string_view kEfforts[] = {"", "none", "minimal", "low", "medium", "high", "xhigh", "max"};
    if (std::ranges::find(kEfforts, effort) == std::end(kEfforts)) {
      return fields_.fail(
          "reasoning_effort",
          fmt::format("reasoning_effort is '{}'; use none, minimal, low, medium, high, xhigh or max", effort));
    }
    if (effort == "none") {
      options.thinking = false;
    } else if (!effort.empty()) {
      options.effort = effort == "xhigh" || effort == "max" ? ReasoningEffort::kMax : ReasoningEffort::kHigh;
    }
    if (const json::value* value = fields_.find("chat_template_kwargs")) {
      if (!value->is_object()) return fields_.fail("chat_template_kwargs", "chat_template_kwargs must be an object");
      for (const auto& [name, on] : value->get_object()) {
        if (on.is_null()) continue;
        if ((name != "thinking" && name != "enable_thinking") || !on.is_bool())
          return fields_.fail("chat_template_kwargs",
                              "chat_template_kwargs may have thinking and enable_thinking, which are true or false");
        options.thinking = on.get_bool();
      }
    }
    bool on = false;
    fields_.boolean("enable_thinking", on);
    if (fields_.has("enable_thinking")) options.thinking = on;
    if (const json::value* value = fields_.find("thinking")) {
      std::string type;
      if (value->is_object()) {
        JsonFields of(value->get_object());
        of.text("type", type);
      }
      if (type != "enabled" && type != "disabled")
        return fields_.fail("thinking", "thinking must be {\"type\": \"enabled\"} or {\"type\": \"disabled\"}");
      options.thinking = type == "enabled";
    }
  }

  void read_length() {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    int32_t asked = is_chat() ? 0 : kDefaultMaxTokens;
    fields_.integer("max_tokens", asked, echo_ ? 0 : 1, kMost);
    // An echo alone: one token runs and is not shown.
    request_.hides_output = !is_chat() && asked == 0;
    if (request_.hides_output) asked = 1;
    if (is_chat()) fields_.integer("max_completion_tokens", asked, 1, kMost);
    for (EngineRequest& prompt : request_.prompts) {
      const auto length = static_cast<int64_t>(prompt.request.prompt.size());
      const int64_t room = model_.max_model_len - length;
      if (room < 1 || asked > room) {
        return fields_.fail({.status = 400,
                             .message = fmt::format("the prompt has {} tokens and {} more are asked for, but the "
                                                    "context holds {}; shorten the prompt or ask for fewer",
                                                    length, asked == 0 ? 1 : asked, model_.max_model_len),
                             .param = is_chat() ? "messages" : "prompt",
                             .code = "context_length_exceeded"});
      }
      prompt.request.max_tokens = asked > 0 ? asked : static_cast<int32_t>(room);
    }
  }

  // completions: logprobs is a number; chats: logprobs is true or false, and top_logprobs a number.
  void read_logprobs() {
    if (fields_.ok() && model_.max_logprobs < 0) {
      for (const char* name : {"logprobs", "top_logprobs", "prompt_logprobs"}) {
        if (fields_.has(name)) unsupported(name, "this server gives no log-probabilities; raise --max-logprobs");
      }
    }
    const auto read = [&](const char* name, int32_t& into) { fields_.integer(name, into, 0, model_.max_logprobs); };
    read("prompt_logprobs", request_.prompt_logprobs);
    if (request_.streams && request_.prompt_logprobs > 0)
      return unsupported("prompt_logprobs", "a stream does not tell those of the prompt; ask without stream");
    if (is_chat()) {
      bool wanted = false;
      int32_t top = 0;
      fields_.boolean("logprobs", wanted);
      read("top_logprobs", top);
      if (fields_.has("top_logprobs") && top > 0 && !wanted)
        return fields_.fail("top_logprobs", "top_logprobs needs logprobs; set that to true");
      if (wanted) request_.logprobs = top;
    } else {
      read("logprobs", request_.logprobs);
    }
    const int32_t of_prompt = std::max(request_.prompt_logprobs, echo_ ? request_.logprobs : -1);
    for (EngineRequest& prompt : request_.prompts) {
      prompt.request.logprobs = request_.logprobs;
      prompt.request.prompt_logprobs = of_prompt;
    }
  }

  const json::object& body_;
  JsonFields fields_;
  const OpenAiModel& model_;
  uint64_t next_seed_;
  bool echo_ = false;
  EngineRequest base_;                // what all prompts of the request share
  std::vector<int32_t> allowed_ids_;  // empty: all
  std::optional<OutputForm> forced_calls_;
  AnswerStart answer_start_;
  OpenAiRequest request_;
};

}  // namespace

std::optional<OpenAiEndpoint> parse_openai_endpoint(std::string_view path) {
  if (path == "/v1/completions") return OpenAiEndpoint::kCompletions;
  if (path == "/v1/chat/completions") return OpenAiEndpoint::kChatCompletions;
  return std::nullopt;
}

OpenAiError openai_error_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kOutOfMemory:
      return {.status = 503, .message = error.message(), .type = "unavailable_error", .code = "queue_full"};
    case ErrorCode::kUnsupported:
      return {.status = 503, .message = error.message(), .type = "unavailable_error", .code = "unavailable"};
    default: return {.status = 400, .message = error.message(), .code = "invalid_value"};
  }
}

std::variant<OpenAiRequest, OpenAiError> read_openai_request(OpenAiEndpoint endpoint, std::string_view body,
                                                             const OpenAiModel& model, uint64_t next_seed) {
  const std::variant<json::object, OpenAiError> document = parse_body(body);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&document)) return *error;
  return Reader(endpoint, std::get<json::object>(document), model, next_seed).read();
}

}  // namespace lantern
