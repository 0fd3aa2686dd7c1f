// The only file beside http_connection.cc that knows Beast: it takes answers apart.
#include "server/http_client.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace lantern {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

namespace {

constexpr uint32_t kMostHeaderBytes = 256u << 10;
constexpr size_t kMostFetched = size_t{64} << 20;

asio::redirect_error_t<asio::use_awaitable_t<>> into(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

// Whether a connection that was kept can take a request: open, and nothing came that nobody asked for.
bool is_usable(Tcp::socket& socket) {
  char byte = 0;
  const ssize_t got = recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace

std::string HttpUrl::authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}:{}", v6 ? fmt::format("[{}]", host) : host, port);
}

Result<HttpUrl> parse_http_url(std::string_view url) {
  const auto wrong = [&](std::string_view why) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' {}; give one as http://127.0.0.1:8000", url, why));
  };
  std::string_view rest = url;
  if (const size_t scheme = rest.find("://"); scheme != std::string_view::npos) {
    if (http_equal(rest.substr(0, scheme), "https")) {
      return Error(
          ErrorCode::kUnsupported,
          fmt::format("'{}': TLS is not spoken here; put a proxy before the server and name its http address", url));
    }
    if (!http_equal(rest.substr(0, scheme), "http")) return wrong("is no http URL");
    rest.remove_prefix(scheme + 3);
  }
  HttpUrl parsed;
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  parsed.path = rest.substr(slash);
  while (parsed.path.ends_with('/')) parsed.path.pop_back();
  if (parsed.path.find_first_of("?# \t") != std::string::npos) return wrong("has more than an address and a path");
  std::string_view host = authority;
  std::string_view port;
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    host = authority.substr(0, colon);
    port = authority.substr(colon + 1);
    if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string_view::npos ||
        std::stoul(std::string(port)) > 65535) {
      return wrong("has no port behind the colon");
    }
    parsed.port = port;
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find_first_of("@[] \t") != std::string_view::npos) return wrong("names no host");
  parsed.host = host;
  return parsed;
}

struct HttpClient::Impl {
  struct Running {
    Running(asio::io_context& context, HttpCall of, HttpReceiver receiver)
        : call(std::move(of)), to(std::move(receiver)), socket(context), deadline(context) {}

    HttpCall call;
    HttpReceiver to;
    Tcp::socket socket;
    asio::steady_timer deadline;
    bool timed_out = false;
    bool cancelled = false;

    void close() {
      error_code ignored;
      ignored = socket.close(ignored);
    }
  };

  explicit Impl(HttpUrl of) : url(std::move(of)), guard(context.get_executor()) {}

  Status resolve() {
    error_code error;
    Tcp::resolver resolver(context);
    const auto found = resolver.resolve(url.host, url.port, error);
    if (error) {
      return Error(ErrorCode::kIo, fmt::format("{}: no address of that name: {}", url.host, error.message()));
    }
    for (const auto& entry : found) endpoints.push_back(entry.endpoint());
    return {};
  }

  std::string request_text(const HttpCall& call) const {
    std::string text =
        fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\n", call.method, url.path, call.path, url.authority());
    for (const auto& [name, value] : call.fields) fmt::format_to(std::back_inserter(text), "{}: {}\r\n", name, value);
    if (!call.body.empty() || call.method != "GET")
      fmt::format_to(std::back_inserter(text), "Content-Length: {}\r\n", call.body.size());
    return text + "\r\n" + call.body;
  }

  std::string explain(const Running& running, const error_code& error) const {
    if (running.timed_out) {
      return fmt::format("{}: no complete answer within {} s", url.authority(),
                         std::chrono::duration<double>(running.call.timeout).count());
    }
    if (running.cancelled) return "the call was cancelled";
    if (error == http::error::partial_message || error == http::error::end_of_stream || error == asio::error::eof ||
        error == asio::error::connection_reset || error == asio::error::broken_pipe) {
      return fmt::format("{}: the connection ended before the answer was complete", url.authority());
    }
    return fmt::format("{}: {}", url.authority(), error.message());
  }

  // A kept connection, or a new one.
  asio::awaitable<void> connect(Running& running, error_code& error) {
    while (!idle.empty()) {
      running.socket = std::move(idle.back());
      idle.pop_back();
      if (is_usable(running.socket)) co_return;
      running.close();
    }
    co_await asio::async_connect(running.socket, endpoints, into(error));
    if (!error) error = running.socket.set_option(Tcp::no_delay(true), error);
  }

  // Whether the connection can be kept.
  asio::awaitable<bool> converse(Running& running, error_code& error) {
    co_await connect(running, error);
    if (error) co_return false;
    const std::string text = request_text(running.call);
    co_await asio::async_write(running.socket, asio::buffer(text), into(error));
    if (error) co_return false;
    http::response_parser<http::string_body> parser;
    parser.header_limit(kMostHeaderBytes);
    parser.body_limit(boost::none);
    boost::beast::flat_buffer buffer;
    co_await http::async_read_header(running.socket, buffer, parser, into(error));
    if (error) co_return false;
    if (running.to.head) {
      HttpFields fields;
      for (const auto& field : parser.get()) fields.emplace_back(field.name_string(), field.value());
      running.to.head(static_cast<int32_t>(parser.get().result_int()), fields);
    }
    std::string& body = parser.get().body();
    while (true) {
      if (!body.empty() && running.to.data && !running.to.data(body)) running.cancelled = true;
      body.clear();
      if (running.cancelled) error = asio::error::operation_aborted;
      if (error || parser.is_done()) break;
      co_await http::async_read_some(running.socket, buffer, parser, into(error));
    }
    co_return !error && parser.get().keep_alive() && buffer.size() == 0;
  }

  asio::awaitable<void> run(uint64_t number, std::shared_ptr<Running> running) {
    if (running->call.timeout.count() > 0) {
      running->deadline.expires_after(running->call.timeout);
      running->deadline.async_wait([weak = std::weak_ptr(running)](const error_code& error) {
        const std::shared_ptr<Running> late = weak.lock();
        if (error || !late) return;
        late->timed_out = true;
        late->close();
      });
    }
    error_code error;
    const bool keep = co_await converse(*running, error);
    running->deadline.cancel();
    calls.erase(number);
    if (keep && !stopping) {
      idle.push_back(std::move(running->socket));
    } else {
      running->close();
    }
    running->to.end(error ? Status(Error(ErrorCode::kIo, explain(*running, error))) : Status());
  }

  void stop() {
    asio::post(context, [this] {
      stopping = true;
      for (const auto& [number, running] : calls) {
        running->cancelled = true;
        running->close();
      }
      idle.clear();
      guard.reset();
    });
    thread.join();
  }

  HttpUrl url;
  std::vector<Tcp::endpoint> endpoints;
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard;
  std::atomic<uint64_t> next_number = 1;
  // The thread's alone.
  std::unordered_map<uint64_t, std::shared_ptr<Running>> calls;
  std::vector<Tcp::socket> idle;
  bool stopping = false;
  std::thread thread;
};

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->context.run(); });
}
HttpClient::~HttpClient() { impl_->stop(); }

Result<std::unique_ptr<HttpClient>> HttpClient::create(const HttpUrl& url) {
  auto impl = std::make_unique<Impl>(url);
  RETURN_IF_ERROR(impl->resolve());
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(impl)));
}

uint64_t HttpClient::start(HttpCall call, HttpReceiver receiver) {
  const uint64_t number = impl_->next_number++;
  auto running = std::make_shared<Impl::Running>(impl_->context, std::move(call), std::move(receiver));
  asio::post(impl_->context, [impl = impl_.get(), number, running = std::move(running)] {
    if (impl->stopping) {
      running->to.end(Error(ErrorCode::kIo, "the client was closed"));
      return;
    }
    impl->calls.emplace(number, running);
    asio::co_spawn(impl->context, impl->run(number, running), asio::detached);
  });
  return number;
}

void HttpClient::cancel(uint64_t call) {
  asio::post(impl_->context, [impl = impl_.get(), call] {
    const auto found = impl->calls.find(call);
    if (found == impl->calls.end()) return;
    found->second->cancelled = true;
    found->second->close();
  });
}

Result<HttpAnswer> HttpClient::fetch(HttpCall call) {
  HttpAnswer answer;
  std::mutex mutex;
  std::condition_variable over;
  std::optional<Status> outcome;
  bool too_long = false;
  HttpReceiver receiver;
  receiver.head = [&](int32_t status, const HttpFields& fields) {
    answer.status = status;
    answer.fields = fields;
  };
  receiver.data = [&](std::string_view part) {
    answer.body += part;
    too_long = answer.body.size() > kMostFetched;
    return !too_long;
  };
  receiver.end = [&](Status status) {
    const std::lock_guard lock(mutex);
    outcome = std::move(status);
    over.notify_one();
  };
  start(std::move(call), std::move(receiver));
  std::unique_lock lock(mutex);
  over.wait(lock, [&] { return outcome.has_value(); });
  if (too_long) {
    return Error(ErrorCode::kIo,
                 fmt::format("{}: an answer of more than {} MiB", impl_->url.authority(), kMostFetched >> 20));
  }
  if (!outcome->ok()) return std::move(*outcome).error();
  return answer;
}

}  // namespace lantern
