#include "server/api_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <random>
#include <span>

#include "base/unix_time.h"
#include "server/anthropic.h"
#include "server/api_call.h"
#include "server/generation.h"

namespace lantern {
namespace {

constexpr std::string_view kJson = "application/json";
constexpr size_t kMostIdBytes = 128;

bool is_json(std::string_view content_type) {
  const std::string_view media = content_type.substr(0, content_type.find(';'));
  const std::string_view trimmed = media.substr(0, media.find_last_not_of(" \t") + 1);
  return http_equal(trimmed, kJson) || (trimmed.size() > 5 && http_equal(trimmed.substr(trimmed.size() - 5), "+json"));
}

std::string_view type_of_status(int32_t status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 408:
    case 504: return "timeout_error";
    case 500: return "server_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return "invalid_request_error";
  }
}

}  // namespace

std::string random_id() {
  thread_local std::mt19937_64 random{uint64_t{std::random_device{}()} << 32 | std::random_device{}()};
  const uint64_t high = random();
  return fmt::format("{:016x}{:016x}", high, random());
}

bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= kMostIdBytes && std::ranges::all_of(id, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.' || c == ':';
  });
}

std::span<const ApiRoute> ApiServer::routes() {
  using enum ApiAuth;
  static constexpr std::array kRoutes = {
      ApiRoute{"POST", "/v1/completions", &ApiServer::post_generate, true, false},
      ApiRoute{"POST", "/v1/chat/completions", &ApiServer::post_generate, true, false},
      ApiRoute{"POST", "/v1/responses", &ApiServer::post_generate, true, false},
      ApiRoute{"GET", "/v1/responses/", &ApiServer::no_response, false, false},
      ApiRoute{"POST", "/v1/responses/", &ApiServer::no_response, false, false, kUser, false},
      ApiRoute{"DELETE", "/v1/responses/", &ApiServer::no_response, false, false},
      ApiRoute{"POST", "/v1/messages", &ApiServer::post_generate, true, false},
      ApiRoute{"POST", "/v1/messages/count_tokens", &ApiServer::post_count_tokens, true, true},
      ApiRoute{"POST", "/v1/completions/render", &ApiServer::post_render, true, true},
      ApiRoute{"POST", "/v1/chat/completions/render", &ApiServer::post_render, true, true},
      ApiRoute{"GET", "/v1/models", &ApiServer::get_models, true, false},
      ApiRoute{"GET", "/v1/models/", &ApiServer::get_model, true, false},
      ApiRoute{"POST", "/tokenize", &ApiServer::post_tokenize, true, true},
      ApiRoute{"POST", "/detokenize", &ApiServer::post_detokenize, true, true},
      ApiRoute{"GET", "/tokenizer_info", &ApiServer::get_tokenizer_info, true, false},
      ApiRoute{"GET", "/load", &ApiServer::get_load, true, false},
      ApiRoute{"POST", "/abort", &ApiServer::post_abort, false, false, kAdmin},
      ApiRoute{"POST", "/flush_cache", &ApiServer::post_flush_cache, false, false, kAdmin, false},
      ApiRoute{"POST", "/drain", &ApiServer::post_drain, false, false, kAdmin, false},
      ApiRoute{"POST", "/pause", &ApiServer::post_pause, false, false, kAdmin, false},
      ApiRoute{"POST", "/resume", &ApiServer::post_resume, false, false, kAdmin, false},
      ApiRoute{"POST", "/start_profile", &ApiServer::post_start_profile, false, false, kAdmin, false},
      ApiRoute{"POST", "/stop_profile", &ApiServer::post_stop_profile, false, true, kAdmin, false},
      ApiRoute{"GET", "/requests", &ApiServer::get_requests, false, false, kAdmin},
      ApiRoute{"GET", "/statistics", &ApiServer::get_statistics, false, false, kAdmin},
      ApiRoute{"GET", "/health", &ApiServer::get_health, false, false, kNone},
      ApiRoute{"GET", "/ready", &ApiServer::get_ready, false, false, kNone},
      ApiRoute{"GET", "/ping", &ApiServer::get_health, false, false, kNone},
      ApiRoute{"GET", "/version", &ApiServer::get_version, false, false, kNone},
      ApiRoute{"GET", "/v1/version", &ApiServer::get_version, false, false, kNone},
      ApiRoute{"GET", "/metrics", &ApiServer::get_metrics, false, false, kNone},
      ApiRoute{"GET", "/", &ApiServer::get_page, false, false, kNone},
      ApiRoute{"GET", "/web/", &ApiServer::get_page, false, false, kNone},
  };
  return kRoutes;
}

ApiServer::ApiServer(ApiSettings settings)
    : settings_(std::move(settings)),
      log_(settings_.access_log, settings_.log_descriptor),
      admission_(std::make_shared<AdmissionControl>(settings_.admission)),
      next_seed_(uint64_t{std::random_device{}()} << 32),
      created_(unix_seconds()),
      work_(std::max(settings_.workers, 1)) {}

ApiServer::~ApiServer() {
  end_all("the server is shutting down");
  work_.stop();
  // The engine's threads hold generations, which use this: they end here.
  if (model_ != nullptr) model_->loaded.engine.reset();
}

void ApiServer::attach(std::unique_ptr<ServedModel> model) {
  model_ = std::move(model);
  ready_ = true;
}

void ApiServer::begin_drain() {
  stopping_ = true;
  set_paused(false);
}

bool ApiServer::wait_until_idle(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, timeout, [&] { return open_calls_ == 0; });
}

bool ApiServer::idle() const {
  const std::lock_guard lock(mutex_);
  return open_calls_ == 0;
}

void ApiServer::end_all(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    ending_ = why;
  }
  for (const auto& generation : live()) generation->end(why);
}

std::vector<std::shared_ptr<Generation>> ApiServer::live() const {
  std::vector<std::shared_ptr<Generation>> all;
  const std::lock_guard lock(mutex_);
  all.reserve(live_.size());
  for (const auto& [key, generation] : live_) all.push_back(generation);
  return all;
}

void ApiServer::add_live(const std::shared_ptr<Generation>& generation) {
  std::string ending;
  {
    const std::lock_guard lock(mutex_);
    live_.emplace(generation.get(), generation);
    ending = ending_;
  }
  if (!ending.empty()) generation->end(ending);
}
void ApiServer::remove_live(const Generation* generation) {
  std::shared_ptr<Generation> released;  // outside of the lock
  const std::lock_guard lock(mutex_);
  if (const auto found = live_.find(generation); found != live_.end()) {
    released = std::move(found->second);
    live_.erase(found);
  }
}

std::vector<std::string> ApiServer::requests_in_work(std::chrono::steady_clock::time_point now) const {
  std::vector<std::string> lines;
  const std::lock_guard lock(mutex_);
  lines.reserve(live_.size());
  for (const auto& [key, generation] : live_) lines.push_back(generation->line(now));
  return lines;
}

std::chrono::milliseconds ApiServer::watch(std::chrono::steady_clock::time_point now) {
  if (!ready_) return {};
  const EngineReport report = model_->loaded.engine->report();
  const bool busy = !model_->loaded.engine->steps_in_flight().empty() ||
                    (!paused_ && (report.num_running > 0 || report.num_waiting > 0));
  if (!busy || report.steps != last_steps_) {
    last_steps_ = report.steps;
    last_progress_ = now;
  }
  const auto stalled = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_progress_);
  stalled_ms_ = stalled.count();
  return stalled;
}

std::optional<OpenAiError> ApiServer::unavailable() const {
  const auto answer = [](std::string message, std::string code) {
    return OpenAiError{
        .status = 503, .message = std::move(message), .type = "unavailable_error", .code = std::move(code)};
  };
  if (stopping_) return answer("the server is shutting down; ask another one", "draining");
  if (draining_) return answer("the server takes no requests for a while; ask another one", "draining");
  if (!ready_) return answer("the model is still being loaded; try again in a moment", "loading_model");
  if (const std::optional<Error> lost = model_->loaded.engine->lost())
    return answer(fmt::format("the engine has stopped: {}", lost->message()), "engine_dead");
  return std::nullopt;
}

HttpResponse ApiServer::error_response(const OpenAiError& error, const HttpRequest& request) const {
  const bool messages = request.path == "/v1/messages" || request.path.starts_with("/v1/messages/");
  HttpResponse response{.status = messages && error.status == 503 ? 529 : error.status,
                        .fields = settings_.origins.answer_fields(request),
                        .body = messages ? anthropic_error_body(error) : openai_error_body(error)};
  response.fields.emplace_back("Content-Type", kJson);
  if (error.status == 401) response.fields.emplace_back("WWW-Authenticate", "Bearer");
  if (error.retry_after_seconds > 0)
    response.fields.emplace_back("Retry-After", fmt::format("{}", error.retry_after_seconds));
  // Clients try three times by themselves; what failed for what it is will fail again.
  if (error.status == 500 || error.code == "aborted") response.fields.emplace_back("x-should-retry", "false");
  return response;
}

HttpResponse ApiServer::fault(int32_t status, std::string message) {
  metrics_.answered("-", status);
  OpenAiError error{.status = status,
                    .message = std::move(message),
                    .type = std::string(type_of_status(status)),
                    .code = "bad_http_request"};
  if (status == 503) error.retry_after_seconds = 1;
  HttpResponse response = error_response(error, HttpRequest{});
  response.close = true;
  return response;
}

// The order matters: who asks under a wrong name learns nothing else, and a key is asked for before anything is said
// about the request.
std::optional<HttpResponse> ApiServer::refusal_of(const HttpRequest& head, const ApiRoute*& route) const {
  const auto refuse = [&](int32_t status, std::string message, std::string code) {
    return error_response({.status = status,
                           .message = std::move(message),
                           .type = std::string(type_of_status(status)),
                           .code = std::move(code)},
                          head);
  };
  if (local_hosts_only_) {
    const std::string host = host_of(head.field("host"));
    if (!is_loopback_host(host) && std::ranges::find(settings_.allowed_hosts, host) == settings_.allowed_hosts.end()) {
      return refuse(403,
                    fmt::format("this server does not answer for the host '{}'; name it with --allowed-hosts", host),
                    "host_not_allowed");
    }
  }

  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  std::string methods;
  for (const ApiRoute& candidate : routes()) {
    const bool fits = candidate.has_name()
                          ? head.path.size() > candidate.path.size() && head.path.starts_with(candidate.path)
                          : head.path == candidate.path;
    if (!fits) continue;
    methods += fmt::format("{}{}", methods.empty() ? "" : ", ", candidate.method);
    if (candidate.method == "GET") methods += ", HEAD";
    if (candidate.method == method) route = &candidate;
  }
  if (methods.empty()) {
    return refuse(404, fmt::format("there is no {}; this is an OpenAI-compatible API, see /v1/models", head.path),
                  "unknown_url");
  }
  if (head.method == "OPTIONS") return settings_.origins.preflight(head, methods);
  if (route == nullptr) {
    HttpResponse response = refuse(405, fmt::format("{} takes {}", head.path, methods), "method_not_allowed");
    response.fields.emplace_back("Allow", methods + ", OPTIONS");
    return response;
  }

  if (const std::optional<OpenAiError> error = refusal_of_key(route->auth, presented_key(head)))
    return error_response(*error, head);
  if (route->method == "POST" && !settings_.origins.allows(head)) {
    return refuse(
        403, fmt::format("pages of {} may not use this server; name them with --allowed-origins", head.field("origin")),
        "origin_not_allowed");
  }
  if (route->method == "POST") {
    if (!head.field("content-encoding").empty() && !http_equal(head.field("content-encoding"), "identity"))
      return refuse(415, "compressed bodies are not read; send the JSON as it is", "unsupported_encoding");
    if (const std::string_view type = head.field("content-type"); route->reads_body && !type.empty() && !is_json(type))
      return refuse(415, "bodies are JSON; send them as Content-Type: application/json", "unsupported_media_type");
    if (route->reads_body && head.field("content-length").empty() && head.field("transfer-encoding").empty())
      return refuse(411, "the body is missing; send JSON with a Content-Length", "length_required");
  }
  if (route->needs_model) {
    if (std::optional<OpenAiError> error = unavailable()) {
      error->retry_after_seconds = 2;
      return error_response(*error, head);
    }
  }
  return std::nullopt;
}

std::optional<OpenAiError> ApiServer::refusal_of_key(ApiAuth auth, std::string_view key) const {
  const auto refuse = [](int32_t status, std::string message, std::string code) {
    return OpenAiError{.status = status,
                       .message = std::move(message),
                       .type = std::string(type_of_status(status)),
                       .code = std::move(code)};
  };
  switch (auth) {
    case ApiAuth::kNone: return std::nullopt;
    case ApiAuth::kUser:
      if (settings_.keys.empty() || settings_.keys.accepts(key)) return std::nullopt;
      return refuse(401, "the API key is missing or wrong; send it as \"Authorization: Bearer KEY\"",
                    "invalid_api_key");
    case ApiAuth::kAdmin: break;
  }
  if (settings_.admin_keys.empty())
    return refuse(404, "administration is off; start the server with --admin-api-key", "endpoint_disabled");
  if (settings_.admin_keys.accepts(key)) return std::nullopt;
  if (!settings_.keys.empty() && settings_.keys.accepts(key))
    return refuse(403, "this takes a key of --admin-api-key; an API key is not enough", "admin_key_required");
  return refuse(401, "the admin key is missing or wrong; send it as \"Authorization: Bearer KEY\"", "invalid_api_key");
}

std::optional<HttpResponse> ApiServer::check_head(const HttpRequest& head) {
  const ApiRoute* route = nullptr;
  std::optional<HttpResponse> refusal = refusal_of(head, route);
  if (!refusal) return std::nullopt;
  const std::string_view asked = head.field("x-request-id");
  const std::string id = is_request_id(asked) ? std::string(asked) : random_id();
  refusal->fields.emplace_back("x-request-id", id);
  metrics_.answered(route != nullptr ? std::string(route->path) : "-", refusal->status);
  log_.write({.method = head.method,
              .path = head.path,
              .client = head.client,
              .request_id = id,
              .status = refusal->status,
              .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - head.received).count()});
  return refusal;
}

void ApiServer::handle(std::shared_ptr<HttpExchange> exchange) {
  const ApiRoute* route = nullptr;
  // The same question again: a model can have been lost while the body came.
  if (std::optional<HttpResponse> refusal = refusal_of(exchange->request(), route)) {
    exchange->reply(*std::move(refusal));
    return;
  }
  auto call = std::make_shared<ApiCall>(*this, std::move(exchange), route);
  const auto run = [this](const CallPtr& of) { run_guarded(of, [&] { (this->*of->route->run)(of); }); };
  if (!route->on_worker) return run(call);
  work_.add([run, call = std::move(call)] { run(call); });
}

OpenAiError no_memory_left() {
  return {.status = 503,
          .message = "no memory is left for this request; send a smaller one, or try again later",
          .type = "unavailable_error",
          .code = "out_of_memory",
          .retry_after_seconds = 1};
}

void ApiServer::run_guarded(const CallPtr& call, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    call->reply_error(no_memory_left());
  }
}

ApiCall::ApiCall(ApiServer& of, std::shared_ptr<HttpExchange> from, const ApiRoute* to)
    : server(of), exchange(std::move(from)), route(to) {
  const std::string_view asked = request().field("x-request-id");
  id = is_request_id(asked) ? std::string(asked) : random_id();
  record.method = request().method;
  record.path = request().path;
  record.client = request().client;
  if (!route->needs_model) return;
  const std::lock_guard lock(server.mutex_);
  ++server.open_calls_;
}

ApiCall::~ApiCall() {
  record.request_id = id;
  record.seconds = seconds();
  if (record.status == 0) record.status = 499;  // the client left
  server.metrics_.answered(std::string(route->path), record.status);
  // Probes and scrapes come every second; as long as all is well nobody wants to read of them.
  const bool quiet = route->auth == ApiAuth::kNone && (record.status == 200 || record.status == 304);
  if (!quiet) {
    server.log_.write(record);
    server.trace(*this);
  }
  if (!route->needs_model) return;
  const std::lock_guard lock(server.mutex_);
  if (--server.open_calls_ == 0) server.idle_.notify_all();
}

HttpFields ApiCall::fields(std::string_view content_type) const {
  HttpFields all = server.settings_.origins.answer_fields(request());
  all.emplace_back("Content-Type", content_type);
  all.emplace_back("x-request-id", id);
  return all;
}

void ApiCall::reply(int32_t status, std::string body, std::string_view content_type) {
  reply({.status = status, .fields = fields(content_type), .body = std::move(body)});
}

void ApiCall::reply(HttpResponse response) {
  const int32_t status = response.status;
  if (exchange->reply(std::move(response))) record.status = status;
}

bool ApiCall::reply_error(const OpenAiError& error) {
  HttpResponse response = server.error_response(error, request());
  const int32_t status = response.status;
  response.fields.emplace_back("x-request-id", id);
  if (!exchange->reply(std::move(response))) return false;
  record.status = status;
  return true;
}

}  // namespace lantern
