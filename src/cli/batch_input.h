// The lines of an OpenAI batch file: https://platform.openai.com/docs/guides/batch
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "server/openai_request.h"

namespace lantern::cli {

struct BatchLine {
  int64_t number = 0;     // from 1
  std::string id;         // of its result; the same in every run on the same file
  std::string custom_id;  // empty where the line has none
  OpenAiEndpoint endpoint = OpenAiEndpoint::kCompletions;
  std::string body;             // the text of a JSON object
  std::string fault_code = {};  // what is wrong with the line, else empty
  std::string fault = {};       // one sentence
};

class BatchInput {
 public:
  // `path` may be "-". Errors: it cannot be read.
  static Result<BatchInput> open(const std::string& path);

  int64_t num_lines() const { return num_lines_; }  // empty ones left out
  // The next line that is not empty, faulty ones included; nothing at the end. A custom_id that an earlier line has is
  // a fault.
  std::optional<BatchLine> next();

 private:
  BatchInput() = default;
  void read(std::string_view text, BatchLine& line);

  std::ifstream file_;
  std::istringstream standard_input_;
  bool is_file_ = false;
  int64_t num_lines_ = 0;
  int64_t number_ = 0;
  std::unordered_map<std::string, int64_t> lines_;  // of the custom_ids that came
};

}  // namespace lantern::cli
