// What /metrics says of a request, and what the Grafana dashboard asks for.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "server_process.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

TEST(MetricsTest, TheTimeOfARequestIsToldApart) {
  TinyServer server;
  const uint16_t port = server.port();
  for (const char* body : {R"({"prompt":"Hello","max_tokens":20,"ignore_eos":true})",
                           R"({"prompt":["Hello","You"],"n":2,"max_tokens":20,"ignore_eos":true,"stream":true})"})
    EXPECT_EQ(post(port, "/v1/completions", body).status, 200);
  ASSERT_TRUE(eventually([&] { return metric(port, "vllm:e2e_request_latency_seconds_count") == 2; }));
  const auto sum = [&](const std::string& what) { return metric(port, "vllm:" + what + "_seconds_sum"); };
  for (const char* what : {"request_queue_time", "request_prefill_time", "request_decode_time",
                           "request_inference_time", "e2e_request_latency"}) {
    EXPECT_EQ(metric(port, "vllm:" + std::string(what) + "_seconds_count"), 2) << what;
    EXPECT_GE(sum(what), 0) << what;
  }
  EXPECT_GT(sum("request_prefill_time"), 0);
  EXPECT_NEAR(sum("request_inference_time"), sum("request_prefill_time") + sum("request_decode_time"), 1e-6);
  // Before the engine has a request it is read: the rest of the time is the engine's.
  EXPECT_LE(sum("request_queue_time") + sum("request_inference_time"), sum("e2e_request_latency") + 1e-6);
}

// A request that waits for the only place in the batch waits in the queue.
TEST(MetricsTest, WaitingIsTimeInTheQueue) {
  TinyServerOptions options;
  options.max_num_seqs = 1;
  TinyServer server(std::move(options));
  const uint16_t port = server.port();
  Client first(port);
  first.send(post_text("/v1/completions", R"({"prompt":"Hello","max_tokens":1500,"ignore_eos":true,"stream":true})"));
  EXPECT_NE(first.read_some(), "");
  Client second(port);
  second.send(post_text("/v1/completions", R"({"prompt":"Hello","max_tokens":1})"));
  ASSERT_TRUE(eventually([&] { return metric(port, "vllm:num_requests_waiting") == 1; }));
  const auto waited_from = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - waited_from).count();
  EXPECT_EQ(metric(port, "vllm:num_requests_waiting"), 1);
  first.close();
  EXPECT_EQ(second.read_answer().value_or(Answer{}).status, 200);
  // An answer is sent before it is counted, and the first request may be counted before it.
  EXPECT_TRUE(eventually([&] { return metric(port, "vllm:request_queue_time_seconds_sum") >= waited; }));
}

TEST(MetricsTest, TokensAreCountedByRequestAndByChoice) {
  TinyServer server;
  const uint16_t port = server.port();
  EXPECT_EQ(
      post(port, "/v1/completions", R"({"prompt":[[1,2,3,4,5,6,7,8,9,10]],"n":3,"max_tokens":4,"ignore_eos":true})")
          .status,
      200);
  ASSERT_TRUE(eventually([&] { return metric(port, "vllm:request_max_num_generation_tokens_count") == 1; }));
  EXPECT_EQ(metric(port, "vllm:request_max_num_generation_tokens_sum"), 4);
  EXPECT_EQ(metric(port, "vllm:request_generation_tokens_sum"), 12);
  // An answer of the other APIs is its own longest choice.
  EXPECT_EQ(post(port, "/v1/responses", R"({"input":"Count.","max_output_tokens":3})").status, 200);
  EXPECT_EQ(post(port, "/v1/messages", R"({"messages":[{"role":"user","content":"Count."}],"max_tokens":2})").status,
            200);
  ASSERT_TRUE(eventually([&] { return metric(port, "vllm:request_max_num_generation_tokens_count") == 3; }));
  EXPECT_EQ(metric(port, "vllm:request_max_num_generation_tokens_sum") - 4,
            metric(port, "vllm:request_generation_tokens_sum") - 12);
}

TEST(MetricsTest, StepsAreCountedByTheirTokens) {
  TinyServer server;
  const uint16_t port = server.port();
  EXPECT_EQ(
      post(port, "/v1/completions", R"({"prompt":[1,2,3,4,5,6,7,8,9,10],"max_tokens":4,"ignore_eos":true})").status,
      200);
  ASSERT_TRUE(server.wait_until_quiet());
  const auto of = [&](const std::string& what) { return metric(port, "vllm:iteration_tokens_total_" + what); };
  EXPECT_EQ(of("count"), 4);
  EXPECT_EQ(of("sum"), 10 + 3);
  EXPECT_EQ(of("bucket{le=\"1\"}"), 3);
  EXPECT_EQ(of("bucket{le=\"8\"}"), 3);
  EXPECT_EQ(of("bucket{le=\"16\"}"), 4);
  EXPECT_EQ(of("bucket{le=\"16384\"}"), 4);
  EXPECT_EQ(of("bucket{le=\"+Inf\"}"), 4);
}

// What the system says of the process from outside is what it says of itself.
TEST(MetricsTest, TheProcessIsToldAsClientLibrariesTellIt) {
  const auto children = [] {
    rusage of{};
    getrusage(RUSAGE_CHILDREN, &of);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(of.ru_utime) + seconds(of.ru_stime);
  };
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const double others = children();
  const double before = now();
  ServerProcess server;
  const auto of = [&](const std::string& what) { return metric(server.port(), "process_" + what); };
  // The system counts from a start that is told in whole seconds.
  EXPECT_GE(of("start_time_seconds"), before - 1.5);
  EXPECT_LE(of("start_time_seconds"), now() + 1.5);
  EXPECT_TRUE(eventually([&] { return of("open_fds") == static_cast<double>(server.open_descriptors() + 1); }))
      << "and the scrape's own connection";
  EXPECT_EQ(of("max_fds"), static_cast<double>(server.most_descriptors()));
  std::ifstream file(fmt::format("/proc/{}/statm", server.process()));
  double address_space = 0, resident = 0;
  file >> address_space >> resident;
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  EXPECT_NEAR(of("virtual_memory_bytes") / (address_space * page), 1, 0.1);
  EXPECT_NEAR(of("resident_memory_bytes") / (resident * page), 1, 0.1);
  EXPECT_EQ(post(server.port(), "/v1/completions", R"({"prompt":"Hello","max_tokens":300,"ignore_eos":true})").status,
            200);
  const double cpu = of("cpu_seconds_total");
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait_for_end(), 0);
  const double all = children() - others;
  EXPECT_LE(cpu, all + 0.05);
  EXPECT_GE(cpu, all / 2);
}

// Clients that leave are counted as such, and their tokens' times; an answer that nobody waited for has taken no time.
TEST(MetricsTest, WhoeverLeavesTellsNothingOfWholeRequests) {
  TinyServer server;
  const uint16_t port = server.port();
  Client stream(port);
  stream.send(post_text("/v1/completions", R"({"prompt":"Hello","max_tokens":1500,"ignore_eos":true,"stream":true})"));
  std::string text;
  while (text.find("data: ") == text.rfind("data: ")) {  // two tokens
    const std::string more = stream.read_some();
    ASSERT_NE(more, "");
    text += more;
  }
  stream.close();
  Client whole(port);
  whole.send(post_text("/v1/completions", R"({"prompt":"Hello","max_tokens":1500,"ignore_eos":true})"));
  ASSERT_TRUE(eventually([&] { return metric(port, "vllm:time_to_first_token_seconds_count") == 2; }));
  whole.close();
  const auto ended = [&](const char* why) {
    return metric(port, std::string("vllm:request_success_total{finished_reason=\"") + why + "\"}");
  };
  ASSERT_TRUE(eventually([&] { return ended("abort") == 2; }));
  EXPECT_GE(metric(port, "vllm:inter_token_latency_seconds_count"), 1);
  const std::vector<std::string> of_requests = {
      "e2e_request_latency_seconds", "request_queue_time_seconds",     "request_prefill_time_seconds",
      "request_decode_time_seconds", "request_inference_time_seconds", "request_time_per_output_token_seconds",
      "request_prompt_tokens",       "request_generation_tokens"};
  for (const std::string& name : of_requests) EXPECT_EQ(metric(port, "vllm:" + name + "_count"), 0) << name;

  EXPECT_EQ(post(port, "/v1/completions", R"({"prompt":"Hello","max_tokens":4,"ignore_eos":true})").status, 200);
  ASSERT_TRUE(eventually([&] { return ended("length") == 1; }));
  for (const std::string& name : of_requests) EXPECT_EQ(metric(port, "vllm:" + name + "_count"), 1) << name;
}

TEST(MetricsTest, DraftsAreCountedByTheirLength) {
  TinyServerOptions options;
  options.num_draft_tokens = 2;
  TinyServer server(std::move(options));
  const uint16_t port = server.port();
  post(port, "/v1/completions",
       json::serialize(json::object{{"prompt", kQuestion}, {"max_tokens", 30}, {"temperature", 0}}));
  ASSERT_TRUE(server.wait_until_quiet());
  const double rows = metric(port, "lantern:draft_length_count");
  EXPECT_GT(rows, 0);
  EXPECT_EQ(metric(port, "lantern:draft_length_bucket{le=\"2\"}"), rows) << "longer than 2 is none";
  const double shorter = metric(port, "lantern:draft_length_bucket{le=\"1\"}");
  EXPECT_LT(shorter, rows);
  const double of_one = shorter - metric(port, "lantern:draft_length_bucket{le=\"0\"}");
  EXPECT_EQ(metric(port, "lantern:draft_length_sum"), of_one + 2 * (rows - shorter));
  // Every place in a draft that was checked was brought.
  EXPECT_GE(metric(port, "lantern:draft_length_sum"), metric(port, "vllm:spec_decode_num_draft_tokens_total"));
}

TEST(MetricsTest, WhatThePrefixCacheForgetsIsTold) {
  TinyServerOptions options;  // a cache of few blocks, which few prompts fill
  options.max_model_len = 256;
  options.kv_cache_bytes = int64_t{4} << 20;
  TinyServer server(std::move(options));
  const uint16_t port = server.port();
  const auto lost = [&](const char* reason) {
    return metric(port, std::string("lantern:prefix_tokens_lost_total{reason=\"") + reason + "\"}");
  };
  EXPECT_EQ(lost("evicted"), 0);
  EXPECT_EQ(lost("flushed"), 0);
  constexpr int64_t kPrompt = 200;
  const auto fill = [&](int token) {
    json::object request{{"prompt", json::array(kPrompt, token)}, {"max_tokens", 1}};
    EXPECT_EQ(post(port, "/v1/completions", json::serialize(request)).status, 200);
  };
  fill(50);
  ASSERT_TRUE(server.wait_until_quiet());
  const double cached = metric(port, "lantern:kv_blocks{state=\"cached\"}");
  EXPECT_GT(cached, 0);
  const int32_t block_size = server.engine().settings().limits.block_size;
  server.engine().forget_prefixes();
  EXPECT_TRUE(eventually([&] { return metric(port, "lantern:kv_blocks{state=\"cached\"}") == 0; }));
  EXPECT_EQ(lost("flushed"), cached * block_size);
  EXPECT_EQ(lost("evicted"), 0);
  // More than the cache holds: what came first gives way.
  for (int64_t tokens = 0; tokens < int64_t{server.engine().report().num_blocks} * block_size + kPrompt;
       tokens += kPrompt)
    fill(static_cast<int>(51 + tokens / kPrompt));
  EXPECT_GT(lost("evicted"), 0);
  EXPECT_EQ(lost("flushed"), cached * block_size);
}

// Of every query of the dashboard, in what the server exports.
TEST(DashboardTest, EveryQueryNamesAnExportedMetric) {
  TinyServerOptions options;
  options.num_draft_tokens = 1;
  TinyServer server(std::move(options));
  EXPECT_EQ(post(server.port(), "/v1/completions", R"({"prompt":"Hello","max_tokens":2})").status, 200);
  // A request is counted when its answer has left.
  ASSERT_TRUE(eventually([&] { return metric(server.port(), "lantern:http_requests_total") == 1; }));
  const std::string exported = get(server.port(), "/metrics").body;
  std::set<std::string> names;
  std::istringstream lines(exported);
  for (std::string line; std::getline(lines, line);) {
    if (line[0] != '#') names.insert(line.substr(0, line.find_first_of("{ ")));
  }
  std::ifstream file(LANTERN_SOURCE_DIR "/docs/grafana/lantern.json");
  std::ostringstream text;
  text << file.rdbuf();
  const json::value dashboard = json::parse(text.str());
  const std::regex name("(vllm|lantern):[a-z0-9_]+");
  int queries = 0;
  for (const json::value& panel : dashboard.at("panels").get_array()) {
    if (text_of(panel.at("type")) == "row") continue;
    ASSERT_FALSE(panel.at("targets").get_array().empty());
    for (const json::value& target : panel.at("targets").get_array()) {
      const std::string query = text_of(target.at("expr"));
      int found = 0;
      for (std::sregex_iterator it(query.begin(), query.end(), name), end; it != end; ++it, ++found)
        EXPECT_TRUE(names.contains(it->str())) << it->str() << " of \"" << text_of(panel.at("title")) << "\"";
      EXPECT_GT(found, 0) << query;
      ++queries;
    }
  }
  EXPECT_GT(queries, 30);
}

}  // namespace
}  // namespace lantern::test
