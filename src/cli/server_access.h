// What the commands that talk to a server have in common: --url, --api-key, and one sentence for what goes wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/metrics_snapshot.h"
#include "cli/settings.h"
#include "server/http_client.h"

namespace lantern::cli {

class ServerAccess {
 public:
  // From --url and --api-key. Nothing is asked yet. Errors: no URL, no such host.
  static Result<ServerAccess> open(const Values& values);

  HttpClient& http() { return *http_; }
  const std::string& url() const { return url_; }
  // A POST of JSON, with the key.
  HttpCall post(std::string path, std::string body) const;
  // The body of an answer with status 200. Errors: no answer, or another one.
  Result<std::string> fetch(HttpCall call);
  Result<std::string> get(std::string path);
  Result<MetricsSnapshot> metrics();
  // The first name of /v1/models.
  Result<std::string> first_model();

 private:
  std::string url_;
  HttpFields fields_;
  std::unique_ptr<HttpClient> http_;
};

// "503: the server is loading", from the body of an answer that is not 200.
std::string server_fault(int32_t status, std::string_view body);

}  // namespace lantern::cli
