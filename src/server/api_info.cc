// What tells of the server and its model: health, metrics, models.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <charconv>

#include "server/api_call.h"

namespace lantern {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kDeepHealthTime{10};

// %XX becomes its byte; nothing where it is none.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned char byte = 0;
    if (i + 3 > text.size()) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16);
    if (error != std::errc() || end != text.data() + i + 3) return std::nullopt;
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

// The layer that requests with return_selections are told of.
json::value traced_layer(const ServedModel& model) {
  return model.loaded.traced_layer < 0 ? json::value() : json::value(model.loaded.traced_layer);
}

json::object model_card(const std::string& name, const ServedModel& model, int64_t created) {
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "lantern"},
          {"root", model.api.names.front()},
          {"parent", nullptr},
          {"max_model_len", model.api.max_model_len},
          {"meta", json::object{{"n_vocab", model.api.vocab_size},
                                {"n_ctx_train", model.loaded.config->max_position_embeddings},
                                {"index_topk", model.loaded.config->index_topk},
                                {"traced_layer", traced_layer(model)},
                                {"size", model.loaded.weight_bytes}}},
          {"permission", json::array{}}};
}

// Names that a client may see: the last one is the folder's path.
std::span<const std::string> public_names(const ServedModel& model) {
  return std::span(model.api.names).first(model.api.names.size() - 1);
}

}  // namespace

void ApiServer::get_health(const CallPtr& call) {
  const auto fail = [&](std::string message, std::string code) {
    call->reply_error({.status = 503,
                       .message = std::move(message),
                       .type = "unavailable_error",
                       .code = std::move(code),
                       .retry_after_seconds = 5});
  };
  if (ready_) {
    if (const std::optional<Error> lost = model_->loaded.engine->lost())
      return fail(fmt::format("the engine has stopped: {}", lost->message()), "engine_dead");
    const std::chrono::milliseconds stalled(stalled_ms_);
    if (stalled > settings_.stalled_after)
      return fail(fmt::format("no step has ended for {} s", stalled.count() / 1000), "engine_stalled");
  }
  if (call->request().query != "deep=1") return call->reply(200, R"({"status":"ok"})");

  if (paused_) return fail("an operator has paused the server; no token is made before /resume", "paused");
  // Only a token proves that tokens can be made.
  if (const std::optional<OpenAiError> error = unavailable()) {
    call->reply_error(*error);
    return;
  }
  EngineRequest request;
  request.request.prompt = {0};
  request.request.max_tokens = 1;
  request.ignore_eos = true;
  request.timeout = kDeepHealthTime;
  Result<RequestHandle> handle = model_->loaded.engine->submit(std::move(request), [call](Output&& output) {
    if (!output.ended()) return;
    if (output.end_reason == EndReason::kLength) return call->reply(200, R"({"status":"ok","tokens":1})");
    call->reply_error(
        {.status = 503,
         .message = fmt::format("no token was made: {}",
                                output.end_reason == EndReason::kDeadline ? "it took more than 10 s" : output.error),
         .type = "unavailable_error",
         .code = "no_token"});
  });
  if (!handle.ok()) fail(handle.error().message(), "no_token");
}

void ApiServer::get_ready(const CallPtr& call) {
  if (std::optional<OpenAiError> error = unavailable()) {
    error->retry_after_seconds = 2;
    call->reply_error(*error);
    return;
  }
  if (paused_) {
    call->reply_error({.status = 503,
                       .message = "an operator has paused the server; requests wait for /resume",
                       .type = "unavailable_error",
                       .code = "paused",
                       .retry_after_seconds = 2});
    return;
  }
  call->reply(200, R"({"status":"ready"})");
}

void ApiServer::get_version(const CallPtr& call) {
  call->reply(200, json::serialize(json::object{{"version", settings_.version}}));
}

void ApiServer::get_metrics(const CallPtr& call) {
  ServerMetrics::Now now;
  now.version = settings_.version;
  if (const HttpServer* http = http_) now.http = http->stats();
  if (settings_.traces != nullptr) now.traces = settings_.traces->counts();
  if (ready_) {
    const Engine& engine = *model_->loaded.engine;
    now.engine = engine.report();
    now.settings = engine.settings();
    now.model = model_->api.names.front();
    now.kv_cache_dtype = model_->kv_cache_dtype;
    // Those that the engine has counted are in its report.
    now.waiting_here = std::max<int64_t>(0, admission_->waiting() - now.engine.num_waiting - now.engine.num_running);
  }
  call->reply(200, metrics_.text(now), "text/plain; version=0.0.4; charset=utf-8");
}

void ApiServer::get_load(const CallPtr& call) {
  const EngineReport report = model_->loaded.engine->report();
  json::object load;
  load["server_load"] = admission_->live();
  load["running"] = report.num_running;
  load["waiting"] = report.num_waiting;
  call->reply(200, json::serialize(load));
}

void ApiServer::get_models(const CallPtr& call) {
  json::array cards;
  for (const std::string& name : public_names(*model_)) cards.emplace_back(model_card(name, *model_, created_));
  call->reply(200, json::serialize(json::object{{"object", "list"}, {"data", std::move(cards)}}));
}

void ApiServer::get_model(const CallPtr& call) {
  const std::optional<std::string> name =
      percent_decoded(std::string_view(call->request().path).substr(call->route->path.size()));
  const auto names = public_names(*model_);
  if (!name || std::ranges::find(names, *name) == names.end()) {
    call->reply_error({.status = 404,
                       .message = fmt::format("the model '{}' is not served here; ask for '{}'", name.value_or(""),
                                              model_->api.names.front()),
                       .type = "not_found_error",
                       .param = "model",
                       .code = "model_not_found"});
    return;
  }
  call->reply(200, json::serialize(model_card(*name, *model_, created_)));
}

void ApiServer::no_response(const CallPtr& call) {
  const std::string& path = call->request().path;
  if (call->request().method == "POST" && !path.ends_with("/cancel")) {
    call->reply_error({.status = 404,
                       .message = fmt::format("there is no {}; of responses there is POST /v1/responses", path),
                       .type = "not_found_error",
                       .code = "unknown_url"});
    return;
  }
  call->reply_error({.status = 404,
                     .message = "responses are not stored, so none can be read, cancelled or deleted; send the "
                                "conversation as input, and close the connection to cancel",
                     .type = "not_found_error",
                     .param = "response_id",
                     .code = "response_not_found"});
}

}  // namespace lantern
