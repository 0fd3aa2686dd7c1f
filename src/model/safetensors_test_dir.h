// Directories for tests: one a process and name, so that tests may run side by side, and gone at exit.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace lantern {

inline std::filesystem::path fresh_dir(const std::string& name) {
  struct Made {
    std::vector<std::filesystem::path> dirs;
    ~Made() {
      std::error_code ignored;
      for (const std::filesystem::path& dir : dirs) std::filesystem::remove_all(dir, ignored);
    }
  };
  static Made made;
  const std::filesystem::path dir =
      std::filesystem::path(::testing::TempDir()) / fmt::format("lantern_model_{}_{}", ::getpid(), name);
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  made.dirs.push_back(dir);
  return dir;
}

}  // namespace lantern
