// One connection of the server, as a coroutine on the one thread that owns its socket; pieces of a stream are also sent
// by whoever makes them, while it sleeps (HttpExchangeImpl). For this room's sources only.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "server/http.h"
#include "server/http_text.h"

namespace lantern {

class HttpConnection;
class HttpReader;

// A thread of the server with the connections that it owns.
struct HttpThread {
  std::unordered_set<HttpConnection*> connections = {};  // this thread's alone
  boost::asio::io_context context{1};
};

// What all connections of a server share.
struct HttpShared {
  HttpLimits limits;
  HttpHandler* handler = nullptr;
  std::atomic<bool> draining = false;
  std::atomic<int64_t> connections = 0;
  std::atomic<int64_t> accepted = 0;
  std::atomic<int64_t> refused = 0;
  std::atomic<int64_t> gone = 0;
  std::atomic<int64_t> body_bytes = 0;
};

// Bytes of bodies counted against max_all_bodies_bytes for as long as this lives.
class BodyAllowance {
 public:
  explicit BodyAllowance(std::shared_ptr<HttpShared> shared) : shared_(std::move(shared)) {}
  ~BodyAllowance() { shared_->body_bytes -= bytes_; }
  BodyAllowance(const BodyAllowance&) = delete;
  BodyAllowance& operator=(const BodyAllowance&) = delete;
  // False: all bodies together would be too many.
  bool grow_to(size_t bytes);

 private:
  std::shared_ptr<HttpShared> shared_;
  int64_t bytes_ = 0;
};

// The exchange as handlers see it; the connection takes from it what it is to send. A piece of a stream does not wait
// for that: while the connection sleeps the socket is this exchange's to write to, until `gone` or the stream's end.
class HttpExchangeImpl final : public HttpExchange {
 public:
  using Clock = std::chrono::steady_clock;

  // `framing` and `socket`: of a stream.
  HttpExchangeImpl(std::shared_ptr<HttpThread> thread, std::weak_ptr<HttpConnection> connection, HttpRequest request,
                   const std::shared_ptr<HttpShared>& shared, HttpFraming framing, int socket)
      : thread_(std::move(thread)),
        connection_(std::move(connection)),
        request_(std::move(request)),
        shared_(shared),
        framing_(framing),
        socket_(socket) {}

  const HttpRequest& request() const override { return request_; }
  bool reply(HttpResponse response) override;
  void start(HttpResponse head) override;
  bool write(std::string piece) override;
  void finish() override;
  void on_gone(std::function<void()> gone) override;
  bool gone() const override;

  // For the connection.
  struct Next {
    enum class Kind : uint8_t { kNothing, kReply, kHead, kPiece, kEnd } kind = Kind::kNothing;
    HttpResponse response = {};
    std::string piece = {};          // framed
    Clock::time_point look_at = {};  // of kNothing: when to ask again if nothing wakes the connection before
  };
  // What is to be sent next: comments too, of a stream that has been silent. With kNothing the connection must sleep,
  // and leave the socket alone, until it asks again.
  Next take(Clock::time_point now);
  bool is_stream() const;
  void set_gone();

 private:
  void wake_locked();
  std::string framed(std::string piece) const;
  // What the socket takes of `piece` at once is gone from it.
  void send_locked(std::string& piece);

  std::shared_ptr<HttpThread> thread_;
  std::weak_ptr<HttpConnection> connection_;
  HttpRequest request_;
  std::shared_ptr<HttpShared> shared_;
  const HttpFraming framing_;
  const int socket_;  // the connection's, which closes it when this is gone or over

  mutable std::mutex mutex_;
  HttpResponse response_ = {};
  enum class State : uint8_t { kOpen, kReplied, kStarted, kHeadSent, kOver } state_ = State::kOpen;
  std::deque<std::string> pieces_ = {};
  size_t unsent_ = 0;
  bool finished_ = false;
  bool gone_ = false;
  bool waited_for_ = false;  // the connection sleeps until something comes
  Clock::time_point last_sent_ = Clock::now();
  std::function<void()> on_gone_ = {};
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // The caller has counted it in shared->connections.
  HttpConnection(boost::asio::ip::tcp::socket socket, std::shared_ptr<HttpThread> thread,
                 std::shared_ptr<HttpShared> shared);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // All of these on its thread.
  void start();
  void refuse();         // answers 503 and closes
  void close_if_idle();  // one whose requests have had their answers
  void close();
  void wake();

 private:
  template <class T = void>
  using Awaitable = boost::asio::awaitable<T>;

  Awaitable<> run();
  // False: the connection ends.
  Awaitable<bool> serve_one(HttpReader& reader);
  Awaitable<bool> refuse_request(int32_t status, std::string why);
  Awaitable<bool> send_answer(const std::shared_ptr<HttpExchangeImpl>& exchange, int32_t version, bool keep, bool head);
  Awaitable<bool> send_response(const HttpResponse& response, int32_t version, bool keep, bool head);
  Awaitable<bool> send(std::string_view bytes);
  Awaitable<> wait_for_output(const std::shared_ptr<HttpExchangeImpl>& exchange,
                              std::chrono::steady_clock::time_point until);
  Awaitable<> watch_client(std::shared_ptr<HttpExchangeImpl> exchange);
  // Lets the client read the last answer before what it still sends is met with a reset.
  Awaitable<> linger();
  // Until disarm() or the deadline: then what the socket does is aborted and timed_out_ is set.
  void arm(std::chrono::milliseconds time);
  void disarm();

  boost::asio::ip::tcp::socket socket_;
  std::shared_ptr<HttpThread> thread_;
  std::shared_ptr<HttpShared> shared_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer woken_;  // wait_for_output() sleeps on it
  boost::asio::steady_timer look_;   // watch_client() does
  std::string client_;
  uint64_t armed_ = 0;
  bool timed_out_ = false;
  bool idle_ = true;
  bool served_ = false;  // or is about to be
  bool watching_ = false;
  std::shared_ptr<HttpExchangeImpl> current_;
};

}  // namespace lantern
