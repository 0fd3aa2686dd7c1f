#include "server/http_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>

namespace lantern {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// "Sun, 06 Nov 1994 08:49:37 GMT"; made once a second and thread.
const std::string& date_now() {
  thread_local std::time_t at = 0;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now == at && !text.empty()) return text;
  constexpr std::string_view kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::string_view kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  gmtime_r(&now, &utc);
  at = now;
  text = fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon],
                     utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return text;
}

}  // namespace

bool http_equal(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view HttpRequest::field(std::string_view name) const {
  for (const auto& [field, value] : fields) {
    if (http_equal(field, name)) return value;
  }
  return {};
}

std::string_view http_reason(int32_t status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 411: return "Length Required";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 529: return "Overloaded";
    default: return "Status";
  }
}

std::optional<HttpTarget> parse_target(std::string_view target) {
  if (target == "*") return HttpTarget{.path = "*", .query = {}};
  constexpr std::string_view kSchemes[] = {"http://", "https://"};
  for (const std::string_view scheme : kSchemes) {
    if (target.size() < scheme.size() || !http_equal(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    if (end == 0) return std::nullopt;
    target.remove_prefix(end);
    if (target.empty()) return HttpTarget{.path = "/", .query = {}};
    if (target[0] == '?') return HttpTarget{.path = "/", .query = std::string(target.substr(1))};
    break;
  }
  if (target.empty() || target[0] != '/') return std::nullopt;
  const bool clean = std::ranges::all_of(target, [](char c) { return c > 0x20 && c < 0x7f && c != '#'; });
  if (!clean) return std::nullopt;
  const size_t mark = std::min(target.find('?'), target.size());
  return HttpTarget{.path = std::string(target.substr(0, mark)),
                    .query = std::string(target.substr(std::min(mark + 1, target.size())))};
}

std::optional<HttpHeadFault> check_framing(const HttpFields& fields, int32_t version) {
  int32_t lengths = 0;
  int32_t codings = 0;
  int32_t hosts = 0;
  for (const auto& [name, value] : fields) {
    if (http_equal(name, "content-length")) {
      ++lengths;
      const bool digits = !value.empty() && std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; });
      if (!digits) return HttpHeadFault{400, "Content-Length is not a number; send one"};
    }
    if (http_equal(name, "transfer-encoding")) {
      ++codings;
      if (!http_equal(value, "chunked"))
        return HttpHeadFault{501, "the only transfer coding that this server knows is chunked; send the body so"};
    }
    if (http_equal(name, "host")) ++hosts;
  }
  if (lengths > 1) return HttpHeadFault{400, "Content-Length came more than once; send it once"};
  if (codings > 1) return HttpHeadFault{400, "Transfer-Encoding came more than once; send it once"};
  if (lengths > 0 && codings > 0)
    return HttpHeadFault{400, "Content-Length and Transfer-Encoding came together; send one of them"};
  if (codings > 0 && version < 11) return HttpHeadFault{400, "HTTP/1.0 has no chunks; send a Content-Length"};
  if (hosts > 1) return HttpHeadFault{400, "Host came more than once; send it once"};
  if (hosts == 0 && version >= 11) return HttpHeadFault{400, "the Host field is missing; HTTP/1.1 demands it"};
  return std::nullopt;
}

std::string head_text(const HttpResponse& response, int32_t version, HttpFraming framing, size_t length, bool close) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nServer: lantern\r\n", response.status,
                                 http_reason(response.status), date_now());
  for (const auto& [name, value] : response.fields) {
    text += name;
    text += ": ";
    // A field of the answer may quote a client: no line may begin in it.
    for (const char c : value) text += c == '\r' || c == '\n' || c == '\0' ? ' ' : c;
    text += "\r\n";
  }
  if (framing == HttpFraming::kChunked) text += "Transfer-Encoding: chunked\r\n";
  const bool has_length = response.status != 204 && response.status != 304;
  if (framing == HttpFraming::kLength && has_length) text += fmt::format("Content-Length: {}\r\n", length);
  if (close || framing == HttpFraming::kUntilClose) {
    text += "Connection: close\r\n";
  } else if (version == 10) {
    text += "Connection: keep-alive\r\n";
  }
  text += "\r\n";
  return text;
}

std::string chunk_text(std::string_view piece) {
  char size[2 * sizeof(size_t)];
  const auto end = std::to_chars(size, size + sizeof(size), piece.size(), 16).ptr;
  std::string text;
  text.reserve(piece.size() + sizeof(size) + 4);
  text.append(size, end);
  text += "\r\n";
  text += piece;
  text += "\r\n";
  return text;
}

}  // namespace lantern
