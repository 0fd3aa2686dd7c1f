// A server, watched: what it says of itself, again and again.
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/server_access.h"
#include "cli/server_view.h"

namespace lantern::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kWindow = std::chrono::seconds(60);  // of shares and percentiles
constexpr size_t kMostRates = 200;
constexpr int kWidth = 120;  // of lines that go nowhere in particular

// Whether `file` (-1: none) can be read before `until`. A signal ends the wait, within a moment also where it comes
// just before a poll().
bool readable(int file, Clock::time_point until) {
  constexpr int64_t kLook = 100;  // milliseconds
  while (!interrupted()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    pollfd of{.fd = file, .events = POLLIN, .revents = 0};
    if (poll(&of, 1, static_cast<int>(std::min(left, kLook))) > 0) return true;
  }
  return false;
}

// Keys come as they are struck, without an echo, for as long as this lives.
class Keys {
 public:
  Keys() {
    if (isatty(STDIN_FILENO) != 1 || tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    changed_ = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
  }
  ~Keys() {
    if (changed_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  // Waits until `until`, a key or a signal; 0 where there was no key.
  char wait(Clock::time_point until) const {
    if (!readable(changed_ ? STDIN_FILENO : -1, until)) return 0;
    char key = 0;
    return read(STDIN_FILENO, &key, 1) == 1 ? key : 'q';
  }

 private:
  termios before_{};
  bool changed_ = false;
};

// The terminal's second screen, which leaves the first as it was.
class Screen {
 public:
  Screen() { write_text("\033[?1049h\033[?25l"); }
  ~Screen() { write_text("\033[?25h\033[?1049l"); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void draw(const std::vector<std::string>& lines) {
    std::string text = "\033[H";
    for (const std::string& line : lines) text += line + "\033[K\r\n";
    write_text(text + "\033[J");
  }
  static int width() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kWidth;
  }
};

class Watch {
 public:
  explicit Watch(ServerAccess server) : server_(std::move(server)) {}

  // The first look shows nothing yet. Errors: no answer.
  Status look() {
    Result<MetricsSnapshot> now = server_.metrics();
    if (!now.ok()) {
      looks_.clear();  // what comes next may be another server
      return std::move(now).error();
    }
    looks_.push_back({.time = Clock::now(), .said = std::move(*now)});
    while (looks_.size() > 2 && looks_[1].time <= looks_.back().time - kWindow) looks_.pop_front();
    if (looks_.size() >= 2) rates_.push_back(view(false).generation_rate);
    if (rates_.size() > kMostRates) rates_.erase(rates_.begin());
    return {};
  }
  bool ready() const { return looks_.size() >= 2; }
  // `all`: shares and percentiles of all that the server counted, instead of the last minute.
  ServerView view(bool all) const {
    const Look& now = looks_.back();
    const Look& last = looks_[looks_.size() - 2];
    return server_view(all ? MetricsSnapshot() : looks_.front().said, last.said, now.said,
                       std::chrono::duration<double>(now.time - last.time).count());
  }
  const std::string& url() const { return server_.url(); }
  const std::vector<double>& rates() const { return rates_; }

 private:
  struct Look {
    Clock::time_point time;
    MetricsSnapshot said;
  };
  ServerAccess server_;
  std::deque<Look> looks_;
  std::vector<double> rates_;
};

void print(const Watch& watch, const ServerView& view, bool json) {
  if (json) {
    write_text(view_json(view, watch.url()) + "\n");
    return;
  }
  std::string text;
  for (const std::string& line : view_lines(view, watch.url(), watch.rates(), kWidth)) text += line + "\n";
  write_text(text);
}

// For scripts: one view, or one after the other.
Result<int> print_views(Watch& watch, std::chrono::duration<double> interval, bool once, bool json) {
  const auto pause = std::chrono::duration_cast<Clock::duration>(interval);
  RETURN_IF_ERROR(watch.look());
  while (!output_lost()) {
    readable(-1, Clock::now() + pause);
    if (interrupted()) break;
    RETURN_IF_ERROR(watch.look());
    print(watch, watch.view(once), json);
    if (once) return static_cast<int>(kSuccess);
    if (!json) write_text("\n");
  }
  return interrupt_exit_code();
}

void watch_on_screen(Watch& watch, std::chrono::duration<double> interval) {
  const Keys keys;
  Screen screen;
  std::vector<std::string> lines = {fmt::format("lantern top   {}", watch.url())};
  while (!interrupted() && !output_lost()) {
    const Clock::time_point next = Clock::now() + std::chrono::duration_cast<Clock::duration>(interval);
    if (const Status looked = watch.look(); !looked.ok()) {
      lines = {fmt::format("lantern top   {}", watch.url()), "", looked.error().message()};
    } else if (watch.ready()) {
      lines = view_lines(watch.view(false), watch.url(), watch.rates(), Screen::width());
    }
    std::vector<std::string> shown = lines;
    shown.insert(shown.end(), {"", "rates of the last interval; shares and percentiles of the last minute; q ends"});
    screen.draw(shown);
    if (const char key = keys.wait(next); key == 'q' || key == 'Q') return;
  }
}

}  // namespace

Result<int> run_top(const Values& values) {
  ASSIGN_OR_RETURN(ServerAccess server, ServerAccess::open(values));
  Watch watch(std::move(server));
  const std::chrono::duration<double> interval(values.real("interval"));
  const bool once = values.is_on("once");
  const bool json = values.is_on("json");
  if (once || json || !stdout_is_terminal()) return print_views(watch, interval, once, json);
  watch_on_screen(watch, interval);
  return interrupted() ? interrupt_exit_code() : static_cast<int>(kSuccess);
}

}  // namespace lantern::cli
