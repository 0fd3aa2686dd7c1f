#include "tiny_server.h"

#include <thread>

#include "base/check.h"
#include "socket_client.h"

namespace lantern::test {

TinyServer::TinyServer(TinyServerOptions options) {
  options.api.access_log = AccessLog::Format::kNone;
  options.api.version = "test";
  api_ = std::make_unique<ApiServer>(std::move(options.api));
  Result<std::unique_ptr<HttpServer>> http = HttpServer::listen("127.0.0.1", 0, options.http, *api_);
  CHECK(http.ok(), "{}", http.error().message());
  http_ = std::move(*http);
  api_->set_http(http_.get());
  http_->start();
  if (!options.with_model) return;
  ServedModelOptions of;
  of.engine.model_dir = options.model_dir;
  of.engine.device = "cpu";
  of.engine.threads = 1;
  of.engine.max_num_seqs = options.max_num_seqs;
  of.engine.max_model_len = options.max_model_len;
  of.engine.kv_cache_bytes = options.kv_cache_bytes;
  of.engine.num_draft_tokens = options.num_draft_tokens;
  of.engine.max_traced_rows = options.max_traced_rows;
  if (options.gate) {
    of.engine.hooks = {{.wrap = [gate = options.gate](std::unique_ptr<Executor> executor) {
      return std::make_unique<GatedExecutor>(std::move(executor), gate);
    }}};
  }
  of.engine.adaptive_drafts = false;  // a busy machine finds that none pay
  of.chat_format = options.chat_format;
  of.streams = true;
  Result<std::unique_ptr<ServedModel>> model = load_served_model(of);
  CHECK(model.ok(), "{}", model.error().message());
  model_ = model->get();
  api_->attach(std::move(*model));
}

TinyServer::~TinyServer() {
  http_->stop();
  api_->set_http(nullptr);
}

std::string TinyServer::greedy(const std::string& prompt, int32_t max_tokens) {
  EngineRequest request;
  Result<std::vector<TokenId>> ids = model_->api.tokenizer->encode(prompt);
  CHECK(ids.ok(), "no prompt");
  request.request.prompt = std::move(*ids);
  request.request.max_tokens = max_tokens;
  request.request.sampling.temperature = 0;
  Result<TokenStream> stream = engine().submit(std::move(request));
  CHECK(stream.ok(), "{}", stream.error().message());
  std::string text;
  for (Output output; stream->next(output);) text += output.text;
  return text;
}

bool TinyServer::wait_until_quiet(std::chrono::milliseconds time) {
  return eventually(
      [&] {
        const EngineReport report = engine().report();
        return report.num_running == 0 && report.num_waiting == 0 &&
               report.num_free_blocks + report.num_cached_blocks == report.num_blocks && api_->idle();
      },
      time);
}

double metric(uint16_t port, const std::string& sample) {
  const Answer answer = get(port, "/metrics");
  const size_t brace = sample.find('{');
  const std::string name = sample.substr(0, brace);
  const std::string label = brace == std::string::npos ? "" : sample.substr(brace + 1, sample.size() - brace - 2);
  for (size_t at = 0; (at = answer.body.find("\n" + name, at)) != std::string::npos; ++at) {
    const std::string line = answer.body.substr(at + 1, answer.body.find('\n', at + 1) - at - 1);
    if (line.find_first_of("{ ") != name.size() || line.find(label) == std::string::npos) continue;
    return std::stod(line.substr(line.rfind(' ')));
  }
  return -1;
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace lantern::test
