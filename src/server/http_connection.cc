// The only file beside http_client.cc that knows Beast: it takes requests apart. What is sent is written out in
// http_text.cc.
#include "server/http_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <new>
#include <utility>

#include "base/log.h"

namespace lantern {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr size_t kReadAtOnce = size_t{64} << 10;
constexpr std::chrono::milliseconds kLookAtClient{200};  // where its bytes wait unread
constexpr std::chrono::milliseconds kLinger{1000};
constexpr size_t kMostLingering = size_t{4} << 20;  // bytes of a refused body that are read and dropped

asio::redirect_error_t<asio::use_awaitable_t<>> into(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

using Parser = http::request_parser<http::string_body>;

HttpFields fields_of(const Parser& parser) {
  HttpFields fields;
  for (const auto& field : parser.get()) fields.emplace_back(field.name_string(), field.value());
  return fields;
}

// What a parser's error is told as.
HttpHeadFault fault_of(const error_code& error) {
  if (error == http::error::header_limit) return {431, "the header fields are too long; send fewer or shorter ones"};
  if (error == http::error::body_limit) return {413, "the body is too long"};
  if (error == http::error::bad_version) return {505, "this server speaks HTTP/1.1 and HTTP/1.0"};
  if (error == http::error::bad_content_length || error == http::error::multiple_content_length)
    return {400, "Content-Length and the other fields do not say one length; send one Content-Length"};
  return {400, fmt::format("this is no HTTP request: {}", error.message())};
}

// Beast would take the memory of a body where an exception ends the connection.
bool make_room(std::string& body, size_t bytes) {
  try {
    body.reserve(bytes);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// What recv() would say, without taking anything.
enum class Peer : uint8_t { kSilent, kSpeaks, kClosed };
Peer look_at(int socket) {
  char byte = 0;
  const ssize_t got = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0) return Peer::kSpeaks;
  if (got == 0) return Peer::kClosed;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Peer::kSilent : Peer::kClosed;
}
// Behind bytes that wait a FIN is not to be seen by recv().
bool has_hung_up(int socket) {
  pollfd of{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return poll(&of, 1, 0) > 0 && (of.revents & (POLLRDHUP | POLLERR | POLLHUP)) != 0;
}

}  // namespace

// What lies between the requests of a connection: bytes that came with the one before.
class HttpReader {
 public:
  boost::beast::flat_buffer buffer;
};

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, std::shared_ptr<HttpThread> thread,
                               std::shared_ptr<HttpShared> shared)
    : socket_(std::move(socket)),
      thread_(std::move(thread)),
      shared_(std::move(shared)),
      deadline_(thread_->context),
      woken_(thread_->context),
      look_(thread_->context) {
  thread_->connections.insert(this);
}

HttpConnection::~HttpConnection() {
  if (current_) current_->set_gone();
  thread_->connections.erase(this);
  --shared_->connections;
}

void HttpConnection::start() {
  error_code error;
  error = socket_.set_option(asio::ip::tcp::no_delay(true), error);
  error = socket_.set_option(asio::socket_base::keep_alive(true), error);
  const asio::ip::tcp::endpoint peer = socket_.remote_endpoint(error);
  if (!error) client_ = fmt::format("{}:{}", peer.address().to_string(), peer.port());
  asio::co_spawn(thread_->context, [self = shared_from_this()] { return self->run(); }, asio::detached);
}

void HttpConnection::refuse() {
  asio::co_spawn(
      thread_->context,
      [self = shared_from_this()]() -> asio::awaitable<void> {
        HttpResponse busy = self->shared_->handler->fault(503, "too many connections; raise --max-connections");
        co_await self->send_response(busy, 11, false, false);
        co_await self->linger();
      },
      asio::detached);
}

void HttpConnection::close_if_idle() {
  if (idle_ && served_) close();
}
void HttpConnection::close() {
  if (current_) current_->set_gone();  // before the socket's number may be another's
  error_code ignored;
  ignored = socket_.close(ignored);
  deadline_.cancel();
  look_.cancel();
  woken_.cancel();
}
void HttpConnection::wake() { woken_.cancel(); }

void HttpConnection::arm(std::chrono::milliseconds time) {
  const uint64_t number = ++armed_;
  timed_out_ = false;
  deadline_.expires_after(time);
  deadline_.async_wait([weak = weak_from_this(), number](const error_code& error) {
    const std::shared_ptr<HttpConnection> self = weak.lock();
    if (error || !self || self->armed_ != number) return;
    self->timed_out_ = true;
    error_code ignored;
    ignored = self->socket_.cancel(ignored);
  });
}
void HttpConnection::disarm() {
  ++armed_;
  deadline_.cancel();
}

asio::awaitable<void> HttpConnection::run() {
  HttpReader reader;
  while (co_await serve_one(reader)) {
  }
  error_code ignored;
  ignored = socket_.close(ignored);
}

asio::awaitable<bool> HttpConnection::send(std::string_view bytes) {
  // Nearly always the socket takes all of it at once: then there is no deadline to set and nothing to wait for.
  const ssize_t taken = ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (taken > 0) bytes.remove_prefix(static_cast<size_t>(taken));
  if (bytes.empty()) co_return true;
  error_code error;
  arm(shared_->limits.write_timeout);
  co_await asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()), into(error));
  disarm();
  co_return !error;
}

asio::awaitable<bool> HttpConnection::send_response(const HttpResponse& response, int32_t version, bool keep,
                                                    bool head) {
  std::string text = head_text(response, version, HttpFraming::kLength, response.body.size(), !keep);
  if (!head) text += response.body;
  co_return co_await send(text);
}

asio::awaitable<void> HttpConnection::linger() {
  error_code error;
  error = socket_.shutdown(asio::socket_base::shutdown_send, error);
  std::string dropped(size_t{16} << 10, '\0');
  size_t total = 0;
  arm(kLinger);
  while (!error && total < kMostLingering) {
    total += co_await socket_.async_read_some(asio::buffer(dropped), into(error));
  }
  disarm();
}

asio::awaitable<bool> HttpConnection::refuse_request(int32_t status, std::string why) {
  const HttpResponse response = shared_->handler->fault(status, std::move(why));
  if (co_await send_response(response, 11, false, false)) co_await linger();
  co_return false;
}

asio::awaitable<bool> HttpConnection::serve_one(HttpReader& reader) {
  const HttpLimits& limits = shared_->limits;
  error_code error;
  idle_ = true;
  if (reader.buffer.size() == 0) {
    reader.buffer.shrink_to_fit();
    // Whoever comes while the server stops is told so; whoever has been served needs nothing more.
    if (shared_->draining && served_) co_return false;
    arm(limits.idle_timeout);
    co_await socket_.async_wait(asio::socket_base::wait_read, into(error));
    disarm();
    if (error) co_return false;
  }
  idle_ = false;
  served_ = true;

  Parser parser;
  parser.header_limit(static_cast<uint32_t>(limits.max_header_bytes));
  parser.body_limit(limits.max_body_bytes);
  const auto refuse_with = [this](const HttpHeadFault& fault) { return refuse_request(fault.status, fault.message); };

  arm(limits.header_timeout);
  co_await http::async_read_header(socket_, reader.buffer, parser, into(error));
  disarm();
  if (timed_out_) co_return co_await refuse_request(408, "the header did not come in time; send it faster");
  if (error == http::error::end_of_stream || error == asio::error::connection_reset || error == asio::error::eof ||
      error == asio::error::operation_aborted || error == http::error::partial_message) {
    co_return false;
  }
  if (error) co_return co_await refuse_with(fault_of(error));

  HttpRequest request;
  request.received = std::chrono::steady_clock::now();
  request.fields = fields_of(parser);
  request.method = parser.get().method_string();
  request.client = client_;
  const auto version = static_cast<int32_t>(parser.get().version());
  const bool is_head = request.method == "HEAD";
  if (version != 10 && version != 11) co_return co_await refuse_with(fault_of(http::error::bad_version));
  if (request.fields.size() > limits.max_header_fields)
    co_return co_await refuse_with(fault_of(http::error::header_limit));
  if (const std::optional<HttpHeadFault> fault = check_framing(request.fields, version))
    co_return co_await refuse_with(*fault);
  const boost::beast::string_view raw_target = parser.get().target();
  std::optional<HttpTarget> target = parse_target({raw_target.data(), raw_target.size()});
  if (!target) co_return co_await refuse_request(400, "the request's target is no path; send one that begins with /");
  request.path = std::move(target->path);
  request.query = std::move(target->query);

  const bool has_body = !parser.is_done();
  bool keep = parser.get().keep_alive() && !shared_->draining;
  if (std::optional<HttpResponse> refusal = shared_->handler->check_head(request)) {
    // What comes of a body would be taken for the next request.
    keep = keep && !has_body && !refusal->close && !shared_->draining;
    const bool sent = co_await send_response(*refusal, version, keep, is_head);
    if (sent && !keep) co_await linger();
    co_return sent&& keep;
  }

  BodyAllowance allowance(shared_);
  if (has_body) {
    const auto length = parser.content_length();
    if (length && *length > limits.max_body_bytes) co_return co_await refuse_with(fault_of(http::error::body_limit));
    if (!allowance.grow_to(length ? static_cast<size_t>(*length) : 0))
      co_return co_await refuse_request(503, "the server holds too many request bodies; try again later");
    if (!make_room(parser.get().body(), length ? static_cast<size_t>(*length) : 0))
      co_return co_await refuse_request(503, "no memory is left for the body; send a smaller one, or try again later");
    if (const std::string_view expected = request.field("expect"); !expected.empty()) {
      if (!http_equal(expected, "100-continue"))
        co_return co_await refuse_request(417, "the only expectation that this server meets is 100-continue");
      if (!co_await send("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
    }
    arm(limits.body_timeout);
    while (!parser.is_done() && !error) {
      reader.buffer.max_size(kReadAtOnce + limits.max_header_bytes);
      co_await http::async_read_some(socket_, reader.buffer, parser, into(error));
      if (!allowance.grow_to(parser.get().body().size())) break;
    }
    disarm();
    if (timed_out_) co_return co_await refuse_request(408, "the body did not come in time; send it faster");
    if (error == asio::error::eof || error == asio::error::connection_reset || error == http::error::partial_message ||
        error == asio::error::operation_aborted || error == http::error::end_of_stream) {
      co_return false;
    }
    if (error) co_return co_await refuse_with(fault_of(error));
    if (!parser.is_done())
      co_return co_await refuse_request(503, "the server holds too many request bodies; try again later");
    request.body = std::move(parser.get().body());
  }

  const HttpFraming framing = version == 11 ? HttpFraming::kChunked : HttpFraming::kUntilClose;
  const auto exchange = std::make_shared<HttpExchangeImpl>(thread_, weak_from_this(), std::move(request), shared_,
                                                           framing, socket_.native_handle());
  current_ = exchange;
  shared_->handler->handle(exchange);
  keep = co_await send_answer(exchange, version, keep, is_head);
  exchange->set_gone();  // where the answer was not complete
  current_.reset();
  if (watching_) {
    error_code ignored;
    ignored = socket_.cancel(ignored);
    look_.cancel();
  }
  if (!keep && socket_.is_open() && !exchange->gone()) co_await linger();
  co_return keep&& socket_.is_open();
}

asio::awaitable<bool> HttpConnection::send_answer(const std::shared_ptr<HttpExchangeImpl>& exchange, int32_t version,
                                                  bool keep, bool head) {
  using Kind = HttpExchangeImpl::Next::Kind;
  const HttpFraming framing = version == 11 ? HttpFraming::kChunked : HttpFraming::kUntilClose;
  while (true) {
    const HttpExchangeImpl::Next next = exchange->take(std::chrono::steady_clock::now());
    if (next.kind == Kind::kNothing) {
      co_await wait_for_output(exchange, next.look_at);
      continue;
    }
    if (exchange->gone()) co_return false;
    keep = keep && !next.response.close && !shared_->draining;
    if (next.kind == Kind::kReply) {
      co_return co_await send_response(next.response, version, keep, head) && keep;
    }
    if (next.kind == Kind::kHead) {
      // Whether the connection stays is said here, so that draining later changes nothing.
      keep = keep && framing == HttpFraming::kChunked;
      if (!co_await send(head_text(next.response, version, framing, 0, !keep))) co_return false;
    }
    if (next.kind == Kind::kPiece && !co_await send(next.piece)) co_return false;
    if (next.kind == Kind::kEnd) {
      if (framing == HttpFraming::kChunked && !co_await send("0\r\n\r\n")) co_return false;
      co_return keep;
    }
  }
}

asio::awaitable<void> HttpConnection::wait_for_output(const std::shared_ptr<HttpExchangeImpl>& exchange,
                                                      std::chrono::steady_clock::time_point until) {
  if (!watching_) {
    watching_ = true;
    asio::co_spawn(
        thread_->context, [self = shared_from_this(), exchange] { return self->watch_client(exchange); },
        asio::detached);
  }
  error_code ignored;
  woken_.expires_at(until);
  co_await woken_.async_wait(into(ignored));
}

asio::awaitable<void> HttpConnection::watch_client(std::shared_ptr<HttpExchangeImpl> exchange) {
  error_code error;
  bool closed = false;
  while (current_ == exchange && socket_.is_open() && !closed) {
    co_await socket_.async_wait(asio::socket_base::wait_read, into(error));
    if (current_ != exchange || !socket_.is_open()) break;
    if (error) continue;  // a deadline of the writer
    Peer peer = look_at(socket_.native_handle());
    while (peer == Peer::kSpeaks && current_ == exchange && socket_.is_open()) {  // its next request
      if (has_hung_up(socket_.native_handle())) peer = Peer::kClosed;
      look_.expires_after(kLookAtClient);
      co_await look_.async_wait(into(error));
    }
    closed = peer == Peer::kClosed;
  }
  watching_ = false;
  if (!closed || current_ != exchange || shared_->limits.allow_half_close) co_return;
  exchange->set_gone();
}

}  // namespace lantern
