// Which web pages may use the server, and under which names it may be asked for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace lantern {

// "localhost:8000", "[::1]:8000", "example.org" to its host, in lower case. Empty where it is none.
std::string host_of(std::string_view authority);
// localhost, a name under it, 127.x.x.x or ::1.
bool is_loopback_host(std::string_view host);

// A page of another origin makes a browser send requests with the user's network access. It may where its origin is
// listed ("*" lists all), is the host that the request names, or is on the loopback interface.
class AllowedOrigins {
 public:
  AllowedOrigins() = default;
  explicit AllowedOrigins(std::vector<std::string> listed) : listed_(std::move(listed)) {}

  // Requests without an Origin field are none of a page.
  bool allows(const HttpRequest& request) const;
  // The fields of an answer by which the browser lets the page have it; none for other requests.
  HttpFields answer_fields(const HttpRequest& request) const;
  // The answer to OPTIONS. `methods`: "GET, HEAD".
  HttpResponse preflight(const HttpRequest& request, std::string_view methods) const;

 private:
  std::vector<std::string> listed_;
};

}  // namespace lantern
