// Text to tokens and back, and requests as the model sees them. The shapes are vLLM's; llama-server's names for the
// same members are taken too.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <limits>

#include "server/anthropic.h"
#include "server/api_call.h"
#include "server/json_fields.h"

namespace lantern {
namespace {

namespace json = boost::json;

// A prompt may be longer than the context, since how long it is is the question, and end as it likes.
OpenAiModel without_answers(OpenAiModel model) {
  model.max_model_len = std::numeric_limits<int32_t>::max();
  model.answers = false;
  return model;
}

std::variant<std::vector<int32_t>, OpenAiError> tokens_of(const json::object& body, const OpenAiModel& model) {
  if (body.contains("messages")) {
    json::object chat = body;
    chat["max_tokens"] = 1;
    chat["stream"] = false;
    std::variant<OpenAiRequest, OpenAiError> read =
        read_openai_request(OpenAiEndpoint::kChatCompletions, json::serialize(chat), without_answers(model), 0);
    if (OpenAiError* error = std::get_if<OpenAiError>(&read)) return std::move(*error);
    return std::move(std::get<OpenAiRequest>(read).prompts.front().request.prompt);
  }
  JsonFields fields(body);
  std::string text;
  const bool is_content = !fields.has("prompt") && fields.has("content");
  if (!fields.has("prompt") && !fields.has("content"))
    fields.fail("prompt", "prompt is missing; give a string, or messages", "missing_required_parameter");
  fields.text(is_content ? "content" : "prompt", text);
  EncodeOptions options{.add_special = !is_content};
  fields.boolean("add_special_tokens", options.add_special);
  fields.boolean("add_special", options.add_special);
  fields.boolean("parse_special", options.parse_special);
  if (!fields.ok()) return fields.error();
  Result<std::vector<TokenId>> ids = model.tokenizer->encode(text, options);
  if (!ids.ok()) return OpenAiError{.message = ids.error().message(), .param = "prompt", .code = "invalid_value"};
  return std::move(*ids);
}

}  // namespace

void ApiServer::post_tokenize(const CallPtr& call) {
  std::variant<json::object, OpenAiError> body = parse_body(call->request().body);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&body)) return void(call->reply_error(*error));
  const json::object& object = std::get<json::object>(body);
  bool with_texts = false;
  bool with_pieces = false;
  JsonFields fields(object);
  fields.boolean("return_token_strs", with_texts);
  fields.boolean("with_pieces", with_pieces);
  if (!fields.ok()) return void(call->reply_error(fields.error()));
  const std::variant<std::vector<int32_t>, OpenAiError> read = tokens_of(object, model_->api);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&read)) return void(call->reply_error(*error));
  const auto& ids = std::get<std::vector<int32_t>>(read);
  const Tokenizer& tokenizer = *model_->api.tokenizer;
  json::array tokens;
  json::array texts;
  for (const int32_t& id : ids) {
    if (with_pieces) {
      tokens.emplace_back(json::object{{"id", id}, {"piece", tokenizer.decode({&id, 1})}});
    } else {
      tokens.emplace_back(id);
    }
    if (with_texts) texts.emplace_back(tokenizer.decode({&id, 1}));
  }
  json::object answer{
      {"count", ids.size()}, {"max_model_len", model_->api.max_model_len}, {"tokens", std::move(tokens)}};
  answer["token_strs"] = with_texts ? json::value(std::move(texts)) : json::value();
  call->reply(200, json::serialize(answer));
}

// Anthropic's: how many tokens a request to /v1/messages has.
void ApiServer::post_count_tokens(const CallPtr& call) {
  const std::variant<std::string, OpenAiError> chat = chat_of_messages(call->request().body, false);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&chat)) return void(call->reply_error(*error));
  std::variant<json::object, OpenAiError> body = parse_body(std::get<std::string>(chat));
  if (const OpenAiError* error = std::get_if<OpenAiError>(&body)) return void(call->reply_error(*error));
  const std::variant<std::vector<int32_t>, OpenAiError> ids = tokens_of(std::get<json::object>(body), model_->api);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&ids))
    return void(call->reply_error(message_error_of(*error)));
  json::object answer;
  answer["input_tokens"] = std::get<std::vector<int32_t>>(ids).size();
  call->reply(200, json::serialize(answer));
}

void ApiServer::post_detokenize(const CallPtr& call) {
  std::variant<json::object, OpenAiError> body = parse_body(call->request().body);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&body)) return void(call->reply_error(*error));
  JsonFields fields(std::get<json::object>(body));
  std::vector<int32_t> ids;
  if (!fields.has("tokens"))
    fields.fail("tokens", "tokens is missing; give a list of token ids", "missing_required_parameter");
  fields.ids("tokens", ids, model_->api.vocab_size - 1);
  if (!fields.ok()) return void(call->reply_error(fields.error()));
  const std::string text = model_->api.tokenizer->decode(ids);
  call->reply(200, json::serialize(json::object{{"prompt", text}, {"content", text}}));
}

void ApiServer::get_tokenizer_info(const CallPtr& call) {
  if (!settings_.tokenizer_info) {
    call->reply_error({.status = 404,
                       .message =
                           "the tokenizer is not told of, since a chat template may be private; start the server "
                           "with --enable-tokenizer-info-endpoint",
                       .type = "not_found_error",
                       .code = "endpoint_disabled"});
    return;
  }
  const Tokenizer& tokenizer = *model_->api.tokenizer;
  const auto text_of = [&](std::optional<TokenId> id) {
    return id ? json::value(tokenizer.decode({&*id, 1})) : json::value();
  };
  const std::string_view chat_template = tokenizer.chat_template();
  call->reply(200, json::serialize(json::object{
                       {"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"bos_token", text_of(tokenizer.bos_id())},
                       {"eos_token", text_of(tokenizer.eos_id())},
                       {"pad_token", text_of(tokenizer.pad_id())},
                       {"model_max_length", model_->api.max_model_len},
                       {"vocab_size", tokenizer.vocab_size()},
                       {"chat_template", chat_template.empty() ? json::value() : json::value(chat_template)}}));
}

void ApiServer::post_render(const CallPtr& call) {
  std::string_view path = call->request().path;
  path.remove_suffix(std::string_view("/render").size());
  const std::variant<OpenAiRequest, OpenAiError> read =
      read_openai_request(*parse_openai_endpoint(path), call->request().body, model_->api, 0);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&read)) return void(call->reply_error(*error));
  const OpenAiRequest& request = std::get<OpenAiRequest>(read);
  json::array prompts;
  for (const EngineRequest& prompt : request.prompts) {
    const Request& of = prompt.request;
    prompts.emplace_back(json::object{{"prompt", model_->api.tokenizer->decode(of.prompt)},
                                      {"prompt_token_ids", json::value_from(of.prompt)},
                                      {"max_tokens", of.max_tokens}});
  }
  call->reply(200,
              json::serialize(json::object{{"model", model_->api.names.front()}, {"prompts", std::move(prompts)}}));
}

}  // namespace lantern
