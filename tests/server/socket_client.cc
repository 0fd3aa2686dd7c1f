#include "socket_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace lantern::test {
namespace json = boost::json;

json::object Answer::json() const {
  json::error_code failure;
  json::value document = json::parse(body, failure);
  if (failure || !document.is_object()) {
    ADD_FAILURE() << "no JSON object: " << body;
    return {};
  }
  return document.get_object();
}

Client::Client(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    ADD_FAILURE() << "no connection to port " << port;
    close();
    return;
  }
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

Client::~Client() { close(); }

void Client::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void Client::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close();
}

void Client::half_close() { shutdown(socket_, SHUT_WR); }

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool Client::fill(std::chrono::steady_clock::time_point until) {
  const std::string more = read_some(
      std::max(std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()),
               std::chrono::milliseconds(0)));
  buffer_ += more;
  return !more.empty();
}

std::string Client::read_some(std::chrono::milliseconds time) {
  pollfd of{.fd = socket_, .events = POLLIN, .revents = 0};
  if (poll(&of, 1, static_cast<int>(time.count())) <= 0) return {};
  std::array<char, 16384> bytes{};
  const ssize_t got = recv(socket_, bytes.data(), bytes.size(), 0);
  return got > 0 ? std::string(bytes.data(), static_cast<size_t>(got)) : std::string();
}

bool Client::is_closed(std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) {
    pollfd of{.fd = socket_, .events = POLLIN, .revents = 0};
    if (poll(&of, 1, 20) <= 0) continue;
    std::array<char, 16384> bytes{};
    if (recv(socket_, bytes.data(), bytes.size(), 0) <= 0) return true;
  }
  return false;
}

std::optional<std::string> Client::read_line(std::chrono::steady_clock::time_point until) {
  while (true) {
    if (const size_t end = buffer_.find("\r\n"); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 2);
      return line;
    }
    if (!fill(until)) return std::nullopt;
  }
}

std::optional<std::string> Client::read_bytes(size_t count, std::chrono::steady_clock::time_point until) {
  while (buffer_.size() < count) {
    if (!fill(until)) return std::nullopt;
  }
  std::string bytes = buffer_.substr(0, count);
  buffer_.erase(0, count);
  return bytes;
}

std::optional<Answer> Client::read_answer(std::chrono::milliseconds time, bool to_head) {
  const auto until = std::chrono::steady_clock::now() + time;
  Answer answer;
  std::optional<std::string> line = read_line(until);
  if (!line || !line->starts_with("HTTP/1.1 ")) return std::nullopt;
  answer.status = std::stoi(line->substr(9));
  while ((line = read_line(until)) && !line->empty()) {
    const size_t colon = line->find(": ");
    if (colon == std::string::npos) {
      ADD_FAILURE() << "no field: " << *line;
      return std::nullopt;
    }
    std::string name = line->substr(0, colon);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    answer.fields[name] = line->substr(colon + 2);
  }
  if (!line) return std::nullopt;
  if (answer.status == 100 || answer.status == 204 || to_head) return answer;
  if (const auto length = answer.fields.find("content-length"); length != answer.fields.end()) {
    std::optional<std::string> body = read_bytes(std::stoul(length->second), until);
    if (!body) return std::nullopt;
    answer.body = *std::move(body);
    return answer;
  }
  if (!answer.fields.contains("transfer-encoding")) {  // until the connection ends
    answer.body = std::exchange(buffer_, {});
    while (fill(until)) answer.body += std::exchange(buffer_, {});
    return answer;
  }
  while (true) {
    const std::optional<std::string> size_line = read_line(until);
    if (!size_line) return std::nullopt;
    const size_t size = std::stoul(*size_line, nullptr, 16);
    const std::optional<std::string> chunk = read_bytes(size + 2, until);
    if (!chunk || !chunk->ends_with("\r\n")) return std::nullopt;
    if (size == 0) return answer;
    answer.chunks.push_back(chunk->substr(0, size));
    answer.body += answer.chunks.back();
  }
}

std::string post_text(std::string_view path, std::string_view body, std::string_view more) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", path,
      body.size(), more, body);
}
std::string get_text(std::string_view path, std::string_view more) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, more);
}

namespace {
Answer ask(uint16_t port, const std::string& text) {
  Client client(port);
  EXPECT_TRUE(client.send(text));
  std::optional<Answer> answer = client.read_answer();
  if (!answer) ADD_FAILURE() << "no answer to " << text.substr(0, 200);
  return answer.value_or(Answer{});
}
}  // namespace

Answer post(uint16_t port, std::string_view path, std::string_view body, std::string_view more) {
  return ask(port, post_text(path, body, more));
}
Answer get(uint16_t port, std::string_view path, std::string_view more) { return ask(port, get_text(path, more)); }

std::vector<std::string> events_of(const Answer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.fields.at("content-type").starts_with("text/event-stream"));
  std::vector<std::string> events;
  for (const std::string& chunk : answer.chunks) {
    if (chunk.starts_with(": ")) continue;
    const bool is_event =
        chunk.starts_with("data: ") && chunk.ends_with("\n\n") && std::ranges::count(chunk, '\n') == 2;
    EXPECT_TRUE(is_event) << "not one event: " << chunk;
    if (is_event) events.push_back(chunk.substr(6, chunk.size() - 8));
  }
  return events;
}

std::vector<json::object> json_events_of(const Answer& answer) {
  std::vector<std::string> events = events_of(answer);
  if (events.empty() || events.back() != "[DONE]") {
    ADD_FAILURE() << "the stream does not end with [DONE]: " << answer.body;
    return {};
  }
  events.pop_back();
  std::vector<json::object> objects;
  for (const std::string& event : events) {
    json::error_code failure;
    const json::value document = json::parse(event, failure);
    if (failure || !document.is_object()) {
      ADD_FAILURE() << "not JSON: " << event;
      continue;
    }
    objects.push_back(document.get_object());
  }
  return objects;
}

std::string text_of(const json::value& value) { return value.is_string() ? json::value_to<std::string>(value) : ""; }

}  // namespace lantern::test
