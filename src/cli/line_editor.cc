#include "cli/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <iostream>

#include "cli/console.h"

namespace lantern::cli {

struct LineEditor::Terminal {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
};

namespace {

constexpr int kHistoryLines = 1000;

}  // namespace

LineEditor::LineEditor() {
  if (isatty(STDIN_FILENO) != 1 || !stdout_is_terminal()) return;
  std::setlocale(LC_CTYPE, "");  // libedit moves the cursor by characters only in a UTF-8 locale
  auto terminal = std::make_unique<Terminal>();
  terminal->editor = el_init("lantern", stdin, stdout, stderr);
  if (terminal->editor == nullptr) return;
  terminal->history = history_init();
  HistEvent event;
  history(terminal->history, &event, H_SETSIZE, kHistoryLines);
  el_set(terminal->editor, EL_CLIENTDATA, terminal.get());
  el_set(
      terminal->editor, EL_PROMPT, +[](EditLine* editor) {
        void* owner = nullptr;
        el_get(editor, EL_CLIENTDATA, &owner);
        return static_cast<Terminal*>(owner)->prompt.data();
      });
  el_set(terminal->editor, EL_EDITOR, "emacs");
  el_set(terminal->editor, EL_HIST, history, terminal->history);
  el_set(terminal->editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  terminal_ = std::move(terminal);
}

LineEditor::~LineEditor() {
  if (!terminal_) return;
  el_end(terminal_->editor);
  history_end(terminal_->history);
}

LineEditor::Line LineEditor::read(const std::string& prompt) {
  Line line;
  if (!terminal_) {
    if (!std::getline(std::cin, line.text)) line.end_of_input = true;
    line.interrupted = interrupted();
    return line;
  }
  terminal_->prompt = prompt;
  int length = 0;
  const char* text = el_gets(terminal_->editor, &length);
  if (text == nullptr || length <= 0) {
    line.interrupted = interrupted();
    line.end_of_input = !line.interrupted;
    if (line.interrupted) el_reset(terminal_->editor);
    std::fputs("\n", stdout);
    return line;
  }
  line.text.assign(text, static_cast<size_t>(length));
  while (line.text.ends_with('\n') || line.text.ends_with('\r')) line.text.pop_back();
  if (!line.text.empty()) {
    HistEvent event;
    history(terminal_->history, &event, H_ENTER, line.text.c_str());
  }
  return line;
}

}  // namespace lantern::cli
