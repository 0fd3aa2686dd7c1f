// A request on its way through the API. For this room's sources only.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "server/api_server.h"

namespace lantern {

enum class ApiAuth : uint8_t { kUser, kAdmin, kNone };

// What a path does. Whether a key is asked for is said here and nowhere else, so that there is no second reading of a
// path that could disagree.
struct ApiRoute {
  std::string_view method;
  std::string_view path;  // ends in "/" where a name follows
  void (ApiServer::*run)(const std::shared_ptr<ApiCall>& call);
  bool needs_model = false;
  bool on_worker = false;  // takes longer than a thread of the HTTP server may
  ApiAuth auth = ApiAuth::kUser;
  bool reads_body = true;  // of POST

  bool has_name() const { return path.size() > 1 && path.back() == '/'; }
};

struct ApiCall {
  ApiServer& server;
  std::shared_ptr<HttpExchange> exchange;
  const ApiRoute* route;
  std::string id;
  AccessRecord record = {};

  ApiCall(ApiServer& of, std::shared_ptr<HttpExchange> from, const ApiRoute* to);
  ~ApiCall();  // is told as answered
  ApiCall(const ApiCall&) = delete;
  ApiCall& operator=(const ApiCall&) = delete;

  const HttpRequest& request() const { return exchange->request(); }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - request().received).count();
  }
  // The fields of every answer: the request's id, and what browsers want.
  HttpFields fields(std::string_view content_type) const;
  void reply(int32_t status, std::string body, std::string_view content_type = "application/json");
  void reply(HttpResponse response);
  // False: a stream's head was sent already.
  bool reply_error(const OpenAiError& error);
};

OpenAiError no_memory_left();

}  // namespace lantern
