// CHECK(condition, format, args...): a broken invariant ends the process with one line that names the place.
// For what a user can cause, return a Result instead.
#pragma once

#include <fmt/core.h>

#include <string>

namespace lantern {

// Whether checks run that cost more than a comparison. The preprocessor's only part: NDEBUG has no other form.
#ifdef NDEBUG
constexpr bool kCheckedBuild = false;
#else
constexpr bool kCheckedBuild = true;
#endif

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

// Called once, after the line and before the process ends: prints to stderr what else helps to explain the fault.
using FaultReporter = void (*)();
void set_fault_reporter(FaultReporter reporter);

}  // namespace lantern

#define CHECK(condition, ...)                                                              \
  do {                                                                                     \
    if (!(condition)) [[unlikely]] {                                                       \
      ::lantern::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                      \
  } while (false)
