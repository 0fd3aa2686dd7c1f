// Spans of requests, as a collector gets them from `lantern serve`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <mutex>

#include "base/check.h"
#include "server_process.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

const char* const kTrace = "0af7651916cd43dd8448eb211c80319c";
const char* const kParent = "b7ad6b7169203331";

// Keeps the spans that are posted to it.
class Collector final : public HttpHandler {
 public:
  Collector() {
    Result<std::unique_ptr<HttpServer>> http = HttpServer::listen("127.0.0.1", 0, HttpLimits{}, *this);
    CHECK(http.ok(), "{}", http.error().message());
    http_ = std::move(*http);
    http_->start();
  }
  ~Collector() override { http_->stop(); }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", http_->port()); }

  std::vector<json::object> spans() {
    const std::lock_guard lock(mutex_);
    return spans_;
  }
  // The first span of that route; empty where there is none.
  json::object span_of(std::string_view name) {
    for (json::object& span : spans()) {
      if (text_of(span.at("name")) == name) return std::move(span);
    }
    return {};
  }

  std::optional<HttpResponse> check_head(const HttpRequest&) override { return std::nullopt; }
  void handle(std::shared_ptr<HttpExchange> exchange) override {
    EXPECT_EQ(exchange->request().path, "/v1/traces");
    EXPECT_EQ(exchange->request().field("content-type"), "application/json");
    const json::value body = json::parse(exchange->request().body);
    {
      const std::lock_guard lock(mutex_);
      for (const json::value& span : body.at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans").get_array())
        spans_.push_back(span.get_object());
    }
    exchange->reply({.body = "{}"});
  }
  HttpResponse fault(int32_t status, std::string) override { return {.status = status}; }

 private:
  std::mutex mutex_;
  std::vector<json::object> spans_;
  std::unique_ptr<HttpServer> http_;
};

json::value attribute(const json::object& span, std::string_view name) {
  for (const json::value& one : span.at("attributes").get_array()) {
    if (text_of(one.at("key")) == name) return one.at("value");
  }
  return {};
}

TEST(TraceTest, EveryRequestHasASpan) {
  Collector collector;
  ServerProcess server({"--otlp-traces-endpoint", collector.url()});
  const uint16_t port = server.port();
  const Answer answer = post(port, "/v1/completions", R"({"prompt":"Hello secret","max_tokens":5,"ignore_eos":true})",
                             fmt::format("traceparent: 00-{}-{}-01\r\nX-Request-Id: mine\r\n", kTrace, kParent));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(post(port, "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stream":true})").status,
            200);
  EXPECT_EQ(post(port, "/tokenize", R"({"prompt":"x"})").status, 200);
  EXPECT_EQ(get(port, "/health").status, 200);
  // Whoever asked does not want it traced.
  EXPECT_EQ(post(port, "/detokenize", R"({"tokens":[1]})", fmt::format("traceparent: 00-{}-{}-00\r\n", kTrace, kParent))
                .status,
            200);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait_for_end(), 0);
  ASSERT_EQ(collector.spans().size(), 3u) << "what waits is sent at the end; probes have none";

  const json::object span = collector.span_of("POST /v1/completions");
  ASSERT_FALSE(span.empty());
  EXPECT_EQ(text_of(span.at("traceId")), kTrace);
  EXPECT_EQ(text_of(span.at("parentSpanId")), kParent);
  EXPECT_EQ(text_of(span.at("spanId")).size(), 16u);
  EXPECT_LT(std::stoll(text_of(span.at("startTimeUnixNano"))), std::stoll(text_of(span.at("endTimeUnixNano"))));
  EXPECT_EQ(text_of(attribute(span, "lantern.request_id").at("stringValue")), "mine");
  EXPECT_EQ(text_of(attribute(span, "http.response.status_code").at("intValue")), "200");
  EXPECT_EQ(text_of(attribute(span, "gen_ai.usage.output_tokens").at("intValue")), "5");
  EXPECT_EQ(text_of(attribute(span, "gen_ai.response.model").at("stringValue")), "tiny");
  EXPECT_EQ(text_of(attribute(span, "lantern.finish_reason").at("stringValue")), "length");
  const double first = attribute(span, "gen_ai.latency.time_to_first_token").at("doubleValue").to_number<double>();
  EXPECT_GT(first, attribute(span, "gen_ai.latency.time_in_queue").at("doubleValue").to_number<double>());
  EXPECT_LE(first, attribute(span, "gen_ai.latency.e2e").at("doubleValue").to_number<double>());
  EXPECT_EQ(json::serialize(span).find("secret"), std::string::npos) << "nothing of a prompt";

  const json::object other = collector.span_of("POST /v1/chat/completions");
  EXPECT_EQ(text_of(other.at("traceId")).size(), 32u);
  EXPECT_NE(text_of(other.at("traceId")), kTrace);
  EXPECT_FALSE(other.contains("parentSpanId"));
  EXPECT_TRUE(attribute(collector.span_of("POST /tokenize"), "gen_ai.usage.output_tokens").is_null());
}

TEST(TraceTest, WithoutACollectorRequestsAreAnsweredAllTheSame) {
  std::string nobody;
  {
    const Collector gone;
    nobody = gone.url();
  }
  ServerProcess server({"--otlp-traces-endpoint", nobody});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post(server.port(), "/tokenize", R"({"prompt":"x"})").status, 200);
  EXPECT_TRUE(eventually([&] { return metric(server.port(), "lantern:trace_spans_total{outcome=\"failed\"}") == 3; }));
  EXPECT_EQ(metric(server.port(), "lantern:trace_spans_total{outcome=\"exported\"}"), 0);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait_for_end(), 0);
  EXPECT_NE(server.err().find("traces are lost"), std::string::npos) << server.err();
}

TEST(TraceTest, AnEndpointThatIsNoneIsRefused) {
  ServerProcess server({"--otlp-traces-endpoint", "ftp://x"}, false);
  EXPECT_EQ(server.wait_for_end(), 2);
  EXPECT_NE(server.err().find("ftp://x"), std::string::npos) << server.err();
}

}  // namespace
}  // namespace lantern::test
