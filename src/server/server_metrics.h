// What the server counts, under the names that vLLM gave (dashboards, gateways and autoscalers ask for them), and under
// our own where that has none.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/http.h"
#include "server/metrics_text.h"
#include "server/openai_response.h"
#include "server/trace_export.h"

namespace lantern {

// A request that was given to the engine, when its answer is over.
struct FinishedRequest {
  OpenAiUsage usage;
  std::string_view outcome;         // "stop", "length", "abort", "error"
  double first_token_seconds = -1;  // since it was received; -1: there was none
  double first_run_seconds = -1;    // the same of its first step
  double queue_seconds = -1;        // that it waited in the engine for it
  double seconds = 0;               // since it was received
  int32_t n = 1;
  int64_t max_tokens = 0;  // of a choice
};

class ServerMetrics {
 public:
  ServerMetrics();

  void inter_token(double seconds, int64_t tokens) {
    inter_token_.observe(seconds / static_cast<double>(tokens), tokens);
  }
  void first_token(double seconds) { first_token_.observe(seconds); }
  void finished(const FinishedRequest& request);
  void rejected(const std::string& reason);
  void answered(const std::string& route, int32_t status);

  struct Now {
    EngineReport engine;
    std::vector<EngineReport> ranks;
    EngineSettings settings;
    std::string model;
    std::string kv_cache_dtype;
    HttpStats http;
    TraceExport::Counts traces;
    int64_t waiting_here = 0;  // admitted and not yet given to the engine
    std::string version;
  };
  std::string text(const Now& now) const;

 private:
  void write_engine(MetricsText& text, const Now& now) const;
  void write_drafts(MetricsText& text, const Now& now) const;
  void write_requests(MetricsText& text) const;
  void write_server(MetricsText& text, const Now& now) const;

  Histogram first_token_;
  Histogram inter_token_;
  Histogram per_output_token_;
  Histogram end_to_end_;
  Histogram queue_;
  Histogram prefill_;
  Histogram decode_;
  Histogram inference_;
  Histogram prompt_tokens_;
  Histogram generation_tokens_;
  Histogram max_generation_tokens_;
  Histogram params_max_tokens_;
  Histogram params_n_;

  mutable std::mutex mutex_;
  std::map<std::string, int64_t, std::less<>> outcomes_ = {{"stop", 0}, {"length", 0}, {"abort", 0}, {"error", 0}};
  std::map<std::string, int64_t> rejections_ = {{"reqs", 0}, {"tokens", 0}};
  std::map<std::pair<std::string, int32_t>, int64_t> answers_;
};

}  // namespace lantern
