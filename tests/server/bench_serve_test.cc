// `lantern bench serve` against the real server: what it says must agree with what the server counted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "json_outcome.h"
#include "process.h"
#include "server_process.h"
#include "socket_client.h"
#include "terminal.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

Outcome bench(const std::string& url, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"bench", "serve", "--url", url, "--quiet"});
  return run_lantern(arguments);
}

json::object measured(const ServerProcess& server, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json", "--save-detailed"});
  const Outcome outcome = bench(server.url(), arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return json_of(outcome);
}
double number(const json::object& of, std::string_view name) { return of.at(name).to_number<double>(); }

TEST(BenchServeTest, CountsAreThoseOfTheServer) {
  ServerProcess server;
  const json::object result =
      measured(server, {"--requests", "6", "--input-len", "30", "--output-len", "10", "--ignore-eos",
                        "--max-concurrency", "2", "--num-warmups", "2", "--seed", "5"});
  EXPECT_EQ(result.at("backend"), "openai");
  EXPECT_EQ(result.at("model_id"), "tiny") << "the server's own";
  EXPECT_EQ(number(result, "completed"), 6);
  EXPECT_EQ(number(result, "failed"), 0);
  EXPECT_EQ(number(result, "total_input_tokens"), 6 * 30);
  EXPECT_EQ(number(result, "total_output_tokens"), 6 * 10);
  EXPECT_EQ(number(result, "max_concurrency"), 2);
  EXPECT_EQ(result.at("input_lens"), (json::array{30, 30, 30, 30, 30, 30}));
  EXPECT_EQ(result.at("itls").at(0).as_array().size(), 9u) << "a token a chunk";
  EXPECT_EQ(number(result, "tokens_per_chunk"), 1);
  const double duration = number(result, "duration");
  EXPECT_NEAR(number(result, "request_throughput"), 6 / duration, 1e-6);
  EXPECT_NEAR(number(result, "output_throughput"), 60 / duration, 1e-6 * 60 / duration);
  EXPECT_NEAR(number(result, "total_token_throughput"), 240 / duration, 1e-6 * 240 / duration);
  // With the two that warm up.
  EXPECT_EQ(metric(server.port(), "vllm:generation_tokens_total"), 8 * 10);
  EXPECT_EQ(metric(server.port(), "vllm:prompt_tokens_total"), 8 * 30);
  EXPECT_EQ(metric(server.port(), "vllm:request_success_total{finished_reason=\"length\"}"), 8);
  // Each request takes its first token and the times between the others; the figures are made of these.
  std::vector<double> latencies;
  for (size_t i = 0; i < 6; ++i) {
    double sum = result.at("ttfts").at(i).to_number<double>();
    for (const json::value& gap : result.at("itls").at(i).as_array()) sum += gap.to_number<double>();
    latencies.push_back(result.at("latencies").at(i).to_number<double>());
    EXPECT_NEAR(sum, latencies.back(), 1e-9);
  }
  std::ranges::sort(latencies);
  EXPECT_NEAR(number(result, "median_e2el_ms"), 500 * (latencies[2] + latencies[3]), 1e-6);
  EXPECT_LE(number(result, "median_ttft_ms"), number(result, "p99_ttft_ms"));
  EXPECT_GT(number(result, "mean_tpot_ms"), 0);
}

TEST(BenchServeTest, PrefixesAreFoundInTheCache) {
  ServerProcess server;
  const json::object result = measured(
      server, {"--dataset-name", "prefix-repetition", "--requests", "8", "--prefix-len", "128", "--num-prefixes", "2",
               "--input-len", "16", "--output-len", "4", "--max-concurrency", "1", "--num-warmups", "0"});
  EXPECT_EQ(number(result, "total_input_tokens"), 8 * (128 + 16));
  // All but the first two find theirs, in whole blocks.
  EXPECT_GE(number(result, "total_cached_tokens"), 6 * 64);
  EXPECT_LE(number(result, "total_cached_tokens"), 6 * (128 + 16));
  EXPECT_EQ(number(result, "total_cached_tokens"), metric(server.port(), "vllm:prefix_cache_hits_total"));
}

TEST(BenchServeTest, ChatsAreAskedTheQuestionsThatShip) {
  ServerProcess server({"--draft-tokens", "2"});
  const json::object result = measured(server, {"--dataset-name", "chat", "--requests", "4", "--num-warmups", "0",
                                                "--request-rate", "20", "--seed", "1"});
  EXPECT_EQ(result.at("backend"), "openai-chat");
  EXPECT_EQ(number(result, "completed"), 4);
  EXPECT_EQ(number(result, "request_rate"), 20);
  EXPECT_EQ(number(result, "total_output_tokens"), metric(server.port(), "vllm:generation_tokens_total"));
  EXPECT_EQ(number(result, "total_input_tokens"), metric(server.port(), "vllm:prompt_tokens_total"));
  for (const json::value& text : result.at("generated_texts").as_array()) EXPECT_NE(text.as_string(), "");
  double last = -1;
  for (const json::value& start : result.at("start_times").as_array()) {
    EXPECT_GT(start.to_number<double>(), last);
    last = start.to_number<double>();
  }
  EXPECT_GT(last, 0.05) << "not all at once";
  const json::object again = measured(server, {"--dataset-name", "chat", "--requests", "4", "--num-warmups", "0",
                                               "--max-concurrency", "2", "--seed", "1"});
  EXPECT_EQ(again.at("generated_texts"), result.at("generated_texts")) << "the same seed asks the same";
}

TEST(BenchServeTest, AcceptedDraftsAreToldFromTheServersCounters) {
  ServerProcess server({"--draft-tokens", "2"});
  const auto counter = [&](const char* name) { return metric(server.port(), name); };
  const json::object result = measured(server, {"--dataset-name", "chat", "--requests", "8", "--num-warmups", "0"});
  if (counter("vllm:spec_decode_num_draft_tokens_total") == 0) GTEST_SKIP() << "drafts do not pay on this machine now";
  EXPECT_EQ(number(result, "spec_decode_draft_tokens"), counter("vllm:spec_decode_num_draft_tokens_total"));
  EXPECT_EQ(number(result, "spec_decode_accepted_tokens"), counter("vllm:spec_decode_num_accepted_tokens_total"));
  EXPECT_EQ(number(result, "spec_decode_num_drafts"), counter("vllm:spec_decode_num_drafts_total"));
  EXPECT_NEAR(number(result, "spec_decode_acceptance_rate"),
              100 * number(result, "spec_decode_accepted_tokens") / number(result, "spec_decode_draft_tokens"), 1e-9);
}

TEST(BenchServeTest, FailuresAreCountedAndShown) {
  ServerProcess server;
  const fs::path folder = fs::path(::testing::TempDir()) / "lantern_bench_serve";
  fs::create_directories(folder);
  std::ofstream file(folder / "prompts.jsonl");
  std::string too_long;
  for (int i = 0; i < 3000; ++i) too_long += "apple ";
  for (int i = 0; i < 4; ++i) file << R"({"prompt": "What is 6 times 7?", "max_tokens": 5})" << "\n\n";
  for (int i = 0; i < 2; ++i) file << R"({"prompt": ")" << too_long << R"(", "output_tokens": 5})" << "\n";
  file.close();
  const Outcome outcome =
      bench(server.url(), {"--prompts", (folder / "prompts.jsonl").string(), "--requests", "6", "--num-warmups", "0",
                           "--ignore-eos", "--goodput", "e2el:1e9", "--output", (folder / "result.json").string(),
                           "--html", (folder / "page.html").string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("Successful requests:                     4 "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("Failed requests:                         2 "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\n     2 x 400: "), std::string::npos) << outcome.out;
  const json::object result = json::parse(read_file(folder / "result.json")).as_object();
  EXPECT_EQ(number(result, "failed"), 2);
  EXPECT_EQ(number(result, "total_output_tokens"), 4 * 5);
  EXPECT_EQ(result.at("failures").as_array().size(), 1u);
  EXPECT_NEAR(number(result, "request_goodput"), number(result, "request_throughput"), 1e-12);
  const std::string page = read_file(folder / "page.html");
  EXPECT_TRUE(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
  EXPECT_NE(page.find("<td>answered, failed</td><td>4, 2</td>"), std::string::npos);

  std::ofstream(folder / "prompts.jsonl") << R"({"prompt": ")" << too_long << "\"}\n";
  const Outcome none =
      bench(server.url(), {"--prompts", (folder / "prompts.jsonl").string(), "--requests", "2", "--num-warmups", "0"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.err.find("none of 2 requests was answered: 400: "), std::string::npos) << none.err;
  const Outcome warm = bench(server.url(), {"--prompts", (folder / "prompts.jsonl").string()});
  EXPECT_EQ(warm.exit_code, 1);
  EXPECT_NE(warm.err.find("/v1/completions: the warm-up failed: 400: "), std::string::npos) << warm.err;
}

TEST(BenchServeTest, WhatCannotWorkIsSaidInOneLine) {
  ServerProcess server({"--api-key", "secret"});
  const auto refusal = [&](const std::string& url, std::vector<std::string> arguments, int code = 1) {
    arguments.insert(arguments.end(), {"--requests", "2"});
    const Outcome outcome = bench(url, arguments);
    EXPECT_EQ(outcome.exit_code, code) << outcome.out;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    return outcome.err;
  };
  EXPECT_NE(refusal("http://127.0.0.1:1", {}).find("127.0.0.1:1: Connection refused"), std::string::npos);
  EXPECT_NE(refusal("https://127.0.0.1:1", {}, 2).find("TLS is not spoken here"), std::string::npos);
  EXPECT_NE(refusal(server.url(), {}).find("/v1/models: 401: "), std::string::npos);
  const std::vector<std::string> key = {"--api-key", "secret"};
  const auto with_key = [&](std::vector<std::string> arguments, int code = 1) {
    arguments.insert(arguments.end(), key.begin(), key.end());
    return refusal(server.url(), arguments, code);
  };
  EXPECT_NE(with_key({"--model", "nobody"}).find("404: "), std::string::npos);
  EXPECT_NE(with_key({"--request-rate", "0"}, 2).find("--request-rate: '0' is not a number above 0"),
            std::string::npos);
  EXPECT_NE(with_key({"--goodput", "itl:5"}, 2).find("'itl:5' is none of"), std::string::npos);
  EXPECT_NE(with_key({"--prompts", "x", "--dataset-name", "chat"}, 2).find("give one of them"), std::string::npos);
  EXPECT_NE(with_key({"--prompts", "/nonexistent"}).find("/nonexistent"), std::string::npos);
  refusal(server.url(), {"--dataset-name", "sharegpt"}, 2);
  const Outcome good =
      bench(server.url(), {"--requests", "1", "--input-len", "8", "--output-len", "2", "--api-key", "secret"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
}

TEST(BenchServeTest, CtrlCEndsAllRequests) {
  ServerProcess server;
  Terminal terminal({"bench", "serve", "--url", server.url(), "--requests", "40", "--input-len", "16", "--output-len",
                     "1900", "--ignore-eos", "--num-warmups", "0"});
  ASSERT_TRUE(eventually([&] { return metric(server.port(), "vllm:num_requests_running") > 0; }));
  terminal.type(Terminal::kCtrlC);
  EXPECT_EQ(terminal.wait(), 130) << terminal.screen();
  EXPECT_TRUE(eventually([&] { return metric(server.port(), "vllm:num_requests_running") == 0; }));
  EXPECT_EQ(terminal.screen().find("Benchmark Result"), std::string::npos) << "half a result is none";
}

}  // namespace
}  // namespace lantern::test
