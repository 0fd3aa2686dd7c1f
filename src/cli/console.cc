#include "cli/console.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/file.h"
#include "base/log.h"

namespace lantern::cli {
namespace {

std::atomic<int> caught_signal{0};
std::atomic<bool> nothing_to_end_in_order{false};
int output_errno = 0;  // of the first write to stdout that failed

// In a signal handler there is nothing but system calls.
[[noreturn]] void end_now(int number) {
  constexpr std::string_view kWhy = "lantern: ended by a signal while the model was loading\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kWhy.data(), kWhy.size());
  _exit(128 + number);
}

void on_interrupt(int number) {
  if (nothing_to_end_in_order.load()) end_now(number);
  caught_signal.store(number);
  // A second one must work even when nobody looks at the flag.
  std::signal(number, SIG_DFL);
}

void install(int number) {
  struct sigaction action{};
  action.sa_handler = &on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read from the terminal must return
  sigaction(number, &action, nullptr);
}

constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr int kBarWidth = 30;

}  // namespace

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

void print_error(std::string_view message) {
  std::fflush(stdout);
  std::fprintf(stderr, "lantern: error: %s\n", without_controls(message).c_str());
}

void print_notice(std::string_view line) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", without_controls(line).c_str());
}

bool write_text(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return true;
  if (output_errno == 0) output_errno = errno;
  return false;
}

bool output_lost() { return output_errno != 0; }

Status output_status() {
  // Whoever closes a pipe has read enough.
  if (output_errno == 0 || output_errno == EPIPE) return {};
  return Error(ErrorCode::kIo, fmt::format("standard output cannot be written: {}", std::strerror(output_errno)));
}

void hold_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // The lowest that is free is the one that was missing.
    if (fcntl(descriptor, F_GETFD) < 0) open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void ignore_closed_pipes() { std::signal(SIGPIPE, SIG_IGN); }

void watch_interrupts() {
  install(SIGINT);
  install(SIGTERM);
}

bool interrupted() { return caught_signal.load() != 0; }

EndOnInterrupt::EndOnInterrupt() {
  nothing_to_end_in_order.store(true);
  if (interrupted()) end_now(caught_signal.load());
}
EndOnInterrupt::~EndOnInterrupt() { nothing_to_end_in_order.store(false); }

void clear_interrupt() {
  caught_signal.store(0);
  install(SIGINT);
}

int interrupt_exit_code() {
  const int number = caught_signal.load();
  return number == 0 ? 0 : 128 + number;
}

Progress::Progress(std::string label, int64_t total, bool quiet)
    : label_(std::move(label)), total_(std::max<int64_t>(total, 1)), quiet_(quiet), terminal_(stderr_is_terminal()) {}

Progress::~Progress() {
  if (drawn_ && terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::update(int64_t done) {
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  if (now - start_ < kPatience) return;
  const int64_t percent = std::clamp<int64_t>(done * 100 / total_, 0, 100);
  if (!terminal_) {
    if (last_percent_ >= 0 && percent / 10 == last_percent_ / 10) return;
    last_percent_ = percent;
    std::fprintf(stderr, "%s %d%%\n", label_.c_str(), static_cast<int>(percent));
    return;
  }
  if (now - last_drawn_ < kRedraw && done < total_) return;
  last_drawn_ = now;
  drawn_ = true;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double left = done > 0 ? elapsed * static_cast<double>(total_ - done) / static_cast<double>(done) : 0;
  const int filled = static_cast<int>(percent * kBarWidth / 100);
  std::fprintf(stderr, "\r\033[K%s [%s%s] %3d%% %lld/%lld, %.0f s left", label_.c_str(),
               std::string(static_cast<size_t>(filled), '#').c_str(),
               std::string(static_cast<size_t>(kBarWidth - filled), '.').c_str(), static_cast<int>(percent),
               static_cast<long long>(done), static_cast<long long>(total_), left);
}

Result<std::string> read_text(const std::string& path) {
  constexpr size_t kMostBytes = 256u << 20;  // no prompt, batch or task is as long
  return path == "-" ? read_descriptor(STDIN_FILENO, "standard input", kMostBytes) : read_file(path, kMostBytes);
}

}  // namespace lantern::cli
