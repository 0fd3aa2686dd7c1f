#include "server/access_log.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <ctime>

#include "base/json_text.h"
#include "base/log.h"
#include "base/unix_time.h"

namespace lantern {
namespace {

namespace json = boost::json;

constexpr size_t kMostMethodBytes = 32;
constexpr size_t kMostPathBytes = 1000;

std::string time_text(int64_t milliseconds) {
  const auto seconds = static_cast<std::time_t>(milliseconds / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, milliseconds % 1000);
}

}  // namespace

std::string AccessLog::line(const AccessRecord& record, Format format, int64_t now) {
  const std::string_view method = std::string_view(record.method).substr(0, kMostMethodBytes);
  const std::string_view path = std::string_view(record.path).substr(0, kMostPathBytes);
  if (format == Format::kJson) {
    json::object object{{"time", time_text(now)},
                        {"client", record.client},
                        {"method", method},
                        {"path", path},
                        {"status", record.status},
                        {"seconds", record.seconds},
                        {"request_id", record.request_id}};
    if (record.generated) {
      object["prompt_tokens"] = record.usage.prompt_tokens;
      object["cached_tokens"] = record.usage.cached_tokens;
      object["completion_tokens"] = record.usage.completion_tokens;
      object["first_token_seconds"] =
          record.first_token_seconds < 0 ? json::value() : json::value(record.first_token_seconds);
      object["finish_reason"] = record.outcome;
    }
    return json_text(object) + "\n";
  }
  std::string text = fmt::format("{} {} \"{} {}\" {} {:.0f} ms id={}", time_text(now), record.client, method, path,
                                 record.status, 1e3 * record.seconds, record.request_id);
  if (record.generated) {
    fmt::format_to(std::back_inserter(text), " prompt={} cached={} output={} first={} finish={}",
                   record.usage.prompt_tokens, record.usage.cached_tokens, record.usage.completion_tokens,
                   record.first_token_seconds < 0 ? "-" : fmt::format("{:.0f}ms", 1e3 * record.first_token_seconds),
                   record.outcome);
  }
  return without_controls(text) + "\n";
}

void AccessLog::write(const AccessRecord& record) {
  if (format_ == Format::kNone) return;
  const std::string text = line(record, format_, unix_milliseconds());
  const std::lock_guard lock(mutex_);
  // A full disk, a closed pipe or one that nobody reads is no reason to serve nobody. Where a pipe takes something, it
  // takes PIPE_BUF bytes, and lines are shorter.
  pollfd of{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  if (poll(&of, 1, 0) <= 0 || (of.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const ssize_t ignored = ::write(descriptor_, text.data(), text.size());
}

}  // namespace lantern
