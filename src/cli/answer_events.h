// A streamed answer of the OpenAI API, taken apart as its bytes come.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/sse_reader.h"
#include "text/output_parser.h"

namespace lantern::cli {

struct AnswerUsage {  // as the server counts; 0 where it does not say
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
};

class AnswerEvents {
 public:
  // `on_piece` gets what brings tokens: any part of a completion, and of a chat what is more than a role or an end. A
  // call of a function is told by its index, name and arguments.
  explicit AnswerEvents(std::function<void(OutputDelta piece)> on_piece) : on_piece_(std::move(on_piece)) {}

  void head(int32_t status) { status_ = status; }
  void data(std::string_view part);
  // What was wrong, in one sentence; empty where the answer is complete. `status` is that of the call.
  std::string end(const Status& status);

  const AnswerUsage& usage() const { return usage_; }
  const std::string& finish_reason() const { return finish_reason_; }  // of the first choice; empty before its end

 private:
  void on_event(std::string_view event);

  std::function<void(OutputDelta piece)> on_piece_;
  SseReader reader_;
  AnswerUsage usage_;
  std::string finish_reason_;
  std::string error_;
  std::string body_;  // of an answer that is no stream
  int32_t status_ = 0;
  bool any_ = false;
  bool done_ = false;
};

}  // namespace lantern::cli
