#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "cli/answer_events.h"
#include "cli/chat_partner.h"
#include "cli/console.h"
#include "cli/server_access.h"

namespace lantern::cli {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr auto kLookForInterrupt = std::chrono::milliseconds(50);
constexpr const char* kPath = "/v1/chat/completions";

// The fields of sampling that were asked for.
json::object sampling_fields(const Values& values) {
  json::object fields;
  constexpr std::pair<const char*, const char*> kReals[] = {{"temperature", "temperature"},
                                                            {"top-p", "top_p"},
                                                            {"min-p", "min_p"},
                                                            {"repetition-penalty", "repetition_penalty"},
                                                            {"presence-penalty", "presence_penalty"},
                                                            {"frequency-penalty", "frequency_penalty"}};
  constexpr std::pair<const char*, const char*> kIntegers[] = {
      {"top-k", "top_k"}, {"seed", "seed"}, {"max-tokens", "max_completion_tokens"}};
  for (const auto& [setting, field] : kReals) {
    if (values.given(setting)) fields[field] = values.real(setting);
  }
  for (const auto& [setting, field] : kIntegers) {
    if (values.given(setting)) fields[field] = values.integer(setting);
  }
  return fields;
}

// What comes of a call, between the client's thread and the one that shows it.
struct Incoming {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<OutputDelta> pieces;
  std::optional<Status> over;
  std::optional<Clock::time_point> first;
  Clock::time_point last;
  int64_t count = 0;  // of pieces
};

class RemotePartner final : public ChatPartner {
 public:
  RemotePartner(ServerAccess server, std::string model, json::object sampling)
      : server_(std::move(server)), model_(std::move(model)), sampling_(std::move(sampling)) {}

  std::string name() const override { return fmt::format("{} at {}", model_, server_.url()); }

  Result<ChatReply> answer(const Conversation& conversation,
                           const std::function<void(const OutputDelta&)>& show) override {
    Incoming incoming;
    AnswerEvents events([&](OutputDelta piece) {
      const std::lock_guard lock(incoming.mutex);
      incoming.last = Clock::now();
      if (!incoming.first) incoming.first = incoming.last;
      ++incoming.count;
      incoming.pieces.push_back(std::move(piece));
      incoming.changed.notify_one();
    });
    HttpReceiver receiver;
    receiver.head = [&](int32_t status, const HttpFields&) { events.head(status); };
    receiver.data = [&](std::string_view part) {
      events.data(part);
      return true;
    };
    receiver.end = [&](Status status) {
      const std::lock_guard lock(incoming.mutex);
      incoming.over = std::move(status);
      incoming.changed.notify_one();
    };
    const Clock::time_point start = Clock::now();
    const uint64_t call = server_.http().start(server_.post(kPath, request_of(conversation)), std::move(receiver));

    ChatReply reply;
    bool cancelled = false;
    std::unique_lock lock(incoming.mutex);
    while (!incoming.over || !incoming.pieces.empty()) {
      incoming.changed.wait_for(lock, kLookForInterrupt);
      const std::vector<OutputDelta> pieces = std::exchange(incoming.pieces, {});
      lock.unlock();
      for (const OutputDelta& piece : pieces) {
        if (cancelled) break;
        reply.said.add(piece);
        show(piece);
      }
      if (!cancelled && (interrupted() || output_lost())) {
        cancelled = true;
        server_.http().cancel(call);
      }
      lock.lock();
    }
    const std::string fault = events.end(*incoming.over);
    if (!cancelled && !fault.empty())
      return Error(ErrorCode::kUnsupported, fmt::format("{}{}: {}", server_.url(), kPath, fault));
    if (cancelled) reply.end = incoming.first ? ChatReply::End::kStopped : ChatReply::End::kNeverBegan;
    if (!cancelled && events.finish_reason() == "length") reply.end = ChatReply::End::kLength;
    reply.prompt_tokens = events.usage().prompt_tokens;
    reply.output_tokens = events.usage().completion_tokens > 0 ? events.usage().completion_tokens : incoming.count;
    if (incoming.first) {
      reply.prefill_seconds = std::chrono::duration<double>(*incoming.first - start).count();
      reply.decode_seconds = std::chrono::duration<double>(incoming.last - *incoming.first).count();
    }
    return reply;
  }

 private:
  std::string request_of(const Conversation& conversation) const {
    json::object body = sampling_;
    body["model"] = model_;
    body["messages"] = json::parse(conversation.as_json());
    // DeepSeek's and GLM's name for the same.
    if (conversation.thinking) {
      body["chat_template_kwargs"] =
          json::object{{"thinking", *conversation.thinking}, {"enable_thinking", *conversation.thinking}};
    }
    body["stream"] = true;
    // The running count is what there is of an answer that is stopped.
    body["stream_options"] = json::object{{"include_usage", true}, {"continuous_usage_stats", true}};
    return json::serialize(body);
  }

  ServerAccess server_;
  std::string model_;
  json::object sampling_;
};

}  // namespace

Result<std::unique_ptr<ChatPartner>> remote_partner(const Values& values) {
  ASSIGN_OR_RETURN(ServerAccess server, ServerAccess::open(values));
  std::string model = values.text("served-model-name");
  if (model.empty()) {
    ASSIGN_OR_RETURN(model, server.first_model());
  }
  return std::unique_ptr<ChatPartner>(
      std::make_unique<RemotePartner>(std::move(server), std::move(model), sampling_fields(values)));
}

}  // namespace lantern::cli
