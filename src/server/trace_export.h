// Traces: a span for each request, sent to a collector of OpenTelemetry over HTTP as JSON (OTLP 1.x,
// https://opentelemetry.io/docs/specs/otlp/). Whoever has a span pays for one push into a bounded queue; the rest is
// done on a thread of its own. What finds the queue full is dropped and counted.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace lantern {

// What a request says of the trace that it belongs to.
struct TraceParent {
  std::string trace_id;  // 32 digits
  std::string span_id;   // 16 digits
  bool sampled = true;   // false: nobody wants its spans
};
// Of a field "traceparent" (https://www.w3.org/TR/trace-context/). Nothing: it is none.
std::optional<TraceParent> parse_trace_parent(std::string_view field);

struct TraceSpan {
  using Value = std::variant<std::string, int64_t, double>;

  std::string name;
  std::string trace_id;             // 32 hexadecimal digits
  std::string span_id;              // 16
  std::string parent_span_id = {};  // empty: it is the trace's first
  int64_t begin = 0;                // nanoseconds since 1970
  int64_t end = 0;
  bool failed = false;
  std::vector<std::pair<std::string_view, Value>> attributes = {};  // names live as long as the program
};

// {"resourceSpans": ...}, the body of an export.
std::string otlp_body(std::span<const TraceSpan> spans, std::string_view version);

class TraceExport {
 public:
  struct Settings {
    size_t most_waiting = 2048;  // spans
    size_t most_in_batch = 512;
    std::chrono::milliseconds interval{1000};  // between batches, unless one is full
    std::string version = {};                  // of this program
  };
  // Sends a body; waits for the answer. On the export's thread.
  using Send = std::function<Status(const std::string& body)>;
  struct Counts {
    int64_t exported = 0;
    int64_t dropped = 0;  // the queue was full
    int64_t failed = 0;   // of batches that could not be sent
  };

  TraceExport(Settings settings, Send send);
  // Sends what waits, until something cannot be sent.
  ~TraceExport();
  TraceExport(const TraceExport&) = delete;
  TraceExport& operator=(const TraceExport&) = delete;

  // Any thread; waits for nobody who sends.
  void add(TraceSpan span);
  Counts counts() const;

 private:
  void run();

  const Settings settings_;
  const Send send_;
  mutable std::mutex mutex_;
  std::condition_variable something_to_do_;
  std::vector<TraceSpan> waiting_;
  Counts counts_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lantern
