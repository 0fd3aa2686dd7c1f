#include "cli/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace lantern::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

class Parser {
 public:
  Result<std::vector<ConfigEntry>> parse(std::string_view text) {
    while (!text.empty() && !failure_) {
      const size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      read_line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    end_list();
    if (failure_) return *std::move(failure_);
    return std::move(entries_);
  }

 private:
  void fail(int line, std::string_view what) {
    if (!failure_) failure_ = Error(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", line, what));
  }

  void read_line(std::string_view line) {
    const std::string_view rest = trimmed(line);
    if (rest.empty() || rest[0] == '#' || rest == "---") return;
    if (rest == "-" || rest.starts_with("- ")) {
      if (!open_list_) return fail(line_, "an item of a list without a name above it");
      std::string_view item = rest.substr(1);
      add_value(item);
      if (!at_end(item)) fail(line_, "something follows the item");
      return;
    }
    if (line[0] == ' ' || line[0] == '\t') return fail(line_, "settings do not nest; begin it at the line's start");
    end_list();
    read_entry(rest);
  }

  void read_entry(std::string_view rest) {
    const size_t colon = rest.find(':');
    if (colon == std::string_view::npos ||
        (colon + 1 < rest.size() && rest[colon + 1] != ' ' && rest[colon + 1] != '\t'))
      return fail(line_, "a line is \"name: value\"");
    ConfigEntry entry{
        .name = std::string(trimmed(rest.substr(0, colon))), .values = {}, .is_list = false, .line = line_};
    if (std::ranges::any_of(entries_, [&](const ConfigEntry& other) { return other.name == entry.name; }))
      return fail(line_, fmt::format("{} is there twice", entry.name));
    entries_.push_back(std::move(entry));
    rest.remove_prefix(colon + 1);
    if (at_end(rest)) {
      open_list_ = true;
      return;
    }
    rest = trimmed(rest);
    if (rest[0] == '[') return read_list(rest.substr(1));
    add_value(rest);
    if (!at_end(rest)) fail(line_, "something follows the value");
  }

  // Behind the '['.
  void read_list(std::string_view rest) {
    entries_.back().is_list = true;
    while (!failure_) {
      rest = trimmed(rest);
      if (rest.starts_with(']')) break;
      add_value(rest, ",]");
      rest = trimmed(rest);
      if (rest.starts_with(']')) break;
      if (!rest.starts_with(',')) return fail(line_, "a list ends with ]");
      rest.remove_prefix(1);
    }
    if (!failure_ && !at_end(rest.substr(1))) fail(line_, "something follows the list");
  }

  // Nothing but a comment is left.
  static bool at_end(std::string_view rest) {
    const std::string_view what = trimmed(rest);
    return what.empty() || (what[0] == '#' && what.data() != rest.data());
  }

  // Takes a value off the front of `rest`; a plain one ends before one of `ends` or a comment.
  void add_value(std::string_view& rest, std::string_view ends = {}) {
    rest = trimmed(rest);
    std::string value;
    if (!rest.empty() && (rest[0] == '"' || rest[0] == '\'')) {
      value = rest[0] == '"' ? read_double(rest) : read_single(rest);
    } else {
      if (!rest.empty() && std::string_view("&*!|>{}[]%@`").find(rest[0]) != std::string_view::npos)
        return fail(line_, fmt::format("a value does not begin with {}; put it into quotes", rest[0]));
      size_t end = 0;
      while (end < rest.size() && ends.find(rest[end]) == std::string_view::npos &&
             !(rest[end] == '#' && (end == 0 || kBlanks.find(rest[end - 1]) != std::string_view::npos))) {
        ++end;
      }
      value = trimmed(rest.substr(0, end));
      rest.remove_prefix(value.size());  // blanks before a comment make it one
      if (value.empty()) return fail(line_, "a value is missing; nothing at all is \"\"");
      if (value.find(": ") != std::string::npos || value.ends_with(':'))
        return fail(line_, "settings do not nest; put a value with a colon into quotes");
    }
    entries_.back().values.push_back(std::move(value));
  }

  std::string read_single(std::string_view& rest) {
    std::string value;
    for (size_t i = 1; i < rest.size(); ++i) {
      if (rest[i] != '\'') {
        value += rest[i];
      } else if (i + 1 < rest.size() && rest[i + 1] == '\'') {
        value += rest[i++];
      } else {
        rest.remove_prefix(i + 1);
        return value;
      }
    }
    fail(line_, "a quote is not closed");
    return value;
  }

  std::string read_double(std::string_view& rest) {
    std::string value;
    for (size_t i = 1; i < rest.size(); ++i) {
      if (rest[i] == '"') {
        rest.remove_prefix(i + 1);
        return value;
      }
      if (rest[i] != '\\') {
        value += rest[i];
        continue;
      }
      const char escaped = ++i < rest.size() ? rest[i] : '\0';
      switch (escaped) {
        case 'n': value += '\n'; break;
        case 't': value += '\t'; break;
        case '"':
        case '\\':
        case '/': value += escaped; break;
        default:
          fail(line_, fmt::format("\\{} is not known; there are \\n, \\t, \\\" and \\\\", escaped));
          return value;
      }
    }
    fail(line_, "a quote is not closed");
    return value;
  }

  void end_list() {
    if (!std::exchange(open_list_, false)) return;
    ConfigEntry& entry = entries_.back();
    entry.is_list = true;
    if (entry.values.empty()) fail(entry.line, fmt::format("{} has no value; nothing at all is \"\"", entry.name));
  }

  std::vector<ConfigEntry> entries_;
  std::optional<Error> failure_;
  int line_ = 0;
  bool open_list_ = false;  // lines with items of the last entry may come
};

}  // namespace

Result<std::vector<ConfigEntry>> parse_config(std::string_view text) { return Parser().parse(text); }

}  // namespace lantern::cli
