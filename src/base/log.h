// Logging to stderr. Levels follow common usage; the sink (spdlog) is hidden in log.cc.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace lantern {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void set_log_level(LogLevel lowest);
bool log_enabled(LogLevel level);
void log_message(LogLevel level, std::string_view message);
// The message as it may reach a terminal: messages quote files, so control characters become '?'.
std::string without_controls(std::string_view message);

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kDebug)) log_message(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kInfo)) log_message(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lantern
