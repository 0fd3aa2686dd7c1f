// What README.md shows is what the commands print, and it names all there is.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "process.h"

namespace lantern::test {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = LANTERN_SOURCE_DIR;

struct Example {
  std::vector<std::string> arguments;  // behind "./run"
  std::string input;                   // what was typed behind "> "
  std::string shown;
};

// At blanks, but for those in double quotes.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

// The runs that a block of README.md shows; a blank line before the next one is not its text.
std::vector<Example> examples() {
  const std::string prompt = "$ ./run ";
  std::vector<Example> all;
  std::istringstream lines(read_file(kSource / "README.md"));
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) inside = false;
    if (line.starts_with(prompt)) {
      inside = true;
      all.push_back({.arguments = words_of(line.substr(prompt.size())), .input = "", .shown = ""});
    } else if (inside && line.starts_with("> ")) {
      all.back().input += line.substr(2) + "\n";
    } else if (inside) {
      all.back().shown += line + "\n";
    }
  }
  for (Example& example : all) {
    if (example.shown.ends_with("\n\n")) example.shown.pop_back();
  }
  return all;
}

// The answers have margins: no token's likeliest alternative comes within e^2 of it, so they are those of any CPU.
TEST(ReadmeTest, TheExamplesPrintWhatItShows) {
  const fs::path before = fs::current_path();
  fs::current_path(kSource);
  int run = 0;
  for (const Example& example : examples()) {
    const std::string& command = example.arguments.front();
    const Outcome outcome = run_lantern(example.arguments, {.input = example.input});
    if (example.shown.starts_with("lantern: error: ")) {
      // What is amiss with CUDA differs between machines and builds.
      EXPECT_TRUE(outcome.exit_code == 0 || outcome.err.starts_with("lantern: error: --device cuda: ")) << outcome.err;
    } else if (example.shown.ends_with("\n...\n")) {
      EXPECT_TRUE(outcome.out.starts_with(example.shown.substr(0, example.shown.size() - 4))) << command << outcome.out;
    } else {
      EXPECT_EQ(outcome.out, example.shown) << command;
    }
    ++run;
  }
  fs::current_path(before);
  EXPECT_EQ(run, 4);
}

TEST(ReadmeTest, ItNamesEveryCommandAndDocument) {
  const std::string readme = read_file(kSource / "README.md");
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource / "docs")) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() && !name.ends_with(".md")) continue;  // pictures
    EXPECT_TRUE(readme.find(name) != std::string::npos) << "docs/" << name;
  }
  std::istringstream reference(read_file(kSource / "docs" / "cli.md"));
  const std::string heading = "## lantern ";
  int commands = 0;
  for (std::string line; std::getline(reference, line);) {
    if (!line.starts_with(heading)) continue;
    ++commands;
    EXPECT_NE(readme.find("\nlantern " + line.substr(heading.size())), std::string::npos) << line;
  }
  EXPECT_GT(commands, 15);
}

}  // namespace
}  // namespace lantern::test
