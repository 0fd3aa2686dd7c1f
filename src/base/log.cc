#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace lantern {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::stderr_color_mt("lantern");
    made->set_pattern("%^%l%$: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel lowest) { logger().set_level(to_spdlog(lowest)); }
bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }
void log_message(LogLevel level, std::string_view message) {
  logger().log(to_spdlog(level), without_controls(message));
}

std::string without_controls(std::string_view message) {
  std::string shown(message);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return shown;
}

}  // namespace lantern
