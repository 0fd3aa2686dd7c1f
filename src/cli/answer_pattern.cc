#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>

#include "cli/eval_task.h"

namespace lantern::cli {

struct AnswerPattern::Impl {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  uint32_t groups = 0;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
};

AnswerPattern::AnswerPattern(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AnswerPattern::AnswerPattern(AnswerPattern&&) noexcept = default;
AnswerPattern& AnswerPattern::operator=(AnswerPattern&&) noexcept = default;
AnswerPattern::~AnswerPattern() = default;

Result<AnswerPattern> AnswerPattern::compile(const std::string& expression) {
  auto impl = std::make_unique<Impl>();
  int failure = 0;
  PCRE2_SIZE offset = 0;
  impl->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), PCRE2_UTF | PCRE2_UCP,
                             &failure, &offset, nullptr);
  if (impl->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(failure, message, sizeof(message));
    return Error(ErrorCode::kInvalidArgument, fmt::format("the expression '{}' is wrong at character {}: {}",
                                                          expression, offset, reinterpret_cast<const char*>(message)));
  }
  impl->match = pcre2_match_data_create_from_pattern(impl->code, nullptr);
  pcre2_pattern_info(impl->code, PCRE2_INFO_CAPTURECOUNT, &impl->groups);
  return AnswerPattern(std::move(impl));
}

Result<std::string> AnswerPattern::last_match(std::string_view text) const {
  std::string last;
  PCRE2_SIZE offset = 0;
  while (offset <= text.size()) {
    const int found = pcre2_match(impl_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), offset, 0,
                                  impl_->match, nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      PCRE2_UCHAR message[256] = {};
      pcre2_get_error_message(found, message, sizeof(message));
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("an answer could not be searched: {}", reinterpret_cast<const char*>(message)));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(impl_->match);
    const size_t group = impl_->groups > 0 ? 1 : 0;
    const PCRE2_SIZE begin = range[2 * group];
    const PCRE2_SIZE end = range[2 * group + 1];
    last = begin == PCRE2_UNSET ? std::string() : std::string(text.substr(begin, end - begin));
    // After an empty match go on behind the next code point.
    offset = range[1];
    if (range[1] == range[0]) {
      ++offset;
      while (offset < text.size() && (static_cast<unsigned char>(text[offset]) & 0xc0) == 0x80) ++offset;
    }
  }
  return last;
}

}  // namespace lantern::cli
