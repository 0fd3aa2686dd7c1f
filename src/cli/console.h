// The terminal: errors, progress, dimmed text, Ctrl-C. Text goes to stdout, everything here to stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lantern::cli {

bool stdout_is_terminal();
bool stderr_is_terminal();

// "lantern: error: ..." on one line; control characters in the message are shown as '?'.
void print_error(std::string_view message);
// One line of statistics or a notice; control characters as above.
void print_notice(std::string_view line);
// Writes to stdout at once, so that a stream appears as it is made. False when nobody reads any more.
bool write_text(std::string_view text);
// Whether a write has failed: nobody sees what follows.
bool output_lost();
// Whether everything written so far has arrived. Errors: a full disk and the like; not a reader who has left.
Status output_status();

// A standard descriptor that the process was started without must not become that of a file which is opened next: its
// place is taken by one that can be used no more than a closed one.
void hold_standard_descriptors();
// A reader who has left shows in write_text() instead of ending the process.
void ignore_closed_pipes();
// The first Ctrl-C (or SIGTERM) after watch_interrupts() only raises a flag; a second one ends the process.
void watch_interrupts();
bool interrupted();
// Forgets an interrupt that was dealt with, as chat does after each turn.
void clear_interrupt();
// 128 + the signal that interrupted, or 0.
int interrupt_exit_code();
// While it lives, a signal ends the process at once with 128 + its number: a model is being loaded, which looks at no
// flag and leaves nothing behind. Unlike the default action this works for the first process of a container as well.
class EndOnInterrupt {
 public:
  EndOnInterrupt();
  ~EndOnInterrupt();
  EndOnInterrupt(const EndOnInterrupt&) = delete;
  EndOnInterrupt& operator=(const EndOnInterrupt&) = delete;
};

// A bar on a terminal, lines of "label 10%" elsewhere; nothing at all for what takes less than two seconds.
class Progress {
 public:
  Progress(std::string label, int64_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  int64_t total_;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  int64_t last_percent_ = -1;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_drawn_{};
};

// All of a file, or of standard input for "-"; at most 256 MiB. Errors name the file.
Result<std::string> read_text(const std::string& path);

}  // namespace lantern::cli
