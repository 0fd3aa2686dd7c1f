// What is made from the registry of settings for other programs: the manual page and bash's completion.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "process.h"

namespace lantern::test {
namespace {

// What a shell command prints, errors too.
std::string output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  std::string text;
  std::array<char, 4096> buffer{};
  for (size_t got; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) text.append(buffer.data(), got);
  pclose(pipe);
  return text;
}

class ReferenceFilesTest : public ::testing::Test {
 protected:
  ReferenceFilesTest()
      : path_(std::filesystem::temp_directory_path() / ("lantern_reference_" + std::to_string(getpid()))) {}
  ~ReferenceFilesTest() override { std::filesystem::remove(path_); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

  // The words that bash offers for the last of `words`.
  std::string completed(const std::string& words) const {
    std::istringstream stream(words);
    int count = 0;
    for (std::string word; stream >> word;) ++count;
    if (words.ends_with(' ')) ++count;
    return output_of("bash -c 'source " + path_.string() + "; COMP_WORDS=(" + words +
                     (words.ends_with(' ') ? "\"\"" : "") + "); COMP_CWORD=" + std::to_string(count - 1) +
                     "; _lantern; echo -n \"${COMPREPLY[*]}\"'");
  }

  std::filesystem::path path_;
};

TEST_F(ReferenceFilesTest, BashCompletesCommandsFlagsAndValues) {
  const Outcome script = run_lantern({"completion", "bash"});
  ASSERT_EQ(script.exit_code, 0) << script.err;
  write(script.out);
  EXPECT_EQ(output_of("bash -n " + path_.string()), "");
  EXPECT_EQ(completed("lantern gen"), "generate");
  EXPECT_EQ(completed("lantern se"), "serve");
  EXPECT_EQ(completed("lantern bench thr"), "throughput");
  EXPECT_EQ(completed("lantern serve --max-conn"), "--max-connections");
  EXPECT_EQ(completed("lantern serve --no-acc"), "--no-access-log");
  EXPECT_EQ(completed("lantern bench throughput --requ"), "--requests --require-impl");
  EXPECT_EQ(completed("lantern generate --max-conn"), "") << "serve's alone";
  EXPECT_EQ(completed("lantern serve --log-format "), "text json");
  EXPECT_EQ(completed("lantern serve --device c"), "cpu cuda");
  EXPECT_EQ(completed("lantern serve --port "), "") << "a number is nobody's to guess";
  EXPECT_EQ(completed("lantern completion "), "bash");
  EXPECT_EQ(completed("lantern generate --model " + path_.string().substr(0, path_.string().size() - 1)),
            path_.string());
  const Outcome other = run_lantern({"completion", "tcsh"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("'tcsh'"), std::string::npos) << other.err;
}

TEST_F(ReferenceFilesTest, TheManualPageIsWellFormed) {
  const Outcome page = run_lantern({"help", "--man"});
  ASSERT_EQ(page.exit_code, 0) << page.err;
  EXPECT_EQ(page.out.find("\n\n"), std::string::npos) << "roff takes an empty line for a paragraph";
  for (const char* part : {"\n.SH LANTERN SERVE\n", "\\fB\\-\\-max\\-connections N\\fR\n", "\n.B LANTERN_API_KEY\n",
                           "\n.SH EXIT STATUS\n"}) {
    EXPECT_NE(page.out.find(part), std::string::npos) << part;
  }
  if (output_of("command -v groff").empty()) GTEST_SKIP() << "groff is not installed (apt-get install groff)";
  write(page.out);
  EXPECT_EQ(output_of("groff -man -ww -z " + path_.string()), "") << "nothing to warn of";
  const std::string text = output_of("groff -man -Tascii -P-c " + path_.string());
  EXPECT_NE(text.find("Longest request body [default 32Mi]"), std::string::npos);
}

}  // namespace
}  // namespace lantern::test
