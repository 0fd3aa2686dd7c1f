#include "process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/check.h"

namespace lantern::test {
namespace fs = std::filesystem;
namespace {

struct Pipe {
  int read = -1;
  int write = -1;

  Pipe() {
    std::array<int, 2> ends{};
    CHECK(pipe(ends.data()) == 0, "no pipe");
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  static void close_end(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
};

[[noreturn]] void become_lantern(const std::vector<std::string>& arguments, const RunOptions& options, Pipe& in,
                                 Pipe& out, Pipe& err) {
  dup2(in.read, STDIN_FILENO);
  const int output = options.output_path.empty() ? out.write : open(options.output_path.c_str(), O_WRONLY);
  CHECK(output >= 0, "{} cannot be opened", options.output_path);
  dup2(output, STDOUT_FILENO);
  if (options.most_memory_bytes > 0) {
    const rlimit limit{options.most_memory_bytes, options.most_memory_bytes};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "no limit of memory");
  }
  dup2(err.write, STDERR_FILENO);
  for (Pipe* pipe : {&in, &out, &err}) {
    Pipe::close_end(pipe->read);
    Pipe::close_end(pipe->write);
  }
  if (options.close_standard_output) close(STDOUT_FILENO);
  execute_lantern(arguments, options.environment);
}

// False at the end of the stream.
bool read_some(int fd, std::string& into) {
  std::array<char, 4096> buffer{};
  const ssize_t got = read(fd, buffer.data(), buffer.size());
  if (got > 0) into.append(buffer.data(), static_cast<size_t>(got));
  return got > 0;
}

}  // namespace

void execute_lantern(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  // Tests run side by side, one for each core: none may take all of the cores, or half of the memory for its caches.
  setenv("LANTERN_THREADS", "2", 0);
  setenv("LANTERN_KV_CACHE_MEMORY", "192Mi", 0);
  for (const std::string& variable : environment) {
    const size_t equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  std::vector<char*> argv;
  std::string program = LANTERN_EXECUTABLE;
  argv.push_back(program.data());
  std::vector<std::string> copies = arguments;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  _exit(127);
}

Outcome run_lantern(const std::vector<std::string>& arguments, const RunOptions& options) {
  Pipe in;
  Pipe out;
  Pipe err;
  const pid_t child = fork();
  CHECK(child >= 0, "no process");
  if (child == 0) become_lantern(arguments, options, in, out, err);
  Pipe::close_end(in.read);
  Pipe::close_end(out.write);
  Pipe::close_end(err.write);
  // Inputs here are far smaller than a pipe's buffer.
  EXPECT_EQ(write(in.write, options.input.data(), options.input.size()), static_cast<ssize_t>(options.input.size()));
  Pipe::close_end(in.write);

  Outcome outcome;
  bool interrupt_sent = false;
  while (out.read >= 0 || err.read >= 0) {
    std::array<pollfd, 2> streams = {pollfd{out.read, POLLIN, 0}, pollfd{err.read, POLLIN, 0}};
    if (poll(streams.data(), streams.size(), -1) < 0) break;
    if (streams[0].revents != 0 && !read_some(out.read, outcome.out)) Pipe::close_end(out.read);
    if (streams[1].revents != 0 && !read_some(err.read, outcome.err)) Pipe::close_end(err.read);
    if (options.close_output_after_first_byte && !outcome.out.empty()) Pipe::close_end(out.read);
    if (options.interrupt_after_output_bytes >= 0 && !interrupt_sent &&
        static_cast<int>(outcome.out.size()) >= options.interrupt_after_output_bytes) {
      kill(child, SIGINT);
      interrupt_sent = true;
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

fs::path tiny_model() { return fs::path(LANTERN_SOURCE_DIR) / "models" / "tiny"; }

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.is_open(), "{} cannot be read", path.string());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

ModelCopy::ModelCopy() {
  std::string name = (fs::temp_directory_path() / "lantern_test_XXXXXX").string();
  CHECK(mkdtemp(name.data()) != nullptr, "no temporary folder");
  dir_ = name;
  for (const fs::directory_entry& entry : fs::directory_iterator(tiny_model())) {
    if (entry.is_regular_file()) fs::create_symlink(entry.path(), dir_ / entry.path().filename());
  }
}

ModelCopy::~ModelCopy() {
  std::error_code ignored;
  fs::remove_all(dir_, ignored);
}

std::vector<std::string> ModelCopy::shards() const {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir_)) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  CHECK(!names.empty(), "the shipped model has no shards");
  return names;
}

std::string ModelCopy::read(const std::string& name) const { return read_file(dir_ / name); }

void ModelCopy::write(const std::string& name, const std::string& content) {
  fs::remove(dir_ / name);  // the link, not what it points to
  std::ofstream file(dir_ / name, std::ios::binary);
  file << content;
  CHECK(file.good(), "{} cannot be written", name);
}

void ModelCopy::edit(const std::string& name, const std::function<void(std::string&)>& change) {
  std::string content = read(name);
  change(content);
  write(name, content);
}

void ModelCopy::replace(const std::string& name, const std::string& from, const std::string& to) {
  edit(name, [&](std::string& content) {
    const size_t at = content.find(from);
    ASSERT_NE(at, std::string::npos) << name << " has no " << from;
    ASSERT_EQ(content.find(from, at + 1), std::string::npos) << name << " has " << from << " twice";
    content.replace(at, from.size(), to);
  });
}

void ModelCopy::make_nan(const std::string& tensor) {
  for (const std::string& shard : shards()) {
    const std::string bytes = read(shard);
    const size_t entry = bytes.find("\"" + tensor + "\":");
    if (entry == std::string::npos) continue;
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
    const std::string_view key = "data_offsets\":[";
    const size_t offsets = bytes.find(key, entry) + key.size();
    const size_t begin = std::stoul(bytes.substr(offsets, 20));
    const size_t end = std::stoul(bytes.substr(bytes.find(',', offsets) + 1, 20));
    edit(shard, [&](std::string& text) { text.replace(8 + header_bytes + begin, end - begin, end - begin, '\xff'); });
    return;
  }
  CHECK(false, "no shard holds {}", tensor);
}

void ModelCopy::remove(const std::string& name) { CHECK(fs::remove(dir_ / name), "{} is not there", name); }

}  // namespace lantern::test
