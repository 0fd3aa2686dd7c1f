// An HTTP/1.1 server for handlers that answer later and from any thread: whole answers and streams, with bounds on
// everything that a client can make it hold or wait for. RFC 9110 and 9112; what these leave open is refused rather
// than guessed at.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lantern {

using HttpFields = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;   // as the client wrote it, up to the '?': nothing is decoded or folded
  std::string query;  // behind the '?'
  HttpFields fields;
  std::string body;
  std::string client;                              // "127.0.0.1:50312"
  std::chrono::steady_clock::time_point received;  // when its head was complete

  // The first field of that name, in any case; empty where there is none.
  std::string_view field(std::string_view name) const;
};

struct HttpResponse {
  int32_t status = 200;
  HttpFields fields = {};  // beside Content-Length or Transfer-Encoding, Connection, Date and Server
  std::string body = {};
  bool close = false;  // the connection ends with it
};

// A request and the way to its answer. Any thread may call any method.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;

  // The whole answer. Nothing happens, and false comes back, where one was given or a stream's head was sent.
  virtual bool reply(HttpResponse response) = 0;
  // An answer in pieces: the head (without a body), then write() and finish(). The head goes out with the first piece,
  // or with a comment when the stream has been silent for HttpLimits::ping_interval; until then reply() may replace it.
  virtual void start(HttpResponse head) = 0;
  // Each piece is one write to the socket. False where nobody reads any more, or reads too slowly: the exchange is
  // over.
  virtual bool write(std::string piece) = 0;
  virtual void finish() = 0;

  // `gone` is called once, on a thread of the server, if the client leaves before the answer is complete; at once where
  // it has left. Quick.
  virtual void on_gone(std::function<void()> gone) = 0;
  virtual bool gone() const = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // When the head is in and before the body is read: an answer refuses the request. On a thread of the server; quick.
  virtual std::optional<HttpResponse> check_head(const HttpRequest& head) = 0;
  // On a thread of the server; quick. The exchange must get its answer some time.
  virtual void handle(std::shared_ptr<HttpExchange> exchange) = 0;
  // The answer to what is no proper request (400, 408, 411, 413, 417, 431, 501, 503, 505).
  virtual HttpResponse fault(int32_t status, std::string message) = 0;
};

struct HttpLimits {
  int32_t threads = 2;
  int32_t max_connections = 4096;
  size_t max_header_bytes = size_t{64} << 10;
  size_t max_header_fields = 256;
  size_t max_body_bytes = size_t{32} << 20;
  size_t max_all_bodies_bytes = size_t{512} << 20;  // of all requests that are read or answered
  size_t max_unsent_bytes = size_t{1} << 20;        // of a stream; a slower reader is dropped
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds idle_timeout{75'000};   // between requests
  std::chrono::milliseconds write_timeout{30'000};  // of one piece
  std::chrono::milliseconds ping_interval{15'000};
  // Whether a client may close its sending half and still wait for the answer. Most that do so have left, which shows
  // only when a write fails: a request without a stream would run to its end for nobody.
  bool allow_half_close = false;
};

struct HttpStats {
  int64_t connections = 0;  // open
  int64_t accepted = 0;
  int64_t refused = 0;     // for max_connections
  int64_t gone = 0;        // clients that left before their answer was complete
  int64_t body_bytes = 0;  // held
};

class HttpServer {
 public:
  // Listens from here on; requests are read once start() was called. `host` is an address or a name, port 0 takes a
  // free one. `handler` outlives the server. Errors: no such address, a port in use.
  static Result<std::unique_ptr<HttpServer>> listen(const std::string& host, uint16_t port, const HttpLimits& limits,
                                                    HttpHandler& handler);
  ~HttpServer();  // stops
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  bool on_loopback() const;
  void start();
  // Answers end their connections from now on, and connections without a request are closed.
  void drain();
  // Everything is closed, sent or not; threads end. Exchanges that still live are gone.
  void stop();
  HttpStats stats() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// "Not Found"
std::string_view http_reason(int32_t status);
// Case-insensitive, ASCII.
bool http_equal(std::string_view a, std::string_view b);
// Raises the limit of open files so that `connections` fit. Errors: the system allows fewer; says how many.
Status reserve_descriptors(int32_t connections);

}  // namespace lantern
