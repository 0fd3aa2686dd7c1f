// The server in this process, on a free port, with the shipped model.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "api/gated_executor.h"
#include "server/api_server.h"
#include "socket_client.h"

namespace lantern::test {

struct TinyServerOptions {
  std::string model_dir = LANTERN_SOURCE_DIR "/models/tiny";
  ApiSettings api = {};
  HttpLimits http = {};
  int32_t max_num_seqs = 16;
  int32_t max_model_len = 0;  // 0: the model's own
  int64_t kv_cache_bytes = int64_t{64} << 20;
  int32_t num_draft_tokens = 0;
  int32_t max_traced_rows = 0;
  std::string chat_format = "auto";
  bool with_model = true;                // false: it stays in the state of loading
  std::shared_ptr<Gate> gate = nullptr;  // before every step
};

class TinyServer {
 public:
  explicit TinyServer(TinyServerOptions options = {});
  ~TinyServer();
  TinyServer(const TinyServer&) = delete;
  TinyServer& operator=(const TinyServer&) = delete;

  uint16_t port() const { return http_->port(); }
  ApiServer& api() { return *api_; }
  HttpServer& http() { return *http_; }
  Engine& engine() { return *model_->loaded.engine; }
  const ServedModel& model() const { return *model_; }
  // What the engine itself answers, greedily, without HTTP and JSON.
  std::string greedy(const std::string& prompt, int32_t max_tokens);
  // Waits until the engine has nothing to do and all blocks are free or only cached. False where that takes too long.
  bool wait_until_quiet(std::chrono::milliseconds time = kPatience);

 private:
  std::unique_ptr<ApiServer> api_;
  std::unique_ptr<HttpServer> http_;
  const ServedModel* model_ = nullptr;
};

inline constexpr const char* kQuestion =
    "Question: Tom has 12 apples. He buys 3 bags with 5 apples each. How many apples does he have now?";

// A value of /metrics; -1 where it is not there. `sample` is "name" or "name{labels}" as it is written, without the
// labels that all have.
double metric(uint16_t port, const std::string& sample);
bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds time = kPatience);

}  // namespace lantern::test
