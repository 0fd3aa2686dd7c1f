#include "base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace lantern {
namespace {

std::filesystem::path file_of(const std::string& text) {
  const auto path = std::filesystem::temp_directory_path() / ("lantern_file_test_" + std::to_string(::getpid()));
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

void expect_error(const Result<std::string>& read, ErrorCode code, const std::string& needle) {
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code(), code) << read.error().message();
  EXPECT_NE(read.error().message().find(needle), std::string::npos) << read.error().message();
}

TEST(ReadFile, GivesEveryByte) {
  for (const size_t size : {0u, 1u, 4095u, (1u << 20) - 1, 1u << 20, (1u << 20) + 1, 5u << 20}) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
    const auto path = file_of(text);
    const Result<std::string> read = read_file(path, 5u << 20);
    ASSERT_TRUE(read.ok()) << read.error().message();
    EXPECT_EQ(*read, text) << size;
    std::filesystem::remove(path);
  }
}

TEST(ReadFile, RefusesMoreThanAllowed) {
  const auto path = file_of("12345");
  EXPECT_TRUE(read_file(path, 5).ok());
  expect_error(read_file(path, 4), ErrorCode::kUnsupported, path.string());
  std::filesystem::remove(path);
  expect_error(read_file("/dev/zero", 1 << 20), ErrorCode::kUnsupported, "/dev/zero");
}

TEST(ReadFile, NamesTheFileAndTheReason) {
  expect_error(read_file("/nonexistent/file", 10), ErrorCode::kNotFound, "/nonexistent/file cannot be opened: No such");
  expect_error(read_file("/", 10), ErrorCode::kIo, "/ cannot be read: Is a directory");
}

TEST(ReadFile, ReadsAPipeToItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "hello", 5), 5);
  ::close(ends[1]);
  const Result<std::string> read = read_descriptor(ends[0], "a pipe", 10);
  ::close(ends[0]);
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(*read, "hello");
}

}  // namespace
}  // namespace lantern
