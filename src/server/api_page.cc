// The web page at /: files that are built in. They ask this server's API as any client does, and nobody else.
#include <fmt/format.h>

#include <algorithm>

#include "server/api_call.h"
#include "server/web_page.h"

namespace lantern {
namespace {

// Nothing but these files runs or is loaded, no text becomes markup or script, and no other page can frame this one.
constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

// Whether If-None-Match names `etag`: a list of tags, weak ones too, or "*".
bool names_tag(std::string_view if_none_match, std::string_view etag) {
  return if_none_match == "*" || if_none_match.find(etag) != std::string_view::npos;
}

}  // namespace

void ApiServer::get_page(const CallPtr& call) {
  const std::string_view path = call->request().path;
  const std::string_view name = path == "/" ? "index.html" : path.substr(call->route->path.size());
  const auto file = std::ranges::find(web_files(), name, &WebFile::name);
  if (!settings_.page || file == web_files().end()) {
    call->reply_error({.status = 404,
                       .message = settings_.page ? fmt::format("the page has no file '{}'", name)
                                                 : "the page is switched off; start the server without --no-ui",
                       .type = "not_found_error",
                       .code = settings_.page ? "unknown_url" : "endpoint_disabled"});
    return;
  }
  const bool known = names_tag(call->request().field("if-none-match"), file->etag);
  HttpResponse response{.status = known ? 304 : 200,
                        .fields = call->fields(file->content_type),
                        .body = known ? std::string() : std::string(file->bytes)};
  // Asked anew each time: an upgraded server must not be shown through an older page.
  response.fields.emplace_back("Cache-Control", "no-cache");
  response.fields.emplace_back("ETag", file->etag);
  response.fields.emplace_back("Content-Security-Policy", kContentSecurityPolicy);
  response.fields.emplace_back("X-Content-Type-Options", "nosniff");
  response.fields.emplace_back("Referrer-Policy", "no-referrer");
  response.fields.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  call->reply(std::move(response));
}

}  // namespace lantern
