#include "server/http.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <new>
#include <thread>

#include "base/log.h"
#include "server/http_connection.h"

namespace lantern {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

namespace {

constexpr std::chrono::milliseconds kNoDescriptor{50};  // before the next try to accept
constexpr int32_t kMostRefused = 128;                   // connections above the limit that are told so
constexpr int32_t kOtherDescriptors = 256;              // files, the model's shards, what libraries open

// False where a connection needed memory that the system does not give: it is gone, the others wait to be run on.
bool ran_to_its_end(asio::io_context& context) {
  try {
    context.run();
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace

struct HttpServer::Impl {
  explicit Impl(const HttpLimits& limits, HttpHandler& handler) : shared(std::make_shared<HttpShared>()) {
    shared->limits = limits;
    shared->handler = &handler;
    for (int32_t i = 0; i < std::max(limits.threads, 1); ++i) {
      threads.push_back(std::make_shared<HttpThread>());
      guards.emplace_back(threads.back()->context.get_executor());
    }
    acceptor.emplace(threads.front()->context);
  }

  // Of the addresses of `host` the first that can be listened on.
  Status bind(const std::string& host, uint16_t port) {
    error_code error;
    Tcp::resolver resolver(threads.front()->context);
    const auto found = resolver.resolve(host, fmt::format("{}", port), Tcp::resolver::passive, error);
    if (error) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--host {}: no address of that name: {}", host, error.message()));
    }
    for (const auto& entry : found) {
      error = acceptor->close(error);
      error = acceptor->open(entry.endpoint().protocol(), error);
      if (!error) error = acceptor->set_option(Tcp::acceptor::reuse_address(true), error);
      if (!error) error = acceptor->bind(entry.endpoint(), error);
      if (!error) error = acceptor->listen(asio::socket_base::max_listen_connections, error);
      if (!error) {
        endpoint = acceptor->local_endpoint(error);
        return {};
      }
    }
    return Error(ErrorCode::kIo, fmt::format("{}:{} cannot be listened on: {}; choose another --host or --port", host,
                                             port, error.message()));
  }

  asio::awaitable<void> accept_all() {
    size_t next = 0;
    while (acceptor->is_open()) {
      const std::shared_ptr<HttpThread>& thread = threads[next++ % threads.size()];
      error_code error;
      Tcp::socket socket(thread->context);
      co_await acceptor->async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
      if (error) {
        if (!acceptor->is_open()) break;
        if (error == asio::error::no_descriptors && !warned) {
          warned = true;
          log_warning("the server has no descriptor left for a connection; raise the limit (ulimit -n)");
        }
        asio::steady_timer pause(threads.front()->context, kNoDescriptor);
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      ++shared->accepted;
      const int64_t open = ++shared->connections;
      const bool full = open > shared->limits.max_connections;
      if (full) ++shared->refused;
      if (open > int64_t{shared->limits.max_connections} + kMostRefused) {
        --shared->connections;
        continue;
      }
      asio::post(thread->context, [socket = std::move(socket), thread, full, all = shared]() mutable {
        const auto connection = std::make_shared<HttpConnection>(std::move(socket), thread, all);
        if (full) {
          connection->refuse();
        } else {
          connection->start();
        }
      });
    }
  }

  void run() {
    asio::co_spawn(threads.front()->context, accept_all(), asio::detached);
    runners.reserve(threads.size());
    for (const auto& thread : threads) {
      runners.emplace_back([thread] {
        while (!ran_to_its_end(thread->context)) log_warning("no memory was left for a connection; it was closed");
      });
    }
  }

  void on_each_connection(void (HttpConnection::*call)()) {
    for (const auto& thread : threads) {
      asio::post(thread->context, [thread, call] {
        for (HttpConnection* connection : thread->connections) (connection->*call)();
      });
    }
  }

  void stop() {
    if (runners.empty()) return;
    shared->draining = true;
    asio::post(threads.front()->context, [this] {
      error_code ignored;
      ignored = acceptor->close(ignored);
      // Behind every connection that was accepted.
      on_each_connection(&HttpConnection::close);
      for (auto& guard : guards) guard.reset();
    });
    for (std::thread& runner : runners) runner.join();
    runners.clear();
  }

  std::shared_ptr<HttpShared> shared;
  std::vector<std::shared_ptr<HttpThread>> threads;
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards;
  std::optional<Tcp::acceptor> acceptor;
  Tcp::endpoint endpoint;
  std::vector<std::thread> runners;
  bool warned = false;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& host, uint16_t port, const HttpLimits& limits,
                                                       HttpHandler& handler) {
  auto impl = std::make_unique<Impl>(limits, handler);
  RETURN_IF_ERROR(impl->bind(host, port));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const { return impl_->endpoint.port(); }
bool HttpServer::on_loopback() const { return impl_->endpoint.address().is_loopback(); }
void HttpServer::start() { impl_->run(); }
void HttpServer::drain() {
  impl_->shared->draining = true;
  impl_->on_each_connection(&HttpConnection::close_if_idle);
}
void HttpServer::stop() { impl_->stop(); }

HttpStats HttpServer::stats() const {
  const HttpShared& of = *impl_->shared;
  return {.connections = of.connections,
          .accepted = of.accepted,
          .refused = of.refused,
          .gone = of.gone,
          .body_bytes = of.body_bytes};
}

Status reserve_descriptors(int32_t connections) {
  rlimit limit{};
  const auto wanted = static_cast<rlim_t>(connections) + kMostRefused + kOtherDescriptors;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return {};
  rlimit raised{.rlim_cur = wanted, .rlim_max = std::max(wanted, limit.rlim_max)};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) return {};
  raised = {.rlim_cur = std::min(wanted, limit.rlim_max), .rlim_max = limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0 && raised.rlim_cur >= wanted) return {};
  return Error(
      ErrorCode::kIo,
      fmt::format("{} connections need {} open files and the system allows {}; lower --max-connections to {} or "
                  "raise the limit (ulimit -n)",
                  connections, wanted, raised.rlim_cur,
                  std::max<int64_t>(1, static_cast<int64_t>(raised.rlim_cur) - kMostRefused - kOtherDescriptors)));
}

}  // namespace lantern
