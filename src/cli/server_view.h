// What `lantern top` shows of a server, computed from what its /metrics said at two times.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/metrics_snapshot.h"

namespace lantern::cli {

struct LatencyView {  // milliseconds; NaN where nothing was observed
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};

struct ServerView {
  std::string model;
  std::string state;  // IDLE, HEALTHY, QUEUE BUILDING or KV PRESSURE
  // Of the last interval.
  double generation_rate = 0;  // tokens/s
  double prompt_rate = 0;
  double request_rate = 0;  // choices that ended, per second
  // Now.
  double running = 0;
  double waiting = 0;
  double kv_use = 0;  // 0 to 1
  // Since the beginning of the window; NaN where nothing was asked, drafted or observed.
  double prefix_hit_rate = 0;
  double draft_acceptance = 0;
  double acceptance_length = 0;
  std::map<std::string, double> ended;  // by the reason
  LatencyView ttft;
  LatencyView itl;
};
// `last` came `seconds` before `now`; `begin` begins the window, and may be empty: all that the server ever counted.
// Counters that fell tell of a server that began anew, and count from 0.
ServerView server_view(const MetricsSnapshot& begin, const MetricsSnapshot& last, const MetricsSnapshot& now,
                       double seconds);

// Lines for people, at most `width` columns wide. `rates`: generation rates up to now, the oldest first.
std::vector<std::string> view_lines(const ServerView& view, const std::string& url, const std::vector<double>& rates,
                                    int width);
// One line of JSON.
std::string view_json(const ServerView& view, const std::string& url);

}  // namespace lantern::cli
