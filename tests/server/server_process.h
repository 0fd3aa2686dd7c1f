// `lantern serve` in a process of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "socket_client.h"

namespace lantern::test {

class ServerProcess {
 public:
  // Waits until it listens, if `waits`. Beside `arguments`: a free port, the shipped model, one thread. `program` is
  // what stands before "serve".
  explicit ServerProcess(const std::vector<std::string>& arguments = {}, bool waits = true,
                         const std::vector<std::string>& environment = {},
                         const std::vector<std::string>& program = {LANTERN_EXECUTABLE});
  ~ServerProcess();  // kills it
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  uint16_t port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  void signal(int number) const;
  // How many files it may have open from now on.
  void limit_descriptors(uint64_t most) const;
  int64_t open_descriptors() const;
  uint64_t most_descriptors() const;
  pid_t process() const { return process_; }
  // What it ends with, 128 + n by signal n; -1 where it does not end in time.
  int wait_for_end(std::chrono::milliseconds time = kPatience);
  const std::string& out();
  const std::string& err();

 private:
  void read_output(std::chrono::milliseconds time);

  pid_t process_ = -1;
  int out_ = -1;
  int err_ = -1;
  uint16_t port_ = 0;
  std::string out_text_;
  std::string err_text_;
};

}  // namespace lantern::test
