#include "server/trace_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/json_text.h"
#include "base/log.h"

namespace lantern {
namespace {

namespace json = boost::json;

constexpr int32_t kServerSpan = 2;  // SPAN_KIND_SERVER
constexpr int32_t kErrorStatus = 2;

bool is_id(std::string_view text) {
  const bool digits =
      std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  return digits && text.find_first_not_of('0') != std::string_view::npos;
}

// 64-bit numbers are texts in the JSON of protocol buffers.
json::object attribute(std::string_view name, const TraceSpan::Value& value) {
  json::object made;
  if (const std::string* text = std::get_if<std::string>(&value)) made["stringValue"] = *text;
  if (const int64_t* number = std::get_if<int64_t>(&value)) made["intValue"] = fmt::format("{}", *number);
  if (const double* number = std::get_if<double>(&value)) made["doubleValue"] = *number;
  return {{"key", name}, {"value", std::move(made)}};
}

json::object span_object(const TraceSpan& span) {
  json::object made{{"traceId", span.trace_id},
                    {"spanId", span.span_id},
                    {"name", span.name},
                    {"kind", kServerSpan},
                    {"startTimeUnixNano", fmt::format("{}", span.begin)},
                    {"endTimeUnixNano", fmt::format("{}", span.end)}};
  if (!span.parent_span_id.empty()) made["parentSpanId"] = span.parent_span_id;
  if (span.failed) made["status"] = json::object{{"code", kErrorStatus}};
  json::array attributes;
  for (const auto& [name, value] : span.attributes) attributes.emplace_back(attribute(name, value));
  made["attributes"] = std::move(attributes);
  return made;
}

}  // namespace

// "00-" trace "-" span "-" flags; later versions may have more behind.
std::optional<TraceParent> parse_trace_parent(std::string_view field) {
  if (field.size() < 55 || field[2] != '-' || field[35] != '-' || field[52] != '-') return std::nullopt;
  const std::string_view version = field.substr(0, 2);
  const std::string_view flags = field.substr(53, 2);
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!std::ranges::all_of(version, is_hex) || !std::ranges::all_of(flags, is_hex) || version == "ff")
    return std::nullopt;
  if (field.size() > 55 && (version == "00" || field[55] != '-')) return std::nullopt;
  TraceParent parent{.trace_id = std::string(field.substr(3, 32)), .span_id = std::string(field.substr(36, 16))};
  if (!is_id(parent.trace_id) || !is_id(parent.span_id)) return std::nullopt;
  const char last = flags[1];
  parent.sampled = ((last <= '9' ? last - '0' : last - 'a' + 10) & 1) != 0;
  return parent;
}

std::string otlp_body(std::span<const TraceSpan> spans, std::string_view version) {
  json::array made;
  for (const TraceSpan& span : spans) made.emplace_back(span_object(span));
  const json::array resource{attribute("service.name", "lantern"), attribute("service.version", std::string(version))};
  return json_text(json::object{
      {"resourceSpans",
       json::array{json::object{{"resource", json::object{{"attributes", resource}}},
                                {"scopeSpans", json::array{json::object{{"scope", json::object{{"name", "lantern"}}},
                                                                        {"spans", std::move(made)}}}}}}}});
}

TraceExport::TraceExport(Settings settings, Send send) : settings_(std::move(settings)), send_(std::move(send)) {
  waiting_.reserve(settings_.most_waiting);
  thread_ = std::thread([this] { run(); });
}

TraceExport::~TraceExport() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  something_to_do_.notify_one();
  thread_.join();
}

void TraceExport::add(TraceSpan span) {
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= settings_.most_waiting) {
      ++counts_.dropped;
      return;
    }
    waiting_.push_back(std::move(span));
    full = waiting_.size() == settings_.most_in_batch;
  }
  if (full) something_to_do_.notify_one();
}

TraceExport::Counts TraceExport::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void TraceExport::run() {
  bool fails = false;
  std::unique_lock lock(mutex_);
  while (true) {
    something_to_do_.wait_for(lock, settings_.interval,
                              [&] { return stopping_ || waiting_.size() >= settings_.most_in_batch; });
    if (waiting_.empty()) {
      if (stopping_) return;
      continue;
    }
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(waiting_.size(), settings_.most_in_batch));
    const std::vector<TraceSpan> batch(std::move_iterator(waiting_.begin()), std::move_iterator(end));
    waiting_.erase(waiting_.begin(), end);
    lock.unlock();
    const Status sent = send_(otlp_body(batch, settings_.version));
    if (!sent.ok() && !fails) log_warning("traces are lost: {}", sent.error().message());  // once, until it works again
    fails = !sent.ok();
    lock.lock();
    (sent.ok() ? counts_.exported : counts_.failed) += static_cast<int64_t>(batch.size());
    if (fails && stopping_) {
      counts_.failed += static_cast<int64_t>(waiting_.size());
      return;
    }
  }
}

}  // namespace lantern
