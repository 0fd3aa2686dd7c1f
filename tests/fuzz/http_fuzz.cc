// What a connection brings, against a real server: heads, bodies, chunks, several requests in a row. The bytes are sent
// as they are and the sending half is closed. Every request that the handler sees gets one whole answer, and nothing
// else comes: one request more or less would be a smuggled one.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>

#include "base/check.h"
#include "fuzz_input.h"
#include "server/http.h"

using namespace lantern;

namespace {

constexpr size_t kMostBody = 20'000;

class Handler final : public HttpHandler {
 public:
  std::optional<HttpResponse> check_head(const HttpRequest& head) override {
    check_head_is_sound(head);
    if (head.path != "/refused") return std::nullopt;
    return HttpResponse{.status = 403};
  }
  void handle(std::shared_ptr<HttpExchange> exchange) override {
    const HttpRequest& request = exchange->request();
    check_head_is_sound(request);
    CHECK(request.body.size() <= kMostBody, "a body of {} bytes", request.body.size());
    ++handled;
    const bool is_head = request.method == "HEAD";  // no body comes, which the reader must know
    if (request.path != "/stream" || is_head) {
      exchange->reply({.status = is_head ? 204 : 200, .fields = {{"X-Handled", "1"}}, .body = request.body});
      return;
    }
    exchange->start({.status = 200, .fields = {{"X-Handled", "1"}}});
    exchange->write("a");
    exchange->write(request.body);
    exchange->finish();
  }
  HttpResponse fault(int32_t status, std::string message) override {
    CHECK(status >= 400 && !message.empty(), "a fault says nothing");
    return {.status = status, .body = std::move(message), .close = true};
  }

  std::atomic<int64_t> handled = 0;

 private:
  static void check_head_is_sound(const HttpRequest& head) {
    CHECK(!head.method.empty() && !head.path.empty(), "a request without a target");
    CHECK(head.path == "*" || head.path[0] == '/', "the path is {}", head.path);
    int lengths = 0;
    for (const auto& [name, value] : head.fields) {
      CHECK(!name.empty() && value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos,
            "a field has a line end in it");
      lengths += http_equal(name, "content-length") || http_equal(name, "transfer-encoding") ? 1 : 0;
    }
    CHECK(lengths <= 1, "two lengths of one body");
  }
};

std::string send_and_read(uint16_t port, std::string_view bytes) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "no connection");
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  shutdown(socket, SHUT_WR);
  std::string answer;
  std::array<char, 16384> buffer{};
  for (ssize_t got = 0; (got = recv(socket, buffer.data(), buffer.size(), 0)) > 0;)
    answer.append(buffer.data(), static_cast<size_t>(got));
  close(socket);
  return answer;
}

size_t number_of(std::string_view text, int base) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  CHECK(error == std::errc() && end != text.data(), "no number: {}", text);
  return number;
}

// What of `text` is in front of `mark`, which is taken too.
std::string_view take_until(std::string_view& text, std::string_view mark) {
  const size_t end = text.find(mark);
  CHECK(end != std::string_view::npos, "an answer breaks off: {}", text);
  const std::string_view before = text.substr(0, end);
  text.remove_prefix(end + mark.size());
  return before;
}
void take(std::string_view& text, size_t count) {
  CHECK(text.size() >= count, "an answer breaks off");
  text.remove_prefix(count);
}

// Takes one answer from the front; whether a handler gave it.
bool take_answer(std::string_view& text) {
  std::string_view head = take_until(text, "\r\n\r\n");
  CHECK(head.starts_with("HTTP/1.1 ") && head.size() > 12, "no answer: {}", head);
  const size_t status = number_of(head.substr(9, 3), 10);
  const auto value_of = [&](std::string_view name) -> std::string_view {
    const size_t at = head.find(name);
    if (at == std::string_view::npos) return {};
    return head.substr(at + name.size(), head.find('\r', at + name.size()) - at - name.size());
  };
  if (status == 100) return false;
  if (!value_of("\r\nTransfer-Encoding: ").empty()) {
    size_t size = 0;
    do {
      size = number_of(take_until(text, "\r\n"), 16);
      take(text, size);
      CHECK(text.starts_with("\r\n"), "a chunk does not end");
      take(text, 2);
    } while (size > 0);
  } else if (const std::string_view length = value_of("\r\nContent-Length: "); !length.empty()) {
    take(text, number_of(length, 10));
  } else if (status != 204) {
    text = {};  // HTTP/1.0: it ends with the connection
  }
  return !value_of("\r\nX-Handled: ").empty();
}

struct Running {
  Handler handler = {};
  std::unique_ptr<HttpServer> server = {};
  Running() {
    HttpLimits limits;
    limits.threads = 1;
    limits.max_body_bytes = kMostBody;
    limits.allow_half_close = true;
    Result<std::unique_ptr<HttpServer>> made = HttpServer::listen("127.0.0.1", 0, limits, handler);
    CHECK(made.ok(), "{}", made.error().message());
    server = std::move(*made);
    server->start();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Running running;
  running.handler.handled = 0;
  const std::string answers = send_and_read(running.server->port(), {reinterpret_cast<const char*>(data), size});
  int64_t answered = 0;
  for (std::string_view rest = answers; !rest.empty();) answered += take_answer(rest) ? 1 : 0;
  CHECK(answered == running.handler.handled, "{} answers to {} requests", answered, running.handler.handled.load());
  return 0;
}
