// The API: which path does what, who may, and how answers and refusals look. HTTP itself is http.h's.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "server/access_log.h"
#include "server/admission.h"
#include "server/api_keys.h"
#include "server/http.h"
#include "server/origins.h"
#include "server/served_model.h"
#include "server/server_metrics.h"
#include "server/trace_export.h"
#include "server/work_queue.h"

namespace lantern {

struct ApiSettings {
  ApiKeys keys;        // empty: everybody may
  ApiKeys admin_keys;  // of operators; empty: nobody may, and what they alone may is not there
  AllowedOrigins origins;
  // Names under which a server on the loopback interface may be asked for, beside that interface's own: others are some
  // web page's doing (DNS rebinding).
  std::vector<std::string> allowed_hosts;
  AdmissionLimits admission;
  int32_t workers = 2;  // threads that read requests and tokenize
  int32_t stream_interval = 1;
  bool force_include_usage = false;
  std::string reasoning_field = "reasoning_content";
  bool page = true;             // GET / is the web page
  bool tokenizer_info = false;  // GET /tokenizer_info answers: a chat template may be private
  AccessLog::Format access_log = AccessLog::Format::kText;
  int log_descriptor = 2;
  std::chrono::seconds stalled_after{60};  // /health fails when a step takes longer
  std::string version;
  TraceExport* traces = nullptr;  // outlives the server; null: there are none
};

struct AnswerShape;
enum class ApiAuth : uint8_t;
struct ApiCall;
struct ApiRoute;
class Generation;

class ApiServer final : public HttpHandler {
 public:
  explicit ApiServer(ApiSettings settings);
  ~ApiServer() override;  // the HTTP server has stopped
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  // Until then what needs a model is refused (503, "loading_model").
  void attach(std::unique_ptr<ServedModel> model);
  // Where it listens: /metrics tells its counts, and on the loopback interface other hosts' names are refused. Before
  // it starts; null when it has stopped.
  void set_http(const HttpServer* http) {
    http_ = http;
    local_hosts_only_ = http != nullptr && http->on_loopback();
  }
  const ServedModel* model() const { return ready_.load() ? model_.get() : nullptr; }

  // From now on requests are refused (503, "draining"); what was admitted goes on, where it was paused also.
  void begin_drain();
  // False: after `timeout` there are still requests in work.
  bool wait_until_idle(std::chrono::milliseconds timeout);
  bool idle() const;
  // Whatever is in work ends with an error. Nothing else may be submitted any more.
  void end_all(const std::string& why);

  // A line for each request that the engine has: "POST /v1/completions id=... for 12.3 s". For whoever looks for the
  // one that hangs.
  std::vector<std::string> requests_in_work(std::chrono::steady_clock::time_point now) const;

  // Looks at the engine; called twice a second or so. For how long a step has been running that should be done.
  std::chrono::milliseconds watch(std::chrono::steady_clock::time_point now);

  std::optional<HttpResponse> check_head(const HttpRequest& head) override;
  void handle(std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse fault(int32_t status, std::string message) override;

 private:
  friend struct ApiCall;
  friend struct ApiRoute;
  friend class Generation;
  using CallPtr = std::shared_ptr<ApiCall>;

  static std::span<const ApiRoute> routes();
  // The standard library tells by an exception that the system gives no memory: the request ends, the others go on.
  static void run_guarded(const CallPtr& call, const std::function<void()>& work);
  std::optional<HttpResponse> refusal_of(const HttpRequest& head, const ApiRoute*& route) const;
  // Why a key is no use for the route.
  std::optional<OpenAiError> refusal_of_key(ApiAuth auth, std::string_view key) const;
  std::optional<OpenAiError> unavailable() const;
  HttpResponse error_response(const OpenAiError& error, const HttpRequest& request) const;

  // api_info.cc
  void get_health(const CallPtr& call);
  void get_ready(const CallPtr& call);
  void get_version(const CallPtr& call);
  void get_metrics(const CallPtr& call);
  void get_load(const CallPtr& call);
  void get_models(const CallPtr& call);
  void get_model(const CallPtr& call);
  void no_response(const CallPtr& call);
  // api_tokenize.cc
  void post_tokenize(const CallPtr& call);
  void post_detokenize(const CallPtr& call);
  void get_tokenizer_info(const CallPtr& call);
  void post_render(const CallPtr& call);
  void post_count_tokens(const CallPtr& call);
  // api_admin.cc
  void post_abort(const CallPtr& call);
  void post_flush_cache(const CallPtr& call);
  void post_drain(const CallPtr& call);
  void post_pause(const CallPtr& call);
  void post_resume(const CallPtr& call);
  void post_start_profile(const CallPtr& call);
  void post_stop_profile(const CallPtr& call);
  void set_paused(bool paused);
  void get_requests(const CallPtr& call);
  void get_statistics(const CallPtr& call);
  bool has_model(const CallPtr& call);  // false: says so
  // api_trace.cc
  void trace(const ApiCall& call);  // once it is answered
  // api_page.cc
  void get_page(const CallPtr& call);
  // generation.cc
  void post_generate(const CallPtr& call);
  void generate(const CallPtr& call, std::unique_ptr<AdmissionControl::Ticket> ticket);
  // Reads the body as the path says, and into `shape` how the answer is given.
  std::variant<OpenAiRequest, OpenAiError> read_request(const ApiCall& call, AnswerShape& shape);

  std::vector<std::shared_ptr<Generation>> live() const;
  void add_live(const std::shared_ptr<Generation>& generation);
  void remove_live(const Generation* generation);

  const ApiSettings settings_;
  AccessLog log_;
  std::unique_ptr<ServedModel> model_;
  ServerMetrics metrics_;
  std::shared_ptr<AdmissionControl> admission_;
  std::atomic<bool> ready_ = false;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> draining_ = false;  // an operator wants it so
  std::atomic<bool> paused_ = false;    // likewise
  std::atomic<const HttpServer*> http_ = nullptr;
  std::atomic<bool> local_hosts_only_ = false;
  std::atomic<uint64_t> next_seed_;
  std::atomic<int64_t> stalled_ms_ = 0;
  const int64_t created_;  // when this began, in seconds since 1970

  // watch()'s alone.
  int64_t last_steps_ = -1;
  std::chrono::steady_clock::time_point last_progress_;

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  int64_t open_calls_ = 0;  // that need a model and are not answered
  std::unordered_map<const Generation*, std::shared_ptr<Generation>> live_;
  std::string ending_;  // why all ends; empty: it does not

  WorkQueue work_;  // last: its threads use the rest
};

// 32 digits.
std::string random_id();
// Whether it is harmless in a header, a log and a file name.
bool is_request_id(std::string_view id);

}  // namespace lantern
