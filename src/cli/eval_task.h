// Evaluation tasks: a JSONL file of prompts and answers, and how an answer is read off a completion.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lantern::cli {

// A Perl-compatible regular expression; its last match in a completion gives the answer.
class AnswerPattern {
 public:
  // Errors: the expression does not compile.
  static Result<AnswerPattern> compile(const std::string& expression);
  AnswerPattern(AnswerPattern&&) noexcept;
  AnswerPattern& operator=(AnswerPattern&&) noexcept;
  ~AnswerPattern();

  // Group 1 of the last match, or the whole match where the expression has no group; empty without a match. Errors: the
  // text takes the matcher beyond its limits.
  Result<std::string> last_match(std::string_view text) const;

 private:
  struct Impl;
  explicit AnswerPattern(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

struct EvalItem {
  std::string id;      // a string, or whatever else it is as JSON
  std::string prompt;  // special tokens in it are recognised
  std::string answer;
  std::string extract;  // an AnswerPattern; empty: the whole completion is the answer
  int32_t max_tokens = 0;
  std::vector<std::string> stop;
};

// One object per line: id, prompt, answer, extract, max_tokens, stop; other members are ignored. Errors name the line.
Result<std::vector<EvalItem>> load_eval_task(const std::filesystem::path& path);
Result<EvalItem> parse_eval_item(std::string_view line);

// The answer in a completion, without white space around it.
Result<std::string> extract_answer(const EvalItem& item, std::string_view completion);
std::string_view strip(std::string_view text);

}  // namespace lantern::cli
