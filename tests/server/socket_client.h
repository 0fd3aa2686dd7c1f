// A client of sockets and bytes: it sends what it is told, right or wrong, and takes answers apart by itself.
#pragma once

#include <boost/json.hpp>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lantern::test {

struct Answer {
  int status = 0;
  std::map<std::string, std::string> fields;  // names in lower case; of several of a name the last
  std::string body;
  std::vector<std::string> chunks;   // where it came in such
  boost::json::object json() const;  // fails the test where the body is none
};

// A machine with other work, and a build with sanitizers, may take that long; a test ends long before.
inline constexpr std::chrono::seconds kPatience{120};

class Client {
 public:
  explicit Client(uint16_t port);
  ~Client();
  Client(Client&& other) noexcept : socket_(std::exchange(other.socket_, -1)), buffer_(std::move(other.buffer_)) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False: the other side takes no more.
  bool send(std::string_view bytes);
  void half_close();  // nothing more is sent
  void reset();       // closes with a RST
  void close();
  int socket() const { return socket_; }

  // The next answer; nothing where the connection ends before it is complete, or none comes in `time`.
  std::optional<Answer> read_answer(std::chrono::milliseconds time = kPatience, bool to_head = false);
  // As much as one read() gives; empty at the end.
  std::string read_some(std::chrono::milliseconds time = kPatience);
  // Whether the other side has closed within `time`; what it still sends is dropped.
  bool is_closed(std::chrono::milliseconds time = kPatience);

 private:
  bool fill(std::chrono::steady_clock::time_point until);
  std::optional<std::string> read_line(std::chrono::steady_clock::time_point until);
  std::optional<std::string> read_bytes(size_t count, std::chrono::steady_clock::time_point until);

  int socket_ = -1;
  std::string buffer_;
};

// "POST /path HTTP/1.1" with Host, Content-Type and Content-Length, and `more` fields ("Name: value\r\n").
std::string post_text(std::string_view path, std::string_view body, std::string_view more = {});
std::string get_text(std::string_view path, std::string_view more = {});
// One request on a connection of its own; fails the test where no answer comes.
Answer post(uint16_t port, std::string_view path, std::string_view body, std::string_view more = {});
Answer get(uint16_t port, std::string_view path, std::string_view more = {});

// The data of the events of a stream. Fails the test where the body is no series of "data: ...\n\n" and comments, or an
// event came in more or less than one chunk.
std::vector<std::string> events_of(const Answer& answer);
// The same as JSON, without the [DONE] that must be the last.
std::vector<boost::json::object> json_events_of(const Answer& answer);

std::string text_of(const boost::json::value& value);

}  // namespace lantern::test
