#include "cli/value_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "cli/settings.h"
#include "text/chat.h"

namespace lantern::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr size_t kMostShown = 40;  // bytes of a word that is wrong

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

std::string shown(std::string_view word) {
  return word.size() <= kMostShown ? std::string(word) : fmt::format("{}...", word.substr(0, kMostShown));
}

class IdReader {
 public:
  explicit IdReader(std::string_view text) : text_(text) {}

  Result<std::vector<int32_t>> read() {
    const bool bracketed = take('[');
    if (bracketed ? take(']') : at_end()) return invalid("names no token id; give ids as 0,17,42");
    while (true) {
      RETURN_IF_ERROR(read_id());
      const bool comma = take(',');
      if (bracketed && !comma) break;
      if (!bracketed && at_end()) {
        if (comma) return missing();
        return std::move(ids_);
      }
    }
    if (!take(']')) return wrong(at_end() ? "the list ends without its ]" : "neither , nor ] follows an id");
    if (!at_end()) return wrong("something follows the list");
    return std::move(ids_);
  }

 private:
  void skip_blanks() { place_ = std::min(text_.find_first_not_of(kBlanks, place_), text_.size()); }
  bool at_end() {
    skip_blanks();
    return place_ == text_.size();
  }
  bool take(char c) {
    if (at_end() || text_[place_] != c) return false;
    ++place_;
    return true;
  }
  Error wrong(std::string_view what) const {
    return invalid(fmt::format("{}, at character {}; give ids as 0,17,42 or [0,17,42]", what, place_ + 1));
  }
  Error missing() const { return wrong("a token id is missing"); }

  Status read_id() {
    if (!at_end() && (text_[place_] == '[' || text_[place_] == ']'))
      return wrong(fmt::format("'{}' is out of place", text_[place_]));
    const size_t end = std::min(text_.find_first_of(" \t\r\n,[]", place_), text_.size());
    if (end == place_) return missing();
    const std::string_view word = text_.substr(place_, end - place_);
    const Result<int64_t> id = parse_integer(word);
    if (!id.ok() || *id < 0 || *id > std::numeric_limits<int32_t>::max())
      return wrong(fmt::format("'{}' is not a token id", shown(word)));
    ids_.push_back(static_cast<int32_t>(*id));
    place_ = end;
    return {};
  }

  std::string_view text_;
  size_t place_ = 0;
  std::vector<int32_t> ids_;
};

}  // namespace

Result<std::vector<int32_t>> parse_token_ids(std::string_view text) { return IdReader(text).read(); }

Result<LogitBias> parse_logit_bias(std::string_view text) {
  const size_t equals = std::min(text.find('='), text.size());
  const Result<int64_t> id = parse_integer(text.substr(0, equals));
  const Result<double> bias = parse_real(text.substr(std::min(equals + 1, text.size())));
  if (!id.ok() || !bias.ok() || *id < 0 || *id > std::numeric_limits<int32_t>::max())
    return invalid(fmt::format("'{}' is not a token id and a number; give it as 17=-2.5", shown(text)));
  if (*bias < -100 || *bias > 100)
    return invalid(fmt::format("a bias is a number from -100 to 100, and '{}' is not", shown(text)));
  return LogitBias{static_cast<int32_t>(*id), static_cast<float>(*bias)};
}

Result<double> parse_request_rate(std::string_view text) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  const Result<double> rate = parse_real(text);
  if (rate.ok() && *rate > 0) return *rate;
  return invalid(fmt::format("'{}' is not a number above 0, nor inf", shown(text)));
}

Status check_has_text(std::string_view text) {
  if (text.find_first_not_of(kBlanks) != std::string_view::npos) return {};
  return invalid(fmt::format("'{}' has no text", shown(text)));
}

Status check_has_key(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n,") != std::string_view::npos) return {};
  return invalid("the list has no key; leave it out for a server without keys");
}

Status check_is_file(std::string_view text) {
  return text == "-" ? invalid("'-' is no file, and standard output is not written to; name a file") : Status();
}

Status check_name_patterns(std::string_view text) {
  if (!text.starts_with(',') && !text.ends_with(',') && text.find(",,") == std::string_view::npos) return {};
  return invalid("a name is missing; put one comma between names, as in *.wgmma,*.mma");
}

Status check_chat_format(std::string_view text) { return text == "auto" ? Status() : form_of<parse_chat_format>(text); }

}  // namespace lantern::cli
