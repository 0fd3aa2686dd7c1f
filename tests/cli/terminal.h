// Runs `lantern` at a pseudo-terminal, as a person in front of one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace lantern::test {

class Terminal {
 public:
  // Standard input, output and error are all the terminal. `environment`: NAME=value, beside the caller's.
  explicit Terminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});
  // Ends the process if it still runs.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  static constexpr char kCtrlC = '\x03';
  static constexpr char kCtrlD = '\x04';
  void type(std::string_view keys);
  void type(char key) { type(std::string_view(&key, 1)); }
  void send(int signal);

  // Waits until `text` has been shown after everything that earlier calls found. False: it never was, or the process
  // ended without it.
  bool shows(std::string_view text);
  // Waits for "> ", and until keys reach the line editor: before that the terminal itself would echo and collect them.
  bool shows_prompt();
  // Waits for the end. The exit code, 128 + n when signal n ended the process, -1 when it does not end.
  int wait();
  // Everything shown so far, control sequences included.
  const std::string& screen() const { return screen_; }
  // What shows() has not passed yet.
  std::string unseen() const { return screen_.substr(seen_); }

 private:
  // False at the end of the stream or of the patience.
  bool read_more(std::chrono::steady_clock::time_point until);

  int terminal_ = -1;
  pid_t child_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

}  // namespace lantern::test
