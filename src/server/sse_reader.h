// Reads a stream of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) however its
// bytes are cut.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace lantern {

class SseReader {
 public:
  static constexpr size_t kMostBytes = size_t{16} << 20;  // of one event

  // Calls `event` with the data of each event that `bytes` complete; comments and other fields are left out. False: an
  // event is longer than any should be, and nothing more is read.
  bool push(std::string_view bytes, const std::function<void(std::string_view data)>& event);

 private:
  void end_line(const std::function<void(std::string_view data)>& event);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // a line feed belongs to the line that ended
};

}  // namespace lantern
