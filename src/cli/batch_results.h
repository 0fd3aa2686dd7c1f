// The file that `run-batch` writes: one JSON line for each request that is through. It is only ever added to, so that a
// run which was cut off, however it ended, goes on where it was.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/result.h"

namespace lantern::cli {

class BatchResults {
 public:
  // Opens or makes the file and reads what is in it. A last line that was not written whole is cut off. Nobody else may
  // write the file meanwhile: a second run on it is an error. Errors: the file cannot be opened or is in use; a line
  // that is no result, which says that this is another file.
  static Result<BatchResults> open(const std::string& path);
  BatchResults(BatchResults&& other) noexcept;
  BatchResults& operator=(BatchResults&&) = delete;
  ~BatchResults();

  // Whether a result with this custom_id, or with this id, was in the file.
  bool has_custom_id(const std::string& custom_id) const { return custom_ids_.contains(custom_id); }
  bool has_id(const std::string& id) const { return ids_.contains(id); }
  size_t size() const { return size_; }
  // Whether such a result was no error.
  bool has_answer(const std::string& id, const std::string& custom_id) const {
    return answered_.contains(id) || answered_.contains(custom_id);
  }

  // Adds one result, a line without its end, in one write: the system has it when this returns. Every second it goes to
  // the disk as well, and with sync().
  Status add(std::string_view line);
  Status sync();

 private:
  BatchResults(std::string path, int file) : path_(std::move(path)), file_(file) {}
  Status read();
  Status read_line(std::string_view line, int64_t number);
  Status fail(std::string_view what) const;

  std::string path_;
  int file_;
  size_t size_ = 0;
  std::unordered_set<std::string> custom_ids_;
  std::unordered_set<std::string> ids_;
  std::unordered_set<std::string> answered_;  // of both kinds
  bool unsynced_ = false;
  std::chrono::steady_clock::time_point last_sync_ = std::chrono::steady_clock::now();
};

}  // namespace lantern::cli
