#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/dispatch.h"
#include "cli/engine_access.h"
#include "cli/serve.h"
#include "server/api_server.h"
#include "server/http_client.h"

namespace lantern::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(100);
constexpr auto kStatisticsInterval = std::chrono::seconds(10);
constexpr auto kLastWords = std::chrono::seconds(2);       // for answers to leave before connections are closed
constexpr auto kLastStep = std::chrono::seconds(10);       // for the step that runs while all requests were ended
constexpr std::chrono::milliseconds kTraceTimeout{5'000};  // for a collector to answer
constexpr int32_t kMaxQueued = 1 << 17;  // sequences; how many requests may wait is the server's to say

std::chrono::milliseconds milliseconds(const Values& values, std::string_view name) {
  return std::chrono::milliseconds(std::llround(1000 * values.real(name)));
}

Result<ApiKeys> api_keys(const Values& values, std::string_view setting, std::string_view file_setting) {
  std::vector<std::string> keys = values.list(setting);
  if (const std::string& file = values.text(file_setting); !file.empty()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> more, ApiKeys::read_file(file));
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return ApiKeys(keys);
}

Result<ApiSettings> api_settings(const Values& values) {
  ApiSettings settings;
  ASSIGN_OR_RETURN(settings.keys, api_keys(values, "api-key", "api-key-file"));
  ASSIGN_OR_RETURN(settings.admin_keys, api_keys(values, "admin-api-key", "admin-api-key-file"));
  settings.origins = AllowedOrigins(values.list("allowed-origins"));
  settings.allowed_hosts = values.list("allowed-hosts");
  settings.allowed_hosts.push_back(values.text("host"));
  settings.admission = {.max_requests = values.integer("max-num-queued-reqs"),
                        .max_tokens = values.integer("max-num-queued-tokens")};
  settings.workers = static_cast<int32_t>(values.integer("http-threads"));
  settings.stream_interval = static_cast<int32_t>(values.integer("stream-interval"));
  settings.force_include_usage = values.is_on("enable-force-include-usage");
  settings.reasoning_field = values.text("reasoning-field");
  settings.page = values.is_on("ui");
  settings.tokenizer_info = values.is_on("enable-tokenizer-info-endpoint");
  settings.access_log = !values.is_on("access-log")           ? AccessLog::Format::kNone
                        : values.text("log-format") == "json" ? AccessLog::Format::kJson
                                                              : AccessLog::Format::kText;
  const auto watchdog = std::chrono::duration_cast<std::chrono::seconds>(milliseconds(values, "watchdog-timeout"));
  if (watchdog.count() > 0) settings.stalled_after = std::min(settings.stalled_after, watchdog / 2);
  settings.version = LANTERN_VERSION;
  return settings;
}

// Where traces go, if anywhere.
struct Traces {
  std::unique_ptr<HttpClient> collector;
  std::unique_ptr<TraceExport> exporter;  // uses it
};

Result<Traces> open_traces(const Values& values) {
  Traces traces;
  const std::string& endpoint = values.text("otlp-traces-endpoint");
  if (endpoint.empty()) return traces;
  ASSIGN_OR_RETURN(const HttpUrl url, parse_http_url(endpoint));
  ASSIGN_OR_RETURN(traces.collector, HttpClient::create(url));
  const std::string path = url.path.empty() ? "/v1/traces" : "";
  traces.exporter = std::make_unique<TraceExport>(
      TraceExport::Settings{.version = LANTERN_VERSION},
      [collector = traces.collector.get(), path, endpoint](const std::string& body) -> Status {
        ASSIGN_OR_RETURN(const HttpAnswer answer, collector->fetch({.method = "POST",
                                                                    .path = path,
                                                                    .fields = {{"Content-Type", "application/json"}},
                                                                    .body = body,
                                                                    .timeout = kTraceTimeout}));
        if (answer.status / 100 == 2) return {};
        return Error(ErrorCode::kIo, fmt::format("{} answers {}", endpoint, answer.status));
      });
  return traces;
}

HttpLimits http_limits(const Values& values) {
  HttpLimits limits;
  limits.threads = static_cast<int32_t>(values.integer("http-threads"));
  limits.max_connections = static_cast<int32_t>(values.integer("max-connections"));
  limits.max_body_bytes = static_cast<size_t>(values.integer("max-body-size"));
  limits.max_all_bodies_bytes = std::max(limits.max_all_bodies_bytes, limits.max_body_bytes);
  limits.header_timeout = milliseconds(values, "header-timeout");
  limits.body_timeout = milliseconds(values, "body-timeout");
  limits.idle_timeout = milliseconds(values, "keep-alive-timeout");
  limits.ping_interval = milliseconds(values, "ping-interval");
  limits.allow_half_close = values.is_on("allow-half-close");
  return limits;
}

std::string url_of(const Values& values, uint16_t port) {
  std::string host = values.text("host");
  if (host == "0.0.0.0" || host == "::") host = "127.0.0.1";
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("http://[{}]:{}", host, port) : fmt::format("http://{}:{}", host, port);
}

// 1234567 as "1,234,567", as vLLM prints it.
std::string grouped(int64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string start_up_text(const Values& values, const ServedModel& model, uint16_t port) {
  const EngineSettings& settings = model.loaded.engine->settings();
  const StepLimits& limits = settings.limits;
  const int64_t blocks = int64_t{limits.num_blocks - 1} * model.loaded.engine->num_ranks();  // block 0 is nobody's
  const int64_t per_request = settings.blocks_for(limits.max_model_len);
  const std::string url = url_of(values, port);
  std::string text;
  const auto row = [&](std::string_view label, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "{:<12} {}\n", label, value);
  };
  row("model", fmt::format("{} ({}), {:.1f} MB of weights", model.api.names.front(), model.loaded.config->model_type,
                           static_cast<double>(model.loaded.weight_bytes) / 1e6));
  row("backend", model.loaded.device);
  row("context",
      fmt::format("{} tokens; up to {} sequences at a time", grouped(limits.max_model_len), limits.max_requests));
  row("KV cache",
      fmt::format("size: {} tokens, Maximum concurrency for {} tokens per request: {:.2f}x; {} B per token",
                  grouped(blocks * limits.block_size), grouped(limits.max_model_len),
                  static_cast<double>(blocks) / static_cast<double>(per_request), model.loaded.kv_bytes_per_token));
  row("chat", model.chat ? std::string(to_string(model.chat->format())) : "none: " + model.api.no_chat);
  // The classes of the ledger; their parts are as many as the model has layers.
  std::string memory;
  for (std::string_view rest = model.loaded.memory; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.empty() || line[0] == ' ') continue;
    const size_t space = line.find(' ');
    fmt::format_to(std::back_inserter(memory), "{}{} {}", memory.empty() ? "" : ", ", line.substr(0, space),
                   line.substr(std::min(line.find_first_not_of(' ', space), line.size())));
  }
  row("memory", memory);
  row("listens on",
      url + (values.list("api-key").empty() && values.text("api-key-file").empty() ? "" : ", with API keys"));
  if (values.is_on("ui")) row("page", url + "/");
  const std::string body =
      model.chat ? boost::json::serialize(boost::json::object{
                       {"model", model.api.names.front()},
                       {"messages",
                        boost::json::array{boost::json::object{{"role", "user"}, {"content", "What is 6 times 7?"}}}}})
                 : boost::json::serialize(boost::json::object{{"model", model.api.names.front()},
                                                              {"prompt", "Question: What is 6 times 7?"}});
  fmt::format_to(std::back_inserter(text), "\ncurl {}/v1/{} -H 'Content-Type: application/json'{} -d '{}'\n", url,
                 model.chat ? "chat/completions" : "completions",
                 values.list("api-key").empty() && values.text("api-key-file").empty()
                     ? ""
                     : " -H \"Authorization: Bearer $LANTERN_API_KEY\"",
                 body);
  return text;
}

// The line that vLLM prints, and that scripts look for: only while something is going on.
class Statistics {
 public:
  void look(const EngineReport& now, Clock::time_point time) {
    const double seconds = std::chrono::duration<double>(time - last_time_).count();
    if (time - last_time_ < kStatisticsInterval) return;
    const auto rate = [&](int64_t EngineReport::* count) {
      return static_cast<double>(now.*count - last_.*count) / seconds;
    };
    if (now.num_running > 0 || now.num_waiting > 0 || now.output_tokens != last_.output_tokens) {
      const int32_t used = now.num_blocks - now.num_free_blocks - now.num_cached_blocks;
      const int64_t looked_up = now.prompt_tokens - last_.prompt_tokens;
      const int64_t cached = now.prompt_tokens_cached - last_.prompt_tokens_cached;
      print_notice(fmt::format(
          "Engine 000: Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} tokens/s, Running: {} "
          "reqs, Waiting: {} reqs, GPU KV cache usage: {:.1f}%, Prefix cache hit rate: {:.1f}%",
          rate(&EngineReport::prompt_tokens), rate(&EngineReport::output_tokens), now.num_running, now.num_waiting,
          100.0 * used / std::max(now.num_blocks, 1),
          looked_up > 0 ? 100.0 * static_cast<double>(cached) / static_cast<double>(looked_up) : 0.0));
    }
    last_ = now;
    last_time_ = time;
  }

 private:
  EngineReport last_;
  Clock::time_point last_time_ = Clock::now();
};

// What is known of an engine whose step does not end.
void report_hung_engine(const ApiServer& api) {
  const Engine& engine = *api.model()->loaded.engine;
  const EngineReport report = engine.report();
  print_notice(
      fmt::format("{} sequences run and {} wait, {} of {} blocks are free; {} steps have ended, the last one took "
                  "{:.3f} s",
                  report.num_running, report.num_waiting, report.num_free_blocks, report.num_blocks, report.steps,
                  report.last_step_seconds));
  for (const StepInFlight& step : engine.steps_in_flight()) print_notice(fmt::format("in flight: {}", step.text()));
  for (const std::string& line : api.requests_in_work(Clock::now())) print_notice(fmt::format("in work: {}", line));
}

// Whatever holds up the step holds up destructors as well: there is no way out but this one.
[[noreturn]] void leave_hung_engine(ApiServer& api, HttpServer& http, std::chrono::milliseconds stalled) {
  const std::vector<StepInFlight> steps = api.model()->loaded.engine->steps_in_flight();
  print_error(
      fmt::format("{} has been running for {} s; the server ends, so that whoever watches it can start it again",
                  steps.empty() ? "what comes between two steps" : steps.front().text(), stalled.count() / 1000));
  report_hung_engine(api);
  api.end_all("the engine hangs and the server ends");
  http.drain();
  std::this_thread::sleep_for(kLastWords);
  std::_Exit(kFailure);
}

void shut_down(const Values& values, ApiServer& api, HttpServer& http) {
  api.begin_drain();
  http.drain();
  if (!values.is_on("quiet")) {
    print_notice(fmt::format("stopping: requests in work have {} s to end; a second signal ends them at once",
                             values.text("shutdown-timeout")));
  }
  if (!api.wait_until_idle(milliseconds(values, "shutdown-timeout")))
    api.end_all("the server is shutting down; the request took longer than it waits");
  // What was said last is still on its way.
  for (const auto end = Clock::now() + kLastWords; http.stats().connections > 0 && Clock::now() < end;)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  http.stop();
  if (api.model()->loaded.engine->drain(kLastStep)) return;
  print_error(
      fmt::format("a step does not end: the server ends without it, {} s after its requests", kLastStep.count()));
  report_hung_engine(api);
  std::_Exit(kFailure);
}

}  // namespace

Status check_serve(const Values& values) {
  const std::string& model = values.text("MODEL");
  if (model.empty() || values.origin("model") != Values::Origin::kCommandLine || values.text("model") == model)
    return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("the model is '{}' and also --model '{}'; name it once", model, values.text("model")));
}

Result<int> run_serve(const Values& values) { return serve_with_hooks(values, {}); }

Result<int> serve_with_hooks(const Values& values, std::vector<ExecutorHooks> hooks) {
  Values with_model = values;
  if (const std::string& model = values.text("MODEL"); !model.empty()) with_model.set("model", {model});
  ASSIGN_OR_RETURN(ServedModelOptions options, served_model_options(with_model));
  options.engine.max_queued = kMaxQueued;
  options.engine.hooks = std::move(hooks);
  options.engine.adaptive_drafts = values.is_on("adaptive-drafts");
  options.streams = true;
  ASSIGN_OR_RETURN(ApiSettings settings, api_settings(values));
  const HttpLimits limits = http_limits(values);
  RETURN_IF_ERROR(reserve_descriptors(limits.max_connections));

  ASSIGN_OR_RETURN(const Traces traces, open_traces(values));
  settings.traces = traces.exporter.get();

  ApiServer api(std::move(settings));
  // Before the model: a port in use shows at once, and probes see a server that is loading.
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> http,
                   HttpServer::listen(values.text("host"), static_cast<uint16_t>(values.integer("port")), limits, api));
  api.set_http(http.get());
  http->start();
  ASSIGN_OR_RETURN(std::unique_ptr<ServedModel> model, load_interruptibly(options));
  RETURN_IF_ERROR(apply_dispatch_settings(values, *model->loaded.model));
  const Engine& engine = *model->loaded.engine;
  const std::string text = start_up_text(values, *model, http->port());
  api.attach(std::move(model));
  write_text(text);

  const std::chrono::milliseconds watchdog = milliseconds(values, "watchdog-timeout");
  Statistics statistics;
  while (!interrupted()) {
    std::this_thread::sleep_for(kLook);
    const Clock::time_point now = Clock::now();
    const std::chrono::milliseconds stalled = api.watch(now);
    if (watchdog.count() > 0 && stalled > watchdog) leave_hung_engine(api, *http, stalled);
    if (!values.is_on("quiet")) statistics.look(engine.report(), now);
    if (const std::optional<Error> lost = engine.lost()) {
      shut_down(values, api, *http);
      api.set_http(nullptr);
      return *lost;
    }
  }
  shut_down(values, api, *http);
  api.set_http(nullptr);
  return static_cast<int>(kSuccess);
}

}  // namespace lantern::cli
