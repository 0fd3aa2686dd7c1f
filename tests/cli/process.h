// Runs `lantern` in a process of its own, and makes copies of the shipped model to damage.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lantern::test {

struct Outcome {
  int exit_code = 0;  // 128 + n when signal n ended the process
  std::string out;
  std::string err;
};

struct RunOptions {
  std::string input = {};                 // standard input
  int interrupt_after_output_bytes = -1;  // send SIGINT once that much text was written
  bool close_output_after_first_byte = false;
  bool close_standard_output = false;         // it starts without one
  std::vector<std::string> environment = {};  // NAME=value, beside the caller's
  std::string output_path = {};               // where standard output goes, instead of into the outcome
  size_t most_memory_bytes = 0;               // of address space; 0: as much as there is
};
Outcome run_lantern(const std::vector<std::string>& arguments, const RunOptions& options = {});
// Replaces the calling process by `lantern`; environment: NAME=value, beside the process's own.
[[noreturn]] void execute_lantern(const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& environment);

// models/tiny of the checkout.
std::filesystem::path tiny_model();

// A copy of the shipped model that lives as long as the object. Files are links until they are rewritten.
class ModelCopy {
 public:
  ModelCopy();
  ~ModelCopy();
  ModelCopy(const ModelCopy&) = delete;
  ModelCopy& operator=(const ModelCopy&) = delete;

  std::string path() const { return dir_.string(); }
  std::vector<std::string> shards() const;  // file names
  std::string read(const std::string& name) const;
  void write(const std::string& name, const std::string& content);
  void edit(const std::string& name, const std::function<void(std::string&)>& change);
  // Replaces the only occurrence of `from`; a test failure otherwise.
  void replace(const std::string& name, const std::string& from, const std::string& to);
  void remove(const std::string& name);
  // Makes every value of a tensor of bf16 NaN.
  void make_nan(const std::string& tensor);

 private:
  std::filesystem::path dir_;
};

std::string read_file(const std::filesystem::path& path);

}  // namespace lantern::test
