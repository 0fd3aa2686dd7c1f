#include "server/trace_export.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <future>

namespace lantern {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

TraceSpan span_named(std::string name) {
  return {.name = std::move(name),
          .trace_id = "0af7651916cd43dd8448eb211c80319c",
          .span_id = "b7ad6b7169203331",
          .parent_span_id = "00f067aa0ba902b7",
          .begin = 1'700'000'000'123'456'789,
          .end = 1'700'000'001'000'000'000};
}

size_t spans_in(const std::string& body) {
  return json::parse(body).at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans").get_array().size();
}

TEST(TraceParentTest, IsReadAsW3cWritesIt) {
  const std::string trace = "0af7651916cd43dd8448eb211c80319c";
  const std::string span = "b7ad6b7169203331";
  const std::optional<TraceParent> parent = parse_trace_parent("00-" + trace + "-" + span + "-01");
  ASSERT_TRUE(parent);
  EXPECT_EQ(parent->trace_id, trace);
  EXPECT_EQ(parent->span_id, span);
  EXPECT_TRUE(parent->sampled);
  EXPECT_FALSE(parse_trace_parent("00-" + trace + "-" + span + "-00")->sampled);
  EXPECT_FALSE(parse_trace_parent("00-" + trace + "-" + span + "-fe")->sampled);
  EXPECT_TRUE(parse_trace_parent("00-" + trace + "-" + span + "-0b")->sampled);
  EXPECT_TRUE(parse_trace_parent("01-" + trace + "-" + span + "-01-more")) << "later versions may say more";
  const std::string wrong[] = {"",
                               "00",
                               "00-" + trace + "-" + span + "-0",
                               "00-" + trace + "-" + span + "-01-more",
                               "01-" + trace + "-" + span + "-01x",
                               "ff-" + trace + "-" + span + "-01",
                               "00-" + std::string(32, '0') + "-" + span + "-01",
                               "00-" + trace + "-" + std::string(16, '0') + "-01",
                               "00-0AF7651916CD43DD8448EB211C80319C-" + span + "-01",
                               "00-" + trace + "-" + span + "-0g",
                               "00_" + trace + "-" + span + "-01"};
  for (const std::string& field : wrong) EXPECT_FALSE(parse_trace_parent(field)) << field;
}

TEST(TraceExportTest, ABodyIsWhatCollectorsRead) {
  TraceSpan span = span_named("POST /v1/completions");
  span.failed = true;
  span.attributes = {{"a", std::string("x\"y")}, {"b", int64_t{1} << 60}, {"c", 0.25}};
  EXPECT_EQ(
      json::parse(otlp_body({&span, 1}, "1.2")),
      json::parse(
          R"({"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"lantern"}},{"key":"service.version","value":{"stringValue":"1.2"}}]},
              "scopeSpans":[{"scope":{"name":"lantern"},"spans":[{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331","parentSpanId":"00f067aa0ba902b7","name":"POST /v1/completions","kind":2,
              "startTimeUnixNano":"1700000000123456789","endTimeUnixNano":"1700000001000000000","status":{"code":2},
              "attributes":[{"key":"a","value":{"stringValue":"x\"y"}},{"key":"b","value":{"intValue":"1152921504606846976"}},{"key":"c","value":{"doubleValue":0.25}}]}]}]}]})"));
  TraceSpan plain = span_named("x");
  plain.parent_span_id.clear();
  const json::value made =
      json::parse(otlp_body({&plain, 1}, "")).at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans").at(0);
  EXPECT_FALSE(made.get_object().contains("parentSpanId"));
  EXPECT_FALSE(made.get_object().contains("status"));
}

TEST(TraceExportTest, SpansComeInBatchesAndTheLastOnesAtTheEnd) {
  std::vector<size_t> batches;  // the export's thread's, until it has ended
  {
    TraceExport traces({.most_in_batch = 3, .interval = std::chrono::hours(1)}, [&](const std::string& body) -> Status {
      batches.push_back(spans_in(body));
      return {};
    });
    for (int i = 0; i < 8; ++i) traces.add(span_named("x"));
  }
  size_t sum = 0;
  for (const size_t batch : batches) {
    EXPECT_LE(batch, 3u);
    sum += batch;
  }
  EXPECT_EQ(sum, 8u);
}

// A collector that does not answer holds up nobody, and costs no more than the queue.
TEST(TraceExportTest, WhatFindsTheQueueFullIsDroppedAndCounted) {
  std::promise<void> began;
  std::promise<void> let_go;
  std::shared_future<void> go(let_go.get_future());
  bool first = true;
  TraceExport traces({.most_waiting = 4, .most_in_batch = 2, .interval = milliseconds(1)},
                     [&, go](const std::string&) -> Status {
                       if (std::exchange(first, false)) began.set_value();
                       go.wait();
                       return {};
                     });
  traces.add(span_named("x"));
  began.get_future().wait();
  for (int i = 0; i < 10; ++i) traces.add(span_named("y"));
  EXPECT_EQ(traces.counts().dropped, 6);
  EXPECT_EQ(traces.counts().exported, 0);
  let_go.set_value();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (traces.counts().exported < 5 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(traces.counts().exported, 5);
  EXPECT_EQ(traces.counts().dropped, 6);
}

TEST(TraceExportTest, WhatCannotBeSentIsCountedAndTheEndDoesNotWait) {
  int calls = 0;
  {
    TraceExport traces({.most_in_batch = 2, .interval = std::chrono::hours(1)}, [&](const std::string&) -> Status {
      ++calls;
      return Error(ErrorCode::kIo, "no collector");
    });
    for (int i = 0; i < 2; ++i) traces.add(span_named("x"));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (traces.counts().failed < 2 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(milliseconds(1));
    EXPECT_EQ(traces.counts().failed, 2);
    traces.add(span_named("x"));
  }
  EXPECT_EQ(calls, 2) << "one more at the end, and no further one";
}

}  // namespace
}  // namespace lantern
