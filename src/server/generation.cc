#include "server/generation.h"

#include <fmt/format.h>

#include <new>

#include "base/unix_time.h"
#include "server/anthropic.h"
#include "server/openai_parts.h"
#include "server/responses_request.h"

namespace lantern {
namespace {

std::string_view outcome_name(std::string_view outcome, bool gone) { return gone ? "abort" : outcome; }

int32_t choices_of(const OpenAiRequest& request) {
  int32_t sum = 0;
  for (const EngineRequest& prompt : request.prompts) sum += prompt.request.n;
  return sum;
}

}  // namespace

Generation::Generation(std::shared_ptr<ApiCall> call, std::unique_ptr<AdmissionControl::Ticket> ticket,
                       const OpenAiRequest& request, const AnswerShape& shape)
    : server_(call->server),
      call_(std::move(call)),
      name_(fmt::format("{} {} id={}, {} prompts", call_->request().method, call_->request().path, call_->id,
                        request.prompts.size())),
      received_(call_->request().received),
      streams_(request.streams),
      choices_(choices_of(request)),
      max_tokens_(request.prompts.front().request.max_tokens),
      ticket_(std::move(ticket)),
      last_tokens_(static_cast<size_t>(choices_)) {
  const Tokenizer& tokenizer = *server_.model_->api.tokenizer;
  for (int32_t first = 0; const EngineRequest& prompt : request.prompts) {
    first_choice_.push_back(first);
    first += prompt.request.n;
  }
  if (streams_) {
    streamer_ = make_answer_stream(request, tokenizer, shape);
  } else {
    whole_ = make_whole_answer(request, tokenizer, shape);
  }
}

void Generation::start(OpenAiRequest&& request) {
  try {
    submit(std::move(request));
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(mutex_);
    fail_locked(no_memory_left());
  }
}

void Generation::submit(OpenAiRequest&& request) {
  const std::shared_ptr<HttpExchange> exchange = call_->exchange;
  if (streams_) {
    HttpResponse head{.status = 200, .fields = call_->fields("text/event-stream; charset=utf-8")};
    head.fields.emplace_back("Cache-Control", "no-cache");
    head.fields.emplace_back("X-Accel-Buffering", "no");
    exchange->start(std::move(head));
  }
  submitted_seconds_ = call_->seconds();
  server_.add_live(shared_from_this());
  exchange->on_gone([weak = weak_from_this()] {
    // Perhaps under its mutex, where a write finds the client gone: the rest is done with the outputs that this brings.
    if (const auto self = weak.lock()) self->cancel();
  });
  for (size_t p = 0; p < request.prompts.size(); ++p) {
    if (is_cancelled()) {  // the outputs of prompts that were never submitted will not come
      const std::lock_guard lock(mutex_);
      if (!over_) finish_locked("abort");
      return;
    }
    Result<RequestHandle> handle = server_.model_->loaded.engine->submit(
        std::move(request.prompts[p]),
        [self = shared_from_this(), p](Output&& output) { self->on_output(p, std::move(output)); });
    if (!handle.ok()) {
      const std::lock_guard lock(mutex_);
      fail_locked(openai_error_of(handle.error()));
      return;
    }
    bool late = false;
    {
      const std::lock_guard lock(handles_mutex_);
      late = cancelled_;
      // Whoever is over already lets go of no more handles: one that came now would keep it alive, and it the handle.
      if (!late) handles_.push_back(*handle);
    }
    if (late) handle->cancel();
  }
}

std::string Generation::line(std::chrono::steady_clock::time_point now) const {
  return fmt::format("{}, for {:.1f} s", name_, std::chrono::duration<double>(now - received_).count());
}

bool Generation::is_cancelled() {
  const std::lock_guard lock(handles_mutex_);
  return cancelled_;
}

void Generation::cancel() {
  std::vector<RequestHandle> handles;
  {
    const std::lock_guard lock(handles_mutex_);
    cancelled_ = true;
    handles.swap(handles_);
  }
  for (const RequestHandle& handle : handles) handle.cancel();
}

void Generation::end(const std::string& why) {
  const std::lock_guard lock(mutex_);
  fail_locked({.status = 503, .message = why, .type = "unavailable_error", .code = "shutting_down"});
}

void Generation::abort() {
  const std::lock_guard lock(mutex_);
  fail_locked({.status = 503,
               .message = "the request was ended by the server's operator",
               .type = "unavailable_error",
               .code = "aborted"},
              "abort");
}

std::optional<Generation::View> Generation::view() {
  const std::lock_guard lock(mutex_);
  if (over_) return std::nullopt;
  return View{.id = call_->id,
              .path = call_->request().path,
              .client = call_->request().client,
              .seconds = call_->seconds(),
              .usage = streams_ ? streamer_->usage() : whole_->usage(),
              .streams = streams_,
              .started = first_token_seconds_ >= 0};
}

void Generation::note_tokens(size_t choice, const Output& output) {
  if (output.tokens.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  if (first_token_seconds_ < 0) {
    first_token_seconds_ = std::chrono::duration<double>(now - call_->request().received).count();
    server_.metrics_.first_token(first_token_seconds_);
    ticket_->started(now);
  }
  std::chrono::steady_clock::time_point& last = last_tokens_[choice];
  if (last != std::chrono::steady_clock::time_point{}) {
    server_.metrics_.inter_token(std::chrono::duration<double>(now - last).count(),
                                 static_cast<int64_t>(output.tokens.size()));
  }
  last = now;
}

void Generation::on_output(size_t prompt, Output&& output) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  try {
    add_locked(prompt, std::move(output));
  } catch (const std::bad_alloc&) {
    fail_locked(no_memory_left());
  }
}

void Generation::add_locked(size_t prompt, Output&& output) {
  note_tokens(static_cast<size_t>(first_choice_[prompt] + output.choice), output);
  if (queue_seconds_ < 0) queue_seconds_ = output.queue_seconds;
  if (streams_) {
    std::vector<std::string> events;
    streamer_->add(prompt, std::move(output), events);
    const bool sent = send_locked(events);
    if (streamer_->complete() || !sent) {
      const std::string_view outcome = outcome_name(streamer_->outcome(), !sent);
      if (sent) call_->exchange->finish();
      finish_locked(outcome);
    }
    return;
  }
  whole_->add(prompt, output);
  if (!whole_->complete()) return;
  const bool gone = call_->exchange->gone();
  const std::string_view outcome = outcome_name(whole_->outcome(), gone);
  std::variant<std::string, OpenAiError> body = whole_->body();
  if (const OpenAiError* error = std::get_if<OpenAiError>(&body)) {
    if (!gone) call_->reply_error(*error);
  } else {
    call_->reply(200, std::move(std::get<std::string>(body)));
  }
  finish_locked(outcome);
}

bool Generation::send_locked(std::vector<std::string>& events) {
  for (std::string& event : events) {
    if (!call_->exchange->write(std::move(event))) return false;
    call_->record.status = 200;
  }
  return true;
}

void Generation::fail_locked(const OpenAiError& error, std::string_view outcome) {
  if (over_) return;
  if (!call_->reply_error(error) && streams_) {
    std::vector<std::string> events;
    streamer_->add_error(error, events);
    send_locked(events);
    call_->exchange->finish();
  }
  finish_locked(outcome);
}

void Generation::finish_locked(std::string_view outcome) {
  over_ = true;
  const OpenAiUsage usage = streams_ ? streamer_->usage() : whole_->usage();
  AccessRecord& record = call_->record;
  record.generated = true;
  record.usage = usage;
  record.first_token_seconds = first_token_seconds_;
  record.queue_seconds = queue_seconds_;
  record.outcome = outcome;
  server_.metrics_.finished({.usage = usage,
                             .outcome = outcome,
                             .first_token_seconds = first_token_seconds_,
                             .first_run_seconds = queue_seconds_ < 0 ? -1 : submitted_seconds_ + queue_seconds_,
                             .queue_seconds = queue_seconds_,
                             .seconds = call_->seconds(),
                             .n = choices_,
                             .max_tokens = max_tokens_});
  cancel();
  ticket_.reset();
  call_.reset();
  server_.remove_live(this);  // outputs, or the caller, still hold this
}

void ApiServer::post_generate(const CallPtr& call) {
  AdmissionControl::Refusal refusal;
  const auto now = std::chrono::steady_clock::now();
  std::unique_ptr<AdmissionControl::Ticket> ticket =
      admission_->admit(static_cast<int64_t>(call->request().body.size()), now, refusal);
  if (ticket == nullptr) {
    metrics_.rejected(refusal.reason);
    call->reply_error(
        {.status = 503,
         .message = fmt::format("{} {} wait already and at most {} may; try again in {} s", refusal.waiting,
                                refusal.reason == "reqs" ? "requests" : "tokens of prompts", refusal.limit,
                                refusal.retry_after_seconds),
         .type = "unavailable_error",
         .code = "queue_full",
         .retry_after_seconds = refusal.retry_after_seconds});
    return;
  }
  work_.add([this, call, held = std::make_shared<std::unique_ptr<AdmissionControl::Ticket>>(std::move(ticket))] {
    run_guarded(call, [&] { generate(call, std::move(*held)); });
  });
}

void ApiServer::generate(const CallPtr& call, std::unique_ptr<AdmissionControl::Ticket> ticket) {
  if (call->exchange->gone()) return;
  AnswerShape shape{.id = {},
                    .created = unix_seconds(),
                    .model = model_->api.names.front(),
                    .reasoning_field = settings_.reasoning_field,
                    .stream_interval = settings_.stream_interval};
  std::variant<OpenAiRequest, OpenAiError> read = read_request(*call, shape);
  if (const OpenAiError* error = std::get_if<OpenAiError>(&read)) {
    call->reply_error(*error);
    return;
  }
  OpenAiRequest& request = std::get<OpenAiRequest>(read);
  if (!request.request_id.empty() && is_request_id(request.request_id)) call->id = request.request_id;
  if (settings_.force_include_usage && request.streams) request.include_usage = true;
  int64_t tokens = 0;
  for (const EngineRequest& prompt : request.prompts) tokens += static_cast<int64_t>(prompt.request.prompt.size());
  ticket->set_tokens(tokens);
  shape.id = call->id;
  std::make_shared<Generation>(call, std::move(ticket), request, shape)->start(std::move(request));
}

std::variant<OpenAiRequest, OpenAiError> ApiServer::read_request(const ApiCall& call, AnswerShape& shape) {
  const std::string& body = call.request().body;
  const uint64_t seed = next_seed_.fetch_add(1024);
  if (const std::optional<OpenAiEndpoint> endpoint = parse_openai_endpoint(call.request().path))
    return read_openai_request(*endpoint, body, model_->api, seed);
  // The others are chats in other words.
  if (call.request().path == "/v1/responses") {
    shape.api = AnswerShape::Api::kResponses;
    std::variant<ChatOfResponse, OpenAiError> chat = chat_of_response(body, model_->api);
    if (OpenAiError* error = std::get_if<OpenAiError>(&chat)) return std::move(*error);
    shape.repeated = std::move(std::get<ChatOfResponse>(chat).repeated);
    std::variant<OpenAiRequest, OpenAiError> read =
        read_openai_request(OpenAiEndpoint::kChatCompletions, std::get<ChatOfResponse>(chat).body, model_->api, seed);
    if (OpenAiError* error = std::get_if<OpenAiError>(&read)) return response_error_of(std::move(*error));
    return read;
  }
  shape.api = AnswerShape::Api::kMessages;
  std::variant<std::string, OpenAiError> chat = chat_of_messages(body);
  if (OpenAiError* error = std::get_if<OpenAiError>(&chat)) return std::move(*error);
  std::variant<OpenAiRequest, OpenAiError> read =
      read_openai_request(OpenAiEndpoint::kChatCompletions, std::get<std::string>(chat), model_->api, seed);
  if (OpenAiError* error = std::get_if<OpenAiError>(&read)) return message_error_of(std::move(*error));
  return read;
}

}  // namespace lantern
