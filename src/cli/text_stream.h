// From generated token ids to text that may be shown: whole code points only, and nothing of a stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/stop_strings.h"
#include "text/detokenizer.h"

namespace lantern::cli {

class TextStream {
 public:
  // The tokenizer must outlive this.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop, bool skip_special)
      : detokenizer_(tokenizer, skip_special), stop_(std::move(stop)) {}

  // The text that this token makes certain.
  std::string add(int32_t token) { return stop_.feed(detokenizer_.add(token)); }
  // The rest, once no token follows.
  std::string finish() { return stop_.feed(detokenizer_.flush()) + stop_.flush(); }

  bool stopped() const { return stop_.stopped(); }
  std::string_view matched() const { return stop_.matched(); }

 private:
  Detokenizer detokenizer_;
  StopStrings stop_;
};

}  // namespace lantern::cli
