#include "cli/server_access.h"

#include <fmt/format.h>

#include <boost/json.hpp>

namespace lantern::cli {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kPatience{60};
constexpr size_t kMostOfABody = 200;  // shown of one that is no JSON

}  // namespace

Result<ServerAccess> ServerAccess::open(const Values& values) {
  ServerAccess access;
  access.url_ = values.text("url");
  Result<HttpUrl> url = parse_http_url(access.url_);
  if (!url.ok()) return std::move(url).error().within("--url");
  ASSIGN_OR_RETURN(access.http_, HttpClient::create(*url));
  // A server may have several keys, in the same variable of the environment; one is enough.
  const std::string& keys = values.text("api-key");
  if (!keys.empty()) access.fields_.emplace_back("Authorization", "Bearer " + keys.substr(0, keys.find(',')));
  return access;
}

HttpCall ServerAccess::post(std::string path, std::string body) const {
  HttpCall call{.method = "POST", .path = std::move(path), .fields = fields_, .body = std::move(body)};
  call.fields.emplace_back("Content-Type", "application/json");
  return call;
}

Result<std::string> ServerAccess::fetch(HttpCall call) {
  const std::string path = call.path;
  if (call.timeout.count() == 0) call.timeout = kPatience;
  ASSIGN_OR_RETURN(HttpAnswer answer, http_->fetch(std::move(call)));
  if (answer.status == 200) return std::move(answer.body);
  return Error(answer.status == 404 ? ErrorCode::kNotFound : ErrorCode::kUnsupported,
               fmt::format("{}{}: {}", url_, path, server_fault(answer.status, answer.body)));
}

Result<std::string> ServerAccess::get(std::string path) { return fetch({.path = std::move(path), .fields = fields_}); }

Result<MetricsSnapshot> ServerAccess::metrics() {
  ASSIGN_OR_RETURN(const std::string text, get("/metrics"));
  return MetricsSnapshot::parse(text);
}

Result<std::string> ServerAccess::first_model() {
  ASSIGN_OR_RETURN(const std::string text, get("/v1/models"));
  json::error_code failure;
  const json::value document = json::parse(text, failure);
  const json::value* id = failure ? nullptr : document.find_pointer("/data/0/id", failure);
  if (id == nullptr || !id->is_string()) {
    return Error(ErrorCode::kCorrupt, fmt::format("{}/v1/models names no model; name one yourself", url_));
  }
  return std::string(id->get_string());
}

std::string server_fault(int32_t status, std::string_view body) {
  json::error_code failure;
  const json::value document = json::parse(body, failure);
  const json::value* message = failure ? nullptr : document.find_pointer("/error/message", failure);
  if (message != nullptr && message->is_string())
    return fmt::format("{}: {}", status, std::string_view(message->get_string()));
  return fmt::format("{} {}{}{}", status, http_reason(status), body.empty() ? "" : ": ", body.substr(0, kMostOfABody));
}

}  // namespace lantern::cli
