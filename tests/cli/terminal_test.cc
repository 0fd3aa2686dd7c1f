// What a person at a terminal sees: line editing, Ctrl-C, progress bars.
#include "terminal.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>

#include "process.h"

namespace lantern::test {
namespace {
namespace fs = std::filesystem;

// Tokens drawn almost evenly: an answer of many lines, the same each time.
const std::vector<std::string> kLongAnswers = {"chat", "--temperature", "5", "--seed", "3"};

boost::json::array save(Terminal& terminal) {
  // Tests run at the same time, each in a process of its own.
  const fs::path file = fs::temp_directory_path() / ("lantern_terminal_test_" + std::to_string(getpid()) + ".json");
  fs::remove(file);
  terminal.type("/save " + file.string() + "\n");
  EXPECT_TRUE(terminal.shows("written to")) << terminal.screen();
  EXPECT_TRUE(terminal.shows_prompt()) << terminal.screen();
  const std::string text = read_file(file);
  fs::remove(file);
  return boost::json::parse(text).as_array();
}

std::string content(const boost::json::array& conversation, size_t index) {
  return boost::json::value_to<std::string>(conversation.at(index).at("content"));
}

TEST(ChatAtTerminal, CtrlCStopsTheAnswerAndKeepsTheConversation) {
  Terminal terminal(kLongAnswers);
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  terminal.type("Hello\n");
  ASSERT_TRUE(terminal.shows("Hello\r\n")) << terminal.screen();
  ASSERT_TRUE(terminal.shows(" ")) << "no answer begins: " << terminal.screen();
  terminal.type(Terminal::kCtrlC);
  ASSERT_TRUE(terminal.shows("(stopped)")) << terminal.screen();
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  const boost::json::array stopped = save(terminal);
  ASSERT_EQ(stopped.size(), 2u);
  EXPECT_EQ(stopped.at(1).at("role"), "assistant");
  const std::string partial = content(stopped, 1);
  EXPECT_NE(partial, "");
  // The terminal echoes the key in the midst of the answer.
  const std::string shown = std::regex_replace(terminal.screen(), std::regex("\\^C"), "");
  EXPECT_NE(shown.find(partial.substr(0, partial.find('\n'))), std::string::npos)
      << "the history holds something else than was shown: " << partial << "\n"
      << shown;

  // The next turn answers and can be stopped as well.
  terminal.type("More\n");
  ASSERT_TRUE(terminal.shows("More\r\n")) << terminal.screen();
  ASSERT_TRUE(terminal.shows(" ")) << terminal.screen();
  terminal.type(Terminal::kCtrlC);
  ASSERT_TRUE(terminal.shows("(stopped)")) << terminal.screen();
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  const boost::json::array more = save(terminal);
  ASSERT_EQ(more.size(), 4u);
  EXPECT_EQ(content(more, 1), partial);
  EXPECT_EQ(content(more, 2), "More");

  terminal.type(Terminal::kCtrlC);
  EXPECT_EQ(terminal.wait(), 130) << terminal.screen();
  EXPECT_NE(terminal.unseen().find("2 turns"), std::string::npos) << terminal.screen();
}

TEST(ChatAtTerminal, CtrlCDropsALineAndLeavesAtAnEmptyOne) {
  Terminal terminal(kLongAnswers);
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  terminal.type("/system never");
  ASSERT_TRUE(terminal.shows("/system never")) << terminal.screen();
  terminal.type(Terminal::kCtrlC);
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  EXPECT_TRUE(save(terminal).empty());
  terminal.type(Terminal::kCtrlC);
  EXPECT_EQ(terminal.wait(), 130) << terminal.screen();
}

TEST(ChatAtTerminal, CtrlDLeaves) {
  Terminal terminal(kLongAnswers);
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  terminal.type(Terminal::kCtrlD);
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
}

TEST(ChatAtTerminal, ATerminationSignalIsNoCtrlC) {
  Terminal terminal(kLongAnswers);
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  terminal.type("half a line");
  ASSERT_TRUE(terminal.shows("half a line")) << terminal.screen();
  terminal.send(SIGTERM);
  EXPECT_EQ(terminal.wait(), 128 + SIGTERM) << terminal.screen();
}

// Containers often name no locale at all.
TEST(ChatAtTerminal, LinesAreUtf8InAnyLocale) {
  Terminal terminal(kLongAnswers, {"LC_ALL=C"});
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  // Backspace takes a whole character.
  terminal.type("/system Gr\xc3\xbc\xc3\x9f \xe6\x97\xa5\xe6\x9c\xac\x7f\n");
  ASSERT_TRUE(terminal.shows("\n")) << terminal.screen();
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  const boost::json::array conversation = save(terminal);
  ASSERT_EQ(conversation.size(), 1u);
  EXPECT_EQ(content(conversation, 0), "Gr\xc3\xbc\xc3\x9f \xe6\x97\xa5");
}

// A model that works on a prompt for many seconds: the shipped one with a longer context, and a prompt that fills it.
class LongWorkAtTerminal : public testing::Test {
 protected:
  LongWorkAtTerminal() {
    model_.replace("config.json", "\"max_position_embeddings\": 2048", "\"max_position_embeddings\": 24000");
    for (int i = 0; i < kTokens; ++i) {
      ids_ += std::to_string(300 + i % 1000) + " ";
      if (i % 2 == 0) words_ += "apple ";  // two tokens
    }
  }

  using Clock = std::chrono::steady_clock;

  // A bar of that label appears, and not before two seconds. `start`: before the work could begin.
  static void expect_bar(Terminal& terminal, const std::string& label, Clock::time_point start) {
    ASSERT_TRUE(terminal.shows("\r\033[K" + label + " [")) << terminal.screen();
    EXPECT_GE(Clock::now() - start, std::chrono::seconds(2)) << terminal.screen();
    ASSERT_TRUE(terminal.shows("s left")) << terminal.screen();
  }

  static constexpr int kTokens = 20000;
  ModelCopy model_;
  std::string ids_;
  std::string words_;
};

TEST_F(LongWorkAtTerminal, GenerateShowsABarAndStopsWithinThePrompt) {
  const auto start = Clock::now();
  Terminal terminal({"generate", "--model", model_.path(), "--tokens", ids_, "--max-tokens", "1"});
  expect_bar(terminal, "prompt", start);
  terminal.type(Terminal::kCtrlC);
  EXPECT_EQ(terminal.wait(), 130) << terminal.screen();
  EXPECT_NE(terminal.screen().find("\r\033[K\r\nprompt 20000"), std::string::npos)
      << "the bar goes first: " << terminal.screen();
  EXPECT_NE(terminal.unseen().find("output 0 tokens, -; finished by cancelled"), std::string::npos)
      << terminal.screen();
}

// Nobody sees an answer grow that is printed as one object.
TEST_F(LongWorkAtTerminal, AnAnswerAsJsonShowsABar) {
  const auto start = Clock::now();
  Terminal terminal({"generate", "--model", model_.path(), "--prompt", "apple", "--ignore-eos", "--json"});
  expect_bar(terminal, "answer", start);
  terminal.type(Terminal::kCtrlC);
  EXPECT_EQ(terminal.wait(), 130) << terminal.screen();
  EXPECT_NE(terminal.unseen().find("\"finish_reason\": \"cancelled\""), std::string::npos) << terminal.screen();
}

TEST_F(LongWorkAtTerminal, ScoreShowsABarAndStopsWithoutHalfAResult) {
  const auto start = Clock::now();
  Terminal terminal({"score", "--model", model_.path(), "--tokens", ids_});
  expect_bar(terminal, "score", start);
  terminal.type(Terminal::kCtrlC);
  EXPECT_EQ(terminal.wait(), 130) << terminal.screen();
  EXPECT_EQ(terminal.screen().find("perplexity"), std::string::npos) << terminal.screen();
}

TEST_F(LongWorkAtTerminal, ChatShowsABarAndTakesAMessageBackThatNothingAnswered) {
  Terminal terminal({"chat", "--model", model_.path(), "--system", words_});
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  const auto start = Clock::now();
  terminal.type("Hello\n");
  expect_bar(terminal, "prompt", start);
  terminal.type(Terminal::kCtrlC);
  ASSERT_TRUE(terminal.shows("(stopped before the answer began; the message is taken back)")) << terminal.screen();
  ASSERT_TRUE(terminal.shows_prompt()) << terminal.screen();
  EXPECT_EQ(save(terminal).size(), 1u) << "the system message alone";
}

TEST_F(LongWorkAtTerminal, EvalShowsABarAndStops) {
  const fs::path task = fs::path(model_.path()) / "task.jsonl";
  std::ofstream file(task);
  for (int i = 0; i < 1000; ++i) {
    file << R"({"prompt": "apple", "answer": "x", "extract": "", "max_tokens": 50})" << "\n";
  }
  file.close();
  const auto start = Clock::now();
  Terminal terminal({"eval", task.string(), "--json"});
  expect_bar(terminal, "task", start);
  terminal.type(Terminal::kCtrlC);
  EXPECT_EQ(terminal.wait(), 130) << terminal.screen();
}

TEST(ShortWorkAtTerminal, ShowsNoBar) {
  Terminal terminal({"generate", "--prompt", "apple", "--max-tokens", "4", "--temperature", "0", "--json"});
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
  const std::string& screen = terminal.screen();
  const size_t object = screen.find('{');
  ASSERT_NE(object, std::string::npos) << screen;
  const boost::json::value json = boost::json::parse(screen.substr(object, screen.find('}') - object + 1));
  for (const char* part : {"prefill_seconds", "decode_seconds"}) {
    if (json.at(part).to_number<double>() > 1.5) GTEST_SKIP() << "this machine is too loaded for short work";
  }
  EXPECT_EQ(screen.find(" left"), std::string::npos) << screen;
}

}  // namespace
}  // namespace lantern::test
