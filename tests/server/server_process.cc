#include "server_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>

#include "base/check.h"

namespace lantern::test {

ServerProcess::ServerProcess(const std::vector<std::string>& arguments, bool waits,
                             const std::vector<std::string>& environment, const std::vector<std::string>& program) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  CHECK(pipe(out.data()) == 0 && pipe(err.data()) == 0, "no pipe");
  process_ = fork();
  CHECK(process_ >= 0, "no process");
  if (process_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    for (const int end : {out[0], out[1], err[0], err[1]}) ::close(end);
    for (const std::string& variable : environment) {
      const size_t equals = variable.find('=');
      setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
    const std::string model = std::string(LANTERN_SOURCE_DIR) + "/models/tiny";
    std::vector<std::string> all = program;
    all.insert(all.end(), {"serve", model});
    for (const auto& [flag, value] : {std::pair("--port", "0"), {"--threads", "1"}, {"--kv-cache-memory", "64Mi"}}) {
      if (std::ranges::find(arguments, flag) == arguments.end()) all.insert(all.end(), {flag, value});
    }
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    argv.reserve(all.size() + 1);
    for (std::string& argument : all) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  out_ = out[0];
  err_ = err[0];
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (waits && std::chrono::steady_clock::now() < until) {
    read_output(std::chrono::milliseconds(50));
    const size_t at = out_text_.find("listens on");
    if (at == std::string::npos || out_text_.find("\ncurl ", at) == std::string::npos) continue;
    if (out_text_.back() != '\n') continue;
    port_ = static_cast<uint16_t>(std::stoi(out_text_.substr(out_text_.find(':', out_text_.find("//", at)) + 1)));
    return;
  }
  EXPECT_FALSE(waits) << "it does not listen: " << out_text_ << err_text_;
}

ServerProcess::~ServerProcess() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  for (size_t before = err_text_.size() + 1; before != err_text_.size();) {
    before = err_text_.size();
    read_output(std::chrono::milliseconds(0));
  }
  for (const char* report : {"Sanitizer", "runtime error: "}) {
    if (err_text_.find(report) != std::string::npos) ADD_FAILURE() << err_text_;
  }
  ::close(out_);
  ::close(err_);
}

void ServerProcess::signal(int number) const {
  if (process_ > 0) kill(process_, number);
}

void ServerProcess::limit_descriptors(uint64_t most) const {
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  EXPECT_EQ(prlimit(process_, RLIMIT_NOFILE, &limit, nullptr), 0);
}

uint64_t ServerProcess::most_descriptors() const {
  rlimit limit{};
  EXPECT_EQ(prlimit(process_, RLIMIT_NOFILE, nullptr, &limit), 0);
  return limit.rlim_cur;
}

int64_t ServerProcess::open_descriptors() const {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(process_) + "/fd");
  return std::distance(begin(all), end(all));
}

void ServerProcess::read_output(std::chrono::milliseconds time) {
  std::array<pollfd, 2> of = {pollfd{.fd = out_, .events = POLLIN, .revents = 0},
                              pollfd{.fd = err_, .events = POLLIN, .revents = 0}};
  poll(of.data(), of.size(), static_cast<int>(time.count()));
  for (size_t i = 0; i < of.size(); ++i) {
    if ((of[i].revents & POLLIN) == 0) continue;
    std::array<char, 8192> bytes{};
    const ssize_t got = read(of[i].fd, bytes.data(), bytes.size());
    if (got > 0) (i == 0 ? out_text_ : err_text_).append(bytes.data(), static_cast<size_t>(got));
  }
}

int ServerProcess::wait_for_end(std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) {
    read_output(std::chrono::milliseconds(10));
    int status = 0;
    if (waitpid(process_, &status, WNOHANG) != process_) continue;
    process_ = -1;
    read_output(std::chrono::milliseconds(0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return -1;
}

const std::string& ServerProcess::out() {
  read_output(std::chrono::milliseconds(0));
  return out_text_;
}
const std::string& ServerProcess::err() {
  read_output(std::chrono::milliseconds(0));
  return err_text_;
}

}  // namespace lantern::test
