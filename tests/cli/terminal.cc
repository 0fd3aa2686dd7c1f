#include "terminal.h"

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/check.h"
#include "process.h"

namespace lantern::test {
namespace {

// Far more than anything here takes, on a loaded machine and under sanitizers too.
constexpr auto kPatience = std::chrono::seconds(120);

}  // namespace

Terminal::Terminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  winsize size{.ws_row = 24, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
  child_ = forkpty(&terminal_, nullptr, nullptr, &size);
  CHECK(child_ >= 0, "no pseudo-terminal");
  if (child_ == 0) execute_lantern(arguments, environment);
}

Terminal::~Terminal() {
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  close(terminal_);
}

void Terminal::type(std::string_view keys) {
  CHECK(write(terminal_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()), "the terminal takes no keys");
}

void Terminal::send(int signal) { kill(child_, signal); }

bool Terminal::read_more(std::chrono::steady_clock::time_point until) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
  pollfd stream{terminal_, POLLIN, 0};
  if (left <= 0 || poll(&stream, 1, static_cast<int>(left)) <= 0) return false;
  std::array<char, 4096> buffer{};
  const ssize_t got = read(terminal_, buffer.data(), buffer.size());  // an error once the process has gone
  if (got > 0) screen_.append(buffer.data(), static_cast<size_t>(got));
  return got > 0;
}

bool Terminal::shows(std::string_view text) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    if (const size_t at = screen_.find(text, seen_); at != std::string::npos) {
      seen_ = at + text.size();
      return true;
    }
    if (!read_more(until)) return false;
  }
}

bool Terminal::shows_prompt() {
  if (!shows("> ")) return false;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  termios mode{};
  while (tcgetattr(terminal_, &mode) == 0 && (mode.c_lflag & ICANON) != 0) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

int Terminal::wait() {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (read_more(until)) {
  }
  if (std::chrono::steady_clock::now() >= until) return -1;
  int status = 0;
  waitpid(child_, &status, 0);
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace lantern::test
