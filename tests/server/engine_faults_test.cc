// Steps that hang and devices that are lost: what clients, probes and whoever watches the process get to see.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>

#include "server_process.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

namespace json = boost::json;

std::string long_request(bool stream) {
  return post_text("/v1/completions",
                   fmt::format(R"({{"prompt":"Hello","max_tokens":1900,"ignore_eos":true,"stream":{}}})", stream));
}
std::vector<std::string> breaks(const char* fault, int step) {
  return {LANTERN_FAULTY_SERVER, fault, std::to_string(step)};
}
const std::string kEndOfStream = "data: [DONE]\n\n\r\n0\r\n\r\n";
// To the end of the stream, or of the connection.
std::string rest_of(Client& stream) {
  std::string rest;
  for (std::string more; !rest.ends_with(kEndOfStream) && !(more = stream.read_some()).empty();) rest += more;
  return rest;
}

class HungStep : public ::testing::TestWithParam<const char*> {};

// The watchdog: the step is named, what is known is told, requests end with an error, and the exit code says that
// somebody has to start it again.
TEST_P(HungStep, IsNamedAndEndsTheServer) {
  ServerProcess server({"--watchdog-timeout", "4"}, true, {}, breaks(GetParam(), 20));
  Client stream(server.port());
  ASSERT_TRUE(stream.send(long_request(true)));
  ASSERT_NE(stream.read_some(), "");
  Client whole(server.port());
  ASSERT_TRUE(whole.send(long_request(false)));
  // Probes see it before the watchdog does.
  EXPECT_TRUE(eventually([&] { return get(server.port(), "/health").status == 503; }));
  const std::string rest = rest_of(stream);
  EXPECT_NE(rest.find(R"("error":{"message":"the engine hangs)"), std::string::npos) << rest.substr(0, 2000);
  EXPECT_TRUE(rest.ends_with(kEndOfStream)) << "the stream is not cut off";
  EXPECT_EQ(whole.read_answer().value_or(Answer{}).status, 503);
  EXPECT_EQ(server.wait_for_end(), 1);
  EXPECT_NE(server.err().find("lantern: error: step "), std::string::npos) << server.err();
  EXPECT_NE(server.err().find("tokens in a launch of"), std::string::npos) << server.err();
  EXPECT_NE(server.err().find("in flight: step "), std::string::npos) << server.err();
  EXPECT_NE(server.err().find("in work: POST /v1/completions id="), std::string::npos) << server.err();
}
INSTANTIATE_TEST_SUITE_P(Faults, HungStep, ::testing::Values("hang-submit", "hang-wait"), [](const auto& of) {
  return of.param == std::string("hang-wait") ? "Waiting" : "Submitting";
});

// Without the watchdog: whoever stops the server need not kill it.
TEST(EngineFaultsTest, AHungStepDoesNotHoldUpStopping) {
  ServerProcess server({"--watchdog-timeout", "0", "--shutdown-timeout", "0.5"}, true, {}, breaks("hang-wait", 10));
  Client stream(server.port());
  ASSERT_TRUE(stream.send(long_request(true)));
  ASSERT_NE(stream.read_some(), "");
  server.signal(SIGTERM);
  EXPECT_NE(rest_of(stream).find("the server is shutting down"), std::string::npos);
  EXPECT_EQ(server.wait_for_end(), 1);
  EXPECT_NE(server.err().find("a step does not end"), std::string::npos) << server.err();
  EXPECT_NE(server.err().find("in flight: step "), std::string::npos) << server.err();
}

TEST(EngineFaultsTest, ALostDeviceEndsTheServerWithItsReason) {
  ServerProcess server({}, true, {}, breaks("lose", 20));
  Client stream(server.port());
  ASSERT_TRUE(stream.send(long_request(true)));
  ASSERT_NE(stream.read_some(), "");
  const std::string rest = rest_of(stream);
  EXPECT_NE(rest.find("the cable was pulled"), std::string::npos) << rest.substr(0, 2000);
  EXPECT_TRUE(rest.ends_with(kEndOfStream)) << "the stream is not cut off";
  EXPECT_EQ(server.wait_for_end(), 1);
  EXPECT_NE(server.err().find("lantern: error: the engine has lost its device (the cable was pulled)"),
            std::string::npos)
      << server.err();
}

TEST(EngineFaultsTest, StepsInFlightAreKnown) {
  TinyServerOptions options;
  options.gate = std::make_shared<Gate>();
  TinyServer server(options);
  EXPECT_TRUE(server.engine().steps_in_flight().empty());
  options.gate->set_open(false);
  Client stream(server.port());
  ASSERT_TRUE(stream.send(post_text("/v1/completions", R"({"prompt":[1,2,3,4,5],"max_tokens":4})")));
  ASSERT_TRUE(eventually([&] { return !server.engine().steps_in_flight().empty(); }));
  const std::vector<StepInFlight> steps = server.engine().steps_in_flight();
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].prefills, 1);
  EXPECT_EQ(steps[0].decodes, 0);
  EXPECT_EQ(steps[0].tokens, 5);
  EXPECT_GE(steps[0].launched_tokens, 5);
  ASSERT_EQ(server.api().requests_in_work(std::chrono::steady_clock::now()).size(), 1u);
  options.gate->set_open(true);
  EXPECT_EQ(stream.read_answer().value_or(Answer{}).status, 200);
  EXPECT_TRUE(server.wait_until_quiet());
  EXPECT_TRUE(server.engine().steps_in_flight().empty());
  EXPECT_TRUE(server.api().requests_in_work(std::chrono::steady_clock::now()).empty());
}

TEST(EngineFaultsTest, ALostEngineIsToldToWhoeverAsks) {
  TinyServerOptions options;
  options.gate = std::make_shared<Gate>();
  TinyServer server(options);
  Client stream(server.port());
  ASSERT_TRUE(stream.send(long_request(true)));
  ASSERT_NE(stream.read_some(), "");
  options.gate->lost = true;
  EXPECT_NE(rest_of(stream).find("the cable was pulled"), std::string::npos);
  ASSERT_TRUE(eventually([&] { return server.engine().lost().has_value(); }));
  for (const char* path : {"/health", "/ready", "/health?deep=1"}) {
    const Answer answer = get(server.port(), path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_EQ(text_of(answer.json()["error"].at("code")), "engine_dead") << answer.body;
  }
  const Answer answer = post(server.port(), "/v1/completions", R"({"prompt":"Hello"})");
  EXPECT_EQ(answer.status, 503);
  EXPECT_NE(answer.body.find("the cable was pulled"), std::string::npos) << answer.body;
  EXPECT_EQ(get(server.port(), "/metrics").status, 200);
  EXPECT_TRUE(eventually([&] { return server.api().idle(); }));
}

// A device that is busy for a while loses nobody's request.
TEST(EngineFaultsTest, RefusedStepsAreTriedAgain) {
  TinyServerOptions options;
  options.gate = std::make_shared<Gate>();
  TinyServer server(options);
  const std::string expected = server.greedy(kQuestion, 20);
  options.gate->refusals = 5;
  const json::object request{{"prompt", kQuestion}, {"max_tokens", 20}, {"temperature", 0}};
  const Answer answer = post(server.port(), "/v1/completions", json::serialize(request));
  EXPECT_EQ(options.gate->refusals, 0);
  EXPECT_EQ(text_of(answer.json()["choices"].at(0).at("text")), expected);
}

}  // namespace
}  // namespace lantern::test
