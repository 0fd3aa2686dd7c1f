#include "server/server_metrics.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace lantern {
namespace {

// The value of the first sample that begins so; -1 where there is none.
double sample(const std::string& text, const std::string& begin) {
  const size_t at = text.find("\n" + begin);
  if (at == std::string::npos) return -1;
  const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  return std::stod(line.substr(line.rfind(' ')));
}

// Whoever waits for one figure of a request to change finds the others changed: dashboards divide one by another.
TEST(ServerMetricsTest, AScrapeSeesARequestWholeOrNotAtAll) {
  ServerMetrics metrics;
  const std::jthread requests([&](const std::stop_token& stop) {
    const FinishedRequest request{.usage = {.prompt_tokens = 5, .completion_tokens = 4, .longest_choice = 4},
                                  .outcome = "stop",
                                  .first_token_seconds = 0.2,
                                  .first_run_seconds = 0.1,
                                  .queue_seconds = 0.1,
                                  .seconds = 1,
                                  .n = 1,
                                  .max_tokens = 4};
    while (!stop.stop_requested()) metrics.finished(request);
  });
  const std::string counts[] = {"params_n",
                                "params_max_tokens",
                                "prompt_tokens",
                                "generation_tokens",
                                "max_num_generation_tokens",
                                "queue_time_seconds",
                                "inference_time_seconds",
                                "prefill_time_seconds",
                                "decode_time_seconds",
                                "time_per_output_token_seconds"};
  double last = 0;
  for (int scrape = 0; scrape < 2000 || last == 0; ++scrape) {
    const std::string text = metrics.text({});
    const double ended =
        sample(text, "vllm:request_success_total{model_name=\"\",engine=\"0\",finished_reason=\"stop\"}");
    ASSERT_GE(ended, last);
    last = ended;
    ASSERT_EQ(sample(text, "vllm:e2e_request_latency_seconds_count"), ended);
    for (const std::string& name : counts) ASSERT_EQ(sample(text, "vllm:request_" + name + "_count"), ended) << name;
  }
}

}  // namespace
}  // namespace lantern
