// A line for each answer: who asked for what, and how it went. Never a word of a prompt or an answer, never a key.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "server/openai_response.h"

namespace lantern {

struct AccessRecord {
  std::string method = {};
  std::string path = {};  // without the query
  std::string client = {};
  std::string request_id = {};
  int32_t status = 0;
  double seconds = 0;
  // Of a request that was given to the engine.
  bool generated = false;
  OpenAiUsage usage = {};
  double first_token_seconds = -1;
  double queue_seconds = -1;  // told to traces alone
  std::string_view outcome = {};
};

class AccessLog {
 public:
  enum class Format : uint8_t { kNone, kText, kJson };
  AccessLog(Format format, int descriptor) : format_(format), descriptor_(descriptor) {}

  // `now` in milliseconds since 1970. At most 4000 bytes: of a long path the beginning.
  static std::string line(const AccessRecord& record, Format format, int64_t now);
  // Never waits: where nobody reads the log, lines are lost.
  void write(const AccessRecord& record);

 private:
  Format format_;
  int descriptor_;
  std::mutex mutex_;
};

}  // namespace lantern
