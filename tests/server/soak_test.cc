// Hours in minutes: everything that clients do, over and over, and what the process holds stays what it was.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "process_state.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

using std::chrono::seconds;

std::string request_text(uint32_t number) {
  const bool stream = number % 2 == 0;
  switch (number % 8) {
    case 0:
    case 1:
      return post_text("/v1/completions",
                       fmt::format(R"({{"prompt":"Hello {}","max_tokens":20,"stream":{},"logprobs":3,"n":2}})",
                                   number % 37, stream));
    case 2:
    case 3:
      return post_text(
          "/v1/chat/completions",
          fmt::format(R"({{"messages":[{{"role":"user","content":"What is {}*7?"}}],"max_tokens":30,"stream":{}}})",
                      number % 50, stream));
    case 4: return post_text("/v1/completions", R"({"prompt":"x","temperature":-1})");
    case 5: return post_text("/tokenize", R"({"prompt":"Hello, world"})");
    case 6: return get_text("/metrics");
    default: return get_text(fmt::format("/nowhere/{}", number));
  }
}

void soak(seconds time) {
  TinyServerOptions options;
  options.num_draft_tokens = 2;
  TinyServer server(std::move(options));
  const std::string expected = server.greedy(kQuestion, 24);
  std::atomic<int64_t> answers = 0;
  std::atomic<int64_t> missing = 0;
  const auto run_for = [&](seconds part) {
    const auto until = std::chrono::steady_clock::now() + part;
    const auto client = [&](uint32_t seed) {
      for (uint32_t number = seed; std::chrono::steady_clock::now() < until; number += 7) {
        Client one(server.port());
        for (uint32_t request = 0; request < 1 + number % 3; ++request) {
          one.send(request_text(number + request));
          if (number % 5 == 0) break;  // and leaves without its answer
          const bool answered = one.read_answer().has_value();
          answers += answered ? 1 : 0;
          missing += answered ? 0 : 1;
        }
        if (number % 10 == 0) one.reset();
      }
    };
    std::vector<std::thread> clients;
    clients.reserve(4);
    for (uint32_t seed = 0; seed < 4; ++seed) clients.emplace_back(client, seed);
    for (std::thread& thread : clients) thread.join();
    ASSERT_TRUE(server.wait_until_quiet());
    ASSERT_TRUE(eventually([&] { return server.http().stats().connections == 0; }));
  };
  run_for(time / 4);
  const int64_t memory = resident_bytes();
  const int64_t descriptors = open_descriptors();
  const int64_t threads = running_threads();
  run_for(time - time / 4);
  EXPECT_GT(answers, 20);
  EXPECT_EQ(missing, 0);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(running_threads(), threads);
  if (kMemoryIsPlain) {
    EXPECT_LT(resident_bytes() - memory, int64_t{16} << 20) << answers << " answers";
  }
  const Answer answer = post(server.port(), "/v1/completions",
                             fmt::format(R"({{"prompt":"{}","max_tokens":24,"temperature":0}})", kQuestion));
  EXPECT_EQ(text_of(answer.json()["choices"].at(0).at("text")), expected);
}

TEST(SoakTest, HoldsNothing) { soak(seconds(16)); }
TEST(SoakSlow, HoldsNothingForAnHalfHour) { soak(seconds(1800)); }

}  // namespace
}  // namespace lantern::test
