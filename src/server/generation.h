// A request in the engine, from its submission to the end of its answer. For this room's sources only.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/admission.h"
#include "server/answer_shape.h"
#include "server/api_call.h"

namespace lantern {

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(std::shared_ptr<ApiCall> call, std::unique_ptr<AdmissionControl::Ticket> ticket,
             const OpenAiRequest& request, const AnswerShape& shape);

  // Gives the prompts to the engine. The request's outputs keep this alive.
  void start(OpenAiRequest&& request);
  // Ends it with an error: the server shuts down, or an operator wants it to end.
  void end(const std::string& why);
  // What it is, for ApiServer::requests_in_work().
  std::string line(std::chrono::steady_clock::time_point now) const;
  void abort();

  // What operators see of it.
  struct View {
    std::string id;
    std::string path;
    std::string client;
    double seconds = 0;  // since it was received
    OpenAiUsage usage;   // so far
    bool streams = false;
    bool started = false;  // a token has come
  };
  std::optional<View> view();  // nothing: it is over

 private:
  void submit(OpenAiRequest&& request);
  void on_output(size_t prompt, Output&& output);
  void note_tokens(size_t choice, const Output& output);
  // The caller holds mutex_.
  void add_locked(size_t prompt, Output&& output);
  void fail_locked(const OpenAiError& error, std::string_view outcome = "error");
  void finish_locked(std::string_view outcome);
  bool send_locked(std::vector<std::string>& events);
  // Of all choices, from any thread and under any lock.
  void cancel();
  bool is_cancelled();

  ApiServer& server_;
  std::shared_ptr<ApiCall> call_;  // until the answer is over
  const std::string name_;
  const std::chrono::steady_clock::time_point received_;
  const bool streams_;
  const int32_t choices_;
  const int64_t max_tokens_;

  std::mutex mutex_;
  std::unique_ptr<AdmissionControl::Ticket> ticket_;
  std::unique_ptr<WholeAnswer> whole_;      // of a whole answer
  std::unique_ptr<AnswerStream> streamer_;  // of a stream
  bool over_ = false;
  double first_token_seconds_ = -1;
  double submitted_seconds_ = 0;                                    // since it was received, as the others
  double queue_seconds_ = -1;                                       // of the first prompt that has ended
  std::vector<std::chrono::steady_clock::time_point> last_tokens_;  // by choice of all prompts
  std::vector<int32_t> first_choice_;                               // of each prompt

  std::mutex handles_mutex_;  // taken last, and nothing is called under it
  std::vector<RequestHandle> handles_;
  bool cancelled_ = false;
};

}  // namespace lantern
