// A client of an HTTP/1.1 server: many calls at a time on one thread of its own, with answers as they come.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http.h"

namespace lantern {

struct HttpUrl {
  std::string host;  // without the brackets of IPv6
  std::string port = "80";
  std::string path;  // "" or "/base", never with a '/' at its end

  // As it stands in a Host field.
  std::string authority() const;
};
// "http://host:8000/base"; the scheme may be left out. Errors: https, which Lantern does not speak; what is no URL.
Result<HttpUrl> parse_http_url(std::string_view url);

struct HttpCall {
  std::string method = "GET";
  std::string path = "/";  // behind the URL's own
  HttpFields fields = {};  // beside Host, Content-Length and Connection
  std::string body = {};
  std::chrono::milliseconds timeout{0};  // until the answer is complete; 0: none
};

// What is told of an answer, on the client's thread; quick.
struct HttpReceiver {
  std::function<void(int32_t status, const HttpFields& fields)> head = {};
  // A part of the body. False: no more is wanted, the call ends with cancelled().
  std::function<bool(std::string_view part)> data = {};
  // Once and last. An error says why the answer is not complete.
  std::function<void(Status status)> end;
};

struct HttpAnswer {
  int32_t status = 0;
  HttpFields fields = {};
  std::string body = {};
};

class HttpClient {
 public:
  // Errors: no address of that name. Nothing is connected yet.
  static Result<std::unique_ptr<HttpClient>> create(const HttpUrl& url);
  // Every call that is not over ends with an error, before this returns.
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Any thread; returns at once. Connections are kept for later calls.
  uint64_t start(HttpCall call, HttpReceiver receiver);
  // Closes the call's connection. Nothing happens where the call is over.
  void cancel(uint64_t call);
  // Waits for the whole answer, whatever its status. Not on the client's thread. Errors: no complete answer, or one of
  // more than 64 MiB.
  Result<HttpAnswer> fetch(HttpCall call);

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lantern
