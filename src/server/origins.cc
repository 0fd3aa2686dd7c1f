#include "server/origins.h"

#include <algorithm>

namespace lantern {

std::string host_of(std::string_view authority) {
  std::string_view host;
  if (authority.starts_with("[")) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return {};
    host = authority.substr(1, end - 1);
    authority.remove_prefix(end + 1);
  } else {
    host = authority.substr(0, authority.find(':'));
    authority.remove_prefix(host.size());
  }
  const bool port =
      authority.empty() ||
      (authority[0] == ':' && std::ranges::all_of(authority.substr(1), [](char c) { return c >= '0' && c <= '9'; }));
  if (!port || host.find_first_of("/@?# ") != std::string_view::npos) return {};
  std::string lower(host);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.ends_with('.')) lower.pop_back();
  return lower;
}

bool is_loopback_host(std::string_view host) {
  if (host == "localhost" || host.ends_with(".localhost") || host == "::1") return true;
  // All four parts, lest "127.example.org" count.
  return host.starts_with("127.") && std::ranges::count(host, '.') == 3 &&
         std::ranges::all_of(host, [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

bool AllowedOrigins::allows(const HttpRequest& request) const {
  const std::string_view origin = request.field("origin");
  if (origin.empty()) return true;
  const auto listed = [&](const std::string& one) { return one == "*" || http_equal(one, origin); };
  if (std::ranges::any_of(listed_, listed)) return true;
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) return false;  // "null" of a sandboxed page among them
  const std::string_view authority = origin.substr(scheme + 3);
  return http_equal(authority, request.field("host")) || is_loopback_host(host_of(authority));
}

HttpFields AllowedOrigins::answer_fields(const HttpRequest& request) const {
  const std::string_view origin = request.field("origin");
  if (origin.empty()) return {};
  HttpFields fields = {{"Vary", "Origin"}};
  if (!allows(request)) return fields;
  fields.emplace_back("Access-Control-Allow-Origin", std::string(origin));
  fields.emplace_back("Access-Control-Expose-Headers", "x-request-id, retry-after");
  return fields;
}

HttpResponse AllowedOrigins::preflight(const HttpRequest& request, std::string_view methods) const {
  HttpResponse answer{.status = 204, .fields = answer_fields(request)};
  answer.fields.emplace_back("Allow", std::string(methods) + ", OPTIONS");
  if (request.field("origin").empty() || !allows(request)) return answer;
  answer.fields.emplace_back("Access-Control-Allow-Methods", std::string(methods) + ", OPTIONS");
  const std::string_view asked = request.field("access-control-request-headers");
  answer.fields.emplace_back("Access-Control-Allow-Headers", asked.empty() ? "*" : std::string(asked));
  answer.fields.emplace_back("Access-Control-Max-Age", "600");
  return answer;
}

}  // namespace lantern
