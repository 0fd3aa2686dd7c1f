// Who answers in `lantern chat`: a model in this process, or that of a server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cli/conversation.h"
#include "cli/settings.h"
#include "text/output_parser.h"

namespace lantern::cli {

struct ChatReply {
  // kFull: no room is left in the context. The last two are by an interrupt.
  enum class End : uint8_t { kComplete, kLength, kFull, kStopped, kNeverBegan };
  End end = End::kComplete;
  ParsedOutput said;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double prefill_seconds = 0;  // to the first token
  double decode_seconds = 0;   // from there to the last
};

class ChatPartner {
 public:
  virtual ~ChatPartner() = default;
  virtual std::string name() const = 0;  // "models/tiny (deepseek_v32 format)"
  // Answers the last message. `show` gets the answer as it is made, on the caller's thread. An interrupt ends it.
  virtual Result<ChatReply> answer(const Conversation& conversation,
                                   const std::function<void(const OutputDelta&)>& show) = 0;
};

// From the settings of a model and its sampling.
Result<std::unique_ptr<ChatPartner>> local_partner(const Values& values);
// From --url, --api-key, --served-model-name and the settings of sampling, of which only those that were given are
// sent: the server has its own. Errors: no such server.
Result<std::unique_ptr<ChatPartner>> remote_partner(const Values& values);

}  // namespace lantern::cli
