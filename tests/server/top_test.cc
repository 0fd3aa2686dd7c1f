// `lantern top` as a script and as a person at a terminal see it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>

#include "process.h"
#include "server_process.h"
#include "socket_client.h"
#include "terminal.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

TEST(TopTest, OneLookAsJson) {
  ServerProcess server;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(post(server.port(), "/v1/completions",
                   R"({"prompt":"Hello","max_tokens":20,"ignore_eos":true,"temperature":0,"stream":true})")
                  .status,
              200);
  }
  const Outcome outcome = run_lantern({"top", "--url", server.url(), "--once", "--json", "--interval", "0.1"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json::object view = json::parse(outcome.out).as_object();
  EXPECT_EQ(view.at("model"), "tiny");
  EXPECT_EQ(view.at("state"), "IDLE");
  EXPECT_EQ(view.at("num_requests_running").to_number<double>(), 0);
  EXPECT_EQ(view.at("generation_tokens_per_s").to_number<double>(), 0) << "nothing between the two looks";
  EXPECT_EQ(view.at("ended").at("length").to_number<double>(), 3);
  EXPECT_GT(view.at("p50_ttft_ms").to_number<double>(), 0);
  EXPECT_GE(view.at("p99_ttft_ms").to_number<double>(), view.at("p50_ttft_ms").to_number<double>());
  EXPECT_TRUE(view.at("draft_acceptance_rate").is_null()) << "it does not draft";

  const Outcome text = run_lantern({"top", "--url", server.url(), "--once", "--interval", "0.1"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.out.find("requests      0 running   0 waiting   0.0/s ended (length 3)\n"), std::string::npos)
      << text.out;
  EXPECT_EQ(text.out.find('\033'), std::string::npos) << "no control sequences in a file";
}

TEST(TopTest, RatesAreThoseOfTheWork) {
  ServerProcess server;
  Client stream(server.port());
  ASSERT_TRUE(stream.send(
      post_text("/v1/completions",
                R"({"prompt":"Hello","n":4,"max_tokens":2000,"ignore_eos":true,"temperature":0,"stream":true})")));
  ASSERT_TRUE(eventually([&] { return metric(server.port(), "vllm:num_requests_running") == 4; }));
  // A step may take longer than the shortest of these.
  double rate = 0;
  for (const char* interval : {"0.1", "1", "10"}) {
    const Outcome outcome = run_lantern({"top", "--url", server.url(), "--once", "--json", "--interval", interval});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const json::object view = json::parse(outcome.out).as_object();
    EXPECT_EQ(view.at("num_requests_running").to_number<double>(), 4);
    EXPECT_EQ(view.at("state"), "HEALTHY");
    EXPECT_GT(view.at("kv_cache_usage_perc").to_number<double>(), 0);
    rate = view.at("generation_tokens_per_s").to_number<double>();
    if (rate > 0) break;
  }
  EXPECT_GT(rate, 0);
}

TEST(TopTest, WatchesLiveUntilAKeyEndsIt) {
  ServerProcess server;
  Terminal terminal({"top", "--url", server.url(), "--interval", "0.1"});
  ASSERT_TRUE(terminal.shows("\033[?1049h")) << "the first screen is left as it was";
  ASSERT_TRUE(terminal.shows("tiny   IDLE")) << terminal.screen();
  Client stream(server.port());
  ASSERT_TRUE(stream.send(
      post_text("/v1/completions",
                R"({"prompt":"Hello","n":4,"max_tokens":2000,"ignore_eos":true,"temperature":0,"stream":true})")));
  ASSERT_TRUE(terminal.shows("tiny   HEALTHY")) << terminal.screen();
  ASSERT_TRUE(terminal.shows("4 running")) << terminal.screen();
  stream.close();
  ASSERT_TRUE(terminal.shows("tiny   IDLE")) << terminal.screen();
  ASSERT_TRUE(terminal.shows("abort 4")) << terminal.screen();
  // A server that is gone is said to be, and watched again when it comes back.
  server.signal(SIGKILL);
  ASSERT_TRUE(terminal.shows("Connection refused")) << terminal.screen();
  terminal.type("q");
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
  EXPECT_TRUE(terminal.screen().ends_with("\033[?25h\033[?1049l")) << "the cursor and the first screen are back";
}

TEST(TopTest, CtrlCEndsItInOrder) {
  ServerProcess server;
  Terminal terminal({"top", "--url", server.url(), "--interval", "3600"});
  ASSERT_TRUE(terminal.shows("q ends")) << terminal.screen();
  terminal.type(Terminal::kCtrlC);  // just before the wait, as like as not
  EXPECT_EQ(terminal.wait(), 130) << terminal.screen();
  EXPECT_TRUE(terminal.screen().ends_with("\033[?25h\033[?1049l")) << terminal.screen();
}

TEST(TopTest, NoServerIsOneLine) {
  const Outcome outcome = run_lantern({"top", "--url", "127.0.0.1:1", "--once"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "lantern: error: 127.0.0.1:1: Connection refused\n");
}

}  // namespace
}  // namespace lantern::test
