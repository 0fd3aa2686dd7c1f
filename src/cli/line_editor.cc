#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <iostream>
#include <string_view>

#include "cli/console.h"

namespace lantern::cli {

struct LineEditor::Terminal {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
};

namespace {

constexpr int kHistoryLines = 1000;

// Text here is UTF-8 whatever the environment says; libedit reads and measures characters by the locale.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

// libedit's own reader takes up reading again after a signal; this one returns, so that a signal ends the line.
int read_character(EditLine* /*editor*/, wchar_t* character) {
  std::mbstate_t state{};
  while (!interrupted()) {
    char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return static_cast<int>(got);
    const size_t length = std::mbrtowc(character, &byte, 1, &state);
    if (length == static_cast<size_t>(-1)) state = {};  // not UTF-8: left out
    if (length <= 1) return 1;
  }
  return -1;
}

}  // namespace

LineEditor::LineEditor() {
  if (isatty(STDIN_FILENO) != 1 || !stdout_is_terminal()) return;
  use_utf8();
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
  el_set(terminal->editor, EL_GETCFN, &read_character);
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
    const bool read = static_cast<bool>(std::getline(std::cin, line.text));
    line.interrupted = interrupted();
    line.end_of_input = !read && !line.interrupted;
    return line;
  }
  terminal_->prompt = prompt;
  int length = 0;
  const char* text = el_gets(terminal_->editor, &length);
  if (text == nullptr || length <= 0) {
    line.interrupted = interrupted();
    line.end_of_input = !line.interrupted;
    if (line.interrupted) {
      const LineInfo* typed = el_line(terminal_->editor);
      line.text.assign(typed->buffer, typed->lastchar);
      el_reset(terminal_->editor);
    }
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
