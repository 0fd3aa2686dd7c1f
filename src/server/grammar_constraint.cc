#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "server/grammar.h"

namespace lantern {
namespace {

constexpr std::string_view kThinkBegin = "<think>";
constexpr std::string_view kThinkEnd = "</think>";

class GrammarConstraint final : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const Grammar> grammar, const Tokenizer& tokenizer, std::vector<int32_t> end_ids,
                    AnswerStart start)
      : grammar_(std::move(grammar)), tokenizer_(tokenizer), end_ids_(std::move(end_ids)), start_(start) {
    if (start_.may_think) think_begin_ = tokenizer_.added_token_id(kThinkBegin);
  }

  Status allow(int32_t choice, std::span<const int32_t> output, std::span<uint32_t> mask) override {
    ASSIGN_OR_RETURN(Choice* const at, find(choice));
    for (; at->taken < output.size(); ++at->taken) RETURN_IF_ERROR(take(*at, output[at->taken]));
    if (at->thinking) {
      std::ranges::fill(mask, ~0u);
      for (const int32_t id : end_ids_) mask[static_cast<size_t>(id) / 32] &= ~bit(id);
      return {};
    }
    if (at->matcher->ended()) {
      for (const int32_t id : end_ids_) mask[static_cast<size_t>(id) / 32] |= bit(id);
      return {};
    }
    RETURN_IF_ERROR(at->matcher->fill(mask));
    if (at->taken == 0 && think_begin_) mask[static_cast<size_t>(*think_begin_) / 32] |= bit(*think_begin_);
    return {};
  }

 private:
  struct Choice {
    std::unique_ptr<GrammarMatcher> matcher;
    size_t taken = 0;  // of its tokens
    bool thinking = false;
    std::string tail;  // of its thinking: may be the beginning of the end
  };

  static uint32_t bit(int32_t id) { return 1u << (static_cast<uint32_t>(id) % 32); }

  Result<Choice*> find(int32_t number) {
    const auto found = choices_.find(number);
    if (found != choices_.end()) return &found->second;
    ASSIGN_OR_RETURN(std::unique_ptr<GrammarMatcher> matcher, grammar_->start());
    Choice& choice = choices_[number];
    choice.matcher = std::move(matcher);
    choice.thinking = start_.thinking;
    return &choice;
  }

  Status take(Choice& choice, int32_t token) const {
    if (choice.thinking) return think(choice, token);
    if (choice.taken == 0 && think_begin_ == token) {
      choice.thinking = true;
      return {};
    }
    // What follows the end (a request may ignore it) has no form.
    if (choice.matcher->ended()) return {};
    ASSIGN_OR_RETURN(const bool accepted, choice.matcher->accept(token));
    return accepted ? Status() : Status(not_allowed(tokenizer_.token_bytes(token)));
  }

  Status think(Choice& choice, int32_t token) const {
    choice.tail += tokenizer_.token_bytes(token);
    const size_t end = choice.tail.find(kThinkEnd);
    if (end == std::string::npos) {
      if (choice.tail.size() >= kThinkEnd.size()) choice.tail.erase(0, choice.tail.size() - kThinkEnd.size() + 1);
      return {};
    }
    choice.thinking = false;
    std::string rest = choice.tail.substr(end + kThinkEnd.size());
    rest.erase(0, std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
    if (rest.empty()) return {};
    ASSIGN_OR_RETURN(const bool accepted, choice.matcher->accept_text(rest));
    return accepted ? Status() : Status(not_allowed(rest));
  }

  static Error not_allowed(std::string_view text) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("the answer goes on with \"{}\", which its form does not allow", text)};
  }

  std::shared_ptr<const Grammar> grammar_;
  const Tokenizer& tokenizer_;
  std::vector<int32_t> end_ids_;
  AnswerStart start_;
  std::optional<TokenId> think_begin_;
  std::map<int32_t, Choice> choices_;
};

}  // namespace

std::shared_ptr<TokenConstraint> constrain(std::shared_ptr<const Grammar> grammar, const Tokenizer& tokenizer,
                                           std::vector<int32_t> end_ids, AnswerStart start) {
  return std::make_shared<GrammarConstraint>(std::move(grammar), tokenizer, std::move(end_ids), start);
}

}  // namespace lantern
