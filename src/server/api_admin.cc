// What operators may: see requests and statistics, end requests, empty the prefix cache, take the server out of service
// for a while, hold it, and record its steps.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/json_text.h"
#include "server/api_call.h"
#include "server/generation.h"
#include "server/json_fields.h"

namespace lantern {
namespace {

namespace json = boost::json;

json::object statistics_of(const EngineReport& report) {
  return {{"running", report.num_running},
          {"waiting", report.num_waiting},
          {"blocks", json::object{{"total", report.num_blocks},
                                  {"used", report.num_blocks - report.num_free_blocks - report.num_cached_blocks},
                                  {"cached", report.num_cached_blocks},
                                  {"free", report.num_free_blocks}}},
          {"prefix_cache", json::object{{"prompt_tokens", report.prompt_tokens},
                                        {"cached_tokens", report.prompt_tokens_cached},
                                        {"blocks_evicted", report.prefix_blocks_evicted},
                                        {"blocks_flushed", report.prefix_blocks_flushed}}},
          {"output_tokens", report.output_tokens},
          {"preemptions", report.preemptions},
          {"steps", report.steps},
          {"last_step_seconds", report.last_step_seconds}};
}

// In the form of Chrome's trace events, which Perfetto and others show: a process for each rank, in microseconds. Steps
// that overlap stand on threads of their own: within one, events must nest.
json::object trace_events_of(const EngineProfile& profile) {
  const auto microseconds = [&](std::chrono::steady_clock::time_point time) {
    return std::chrono::duration<double, std::micro>(time - profile.begun).count();
  };
  json::array events;
  events.reserve(profile.steps.size());
  for (const ProfiledStep& of : profile.steps) {
    const StepInFlight& step = of.step;
    const double begin = microseconds(of.submitted);
    const char* const name = step.prefills > 0 ? "prefill step" : step.decodes > 0 ? "decode step" : "dummy step";
    events.push_back(json::object{{"name", name},
                                  {"ph", "X"},
                                  {"ts", begin},
                                  {"dur", microseconds(of.ended) - begin},
                                  {"pid", step.rank},
                                  {"tid", step.number % kMostStepsInFlight},
                                  {"args", json::object{{"step", step.number},
                                                        {"decodes", step.decodes},
                                                        {"prefills", step.prefills},
                                                        {"tokens", step.tokens},
                                                        {"launched_tokens", step.launched_tokens},
                                                        {"draft_passes", step.draft_passes},
                                                        {"executor_us", of.executor_seconds * 1e6}}}});
  }
  return {{"displayTimeUnit", "ms"}, {"steps_lost", profile.steps_lost}, {"traceEvents", std::move(events)}};
}

}  // namespace

bool ApiServer::has_model(const CallPtr& call) {
  if (ready_) return true;
  call->reply_error({.status = 503,
                     .message = "the model is still being loaded; try again in a moment",
                     .type = "unavailable_error",
                     .code = "loading_model",
                     .retry_after_seconds = 2});
  return false;
}

void ApiServer::post_abort(const CallPtr& call) {
  const std::variant<json::object, OpenAiError> body = parse_body(call->request().body);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&body)) return void(call->reply_error(*error));
  JsonFields fields(std::get<json::object>(body));
  std::string id;
  fields.text("request_id", id);
  bool all = false;
  fields.boolean("abort_all", all);
  if (fields.ok() && id.empty() && !all)
    fields.fail("request_id", "request_id is missing; give a request's id, or abort_all", "missing_required_parameter");
  if (!fields.ok()) return void(call->reply_error(fields.error()));
  int64_t aborted = 0;
  for (const std::shared_ptr<Generation>& generation : live()) {
    const std::optional<Generation::View> view = generation->view();
    if (!view || (!all && view->id != id)) continue;
    generation->abort();
    ++aborted;
  }
  if (aborted == 0 && !all) {
    call->reply_error({.status = 404,
                       .message = fmt::format("no request '{}' is in work", id),
                       .type = "not_found_error",
                       .param = "request_id",
                       .code = "request_not_found"});
    return;
  }
  call->reply(200, json::serialize(json::object{{"aborted", aborted}}));
}

void ApiServer::post_flush_cache(const CallPtr& call) {
  if (!has_model(call)) return;
  model_->loaded.engine->forget_prefixes();
  call->reply(200, R"({"status":"flushed"})");
}

void ApiServer::post_drain(const CallPtr& call) {
  draining_ = true;
  call->reply(200, json::serialize(json::object{{"status", "draining"}, {"requests", live().size()}}));
}

void ApiServer::set_paused(bool paused) {
  const std::lock_guard lock(mutex_);  // who comes last is obeyed
  if (paused_ == paused || (paused && stopping_)) return;
  paused_ = paused;
  if (paused) {
    model_->loaded.engine->pause();
  } else {
    model_->loaded.engine->resume();
  }
}

void ApiServer::post_pause(const CallPtr& call) {
  if (!has_model(call)) return;
  set_paused(true);
  call->reply(200,
              json::serialize(json::object{{"status", paused_ ? "paused" : "stopping"}, {"requests", live().size()}}));
}

void ApiServer::post_resume(const CallPtr& call) {
  draining_ = false;
  set_paused(false);
  call->reply(200, stopping_ ? R"({"status":"stopping"})" : R"({"status":"serving"})");
}

void ApiServer::post_start_profile(const CallPtr& call) {
  if (!has_model(call)) return;
  model_->loaded.engine->start_profile();
  call->reply(200, R"({"status":"profiling"})");
}

void ApiServer::post_stop_profile(const CallPtr& call) {
  if (!has_model(call)) return;
  const std::optional<EngineProfile> profile = model_->loaded.engine->stop_profile();
  if (!profile) {
    call->reply_error({.status = 400,
                       .message = "no profile was started; ask /start_profile first",
                       .type = "invalid_request_error",
                       .code = "no_profile"});
    return;
  }
  call->reply(200, json::serialize(trace_events_of(*profile)));
}

void ApiServer::get_requests(const CallPtr& call) {
  json::array requests;
  for (const std::shared_ptr<Generation>& generation : live()) {
    const std::optional<Generation::View> view = generation->view();
    if (!view) continue;
    requests.emplace_back(json::object{{"request_id", view->id},
                                       {"path", view->path},
                                       {"client", view->client},
                                       {"seconds", view->seconds},
                                       {"state", view->started ? "running" : "waiting"},
                                       {"stream", view->streams},
                                       {"prompt_tokens", view->usage.prompt_tokens},
                                       {"completion_tokens", view->usage.completion_tokens}});
  }
  call->reply(200, json_text(json::object{{"requests", std::move(requests)}}));
}

void ApiServer::get_statistics(const CallPtr& call) {
  if (!has_model(call)) return;
  json::array ranks;
  for (const EngineReport& report : model_->loaded.engine->rank_reports()) ranks.emplace_back(statistics_of(report));
  call->reply(200, json_text(json::object{{"block_size", model_->loaded.engine->settings().limits.block_size},
                                          {"ranks", std::move(ranks)}}));
}

}  // namespace lantern
