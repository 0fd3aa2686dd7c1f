// One line at a time from the user: with editing and history on a terminal, plain reading elsewhere.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace lantern::cli {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  struct Line {
    std::string text;  // without the newline
    bool end_of_input = false;
    bool interrupted = false;  // a signal came while the line was written; `text` is what there was of it
  };
  // Whether there is someone to edit lines; false when standard input or output is no terminal.
  bool interactive() const { return terminal_ != nullptr; }
  // Shows `prompt` on a terminal only.
  Line read(const std::string& prompt);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;  // null when not interactive
};

}  // namespace lantern::cli
