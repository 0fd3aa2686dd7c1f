// What traces tell of a request: the names are those of OpenTelemetry's conventions where these have one, and vLLM's
// for the times. Nothing of prompts and answers.
#include <fmt/format.h>

#include "base/unix_time.h"
#include "server/api_call.h"

namespace lantern {

void ApiServer::trace(const ApiCall& call) {
  if (settings_.traces == nullptr) return;
  const AccessRecord& record = call.record;
  const std::optional<TraceParent> parent = parse_trace_parent(call.request().field("traceparent"));
  if (parent && !parent->sampled) return;
  TraceSpan span{.name = fmt::format("{} {}", record.method, call.route->path),
                 .trace_id = parent ? parent->trace_id : random_id(),
                 .span_id = random_id().substr(16)};
  if (parent) span.parent_span_id = parent->span_id;
  span.end = unix_nanoseconds();
  span.begin = span.end - static_cast<int64_t>(1e9 * record.seconds);
  span.failed = record.status >= 500 || record.outcome == "error";
  const auto add = [&](std::string_view name, TraceSpan::Value value) {
    span.attributes.emplace_back(name, std::move(value));
  };
  add("http.request.method", record.method);
  add("http.route", std::string(call.route->path));
  add("http.response.status_code", int64_t{record.status});
  add("lantern.request_id", record.request_id);
  if (record.generated) {
    add("gen_ai.response.model", model_->api.names.front());
    add("gen_ai.usage.input_tokens", record.usage.prompt_tokens);
    add("gen_ai.usage.output_tokens", record.usage.completion_tokens);
    add("lantern.usage.cached_tokens", record.usage.cached_tokens);
    add("lantern.usage.reasoning_tokens", record.usage.reasoning_tokens);
    add("lantern.finish_reason", std::string(record.outcome));
    add("gen_ai.latency.e2e", record.seconds);
    if (record.first_token_seconds >= 0) add("gen_ai.latency.time_to_first_token", record.first_token_seconds);
    if (record.queue_seconds >= 0) add("gen_ai.latency.time_in_queue", record.queue_seconds);
  }
  settings_.traces->add(std::move(span));
}

}  // namespace lantern
