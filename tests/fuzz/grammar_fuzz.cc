// Forms of structured output: a kind, then the text of a schema, expression, grammar, choices (parts) or tools. What is
// accepted gives masks whose tokens it accepts (CVE-2025-48942, CVE-2025-48943, CVE-2026-2069).
#include <algorithm>

#include "base/check.h"
#include "fuzz_input.h"
#include "server/grammar_backend.h"
#include "text/tokenizer.h"

using namespace lantern;

namespace {

constexpr int32_t kEnd = 1;
constexpr size_t kFormats = static_cast<size_t>(ChatFormat::kMoonlight) + 1;
// Small forms are compiled soon, so that many of them are tried.
constexpr GrammarLimits kLimits{.max_bytes = 400, .max_depth = 12, .max_repeats = 20};

// One character a token, and some longer ones.
GrammarVocabulary vocabulary() {
  GrammarVocabulary of{.tokens = {"", ""}, .added = {true, true}, .size = 0, .end_ids = {kEnd}};
  const auto add = [&](std::string token) {
    of.tokens.push_back(std::move(token));
    of.added.push_back(false);
  };
  for (int byte = 1; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const char* word : {"true", "false", "null", "\": ", "\", \"", "{\"", "}}", "[[", "ab", "12", "\n\n"}) add(word);
  of.size = static_cast<int32_t>(of.tokens.size());
  return of;
}

OutputForm read_form(test::FuzzInput& input) {
  OutputForm form;
  form.kind = static_cast<OutputForm::Kind>(input.below(6));
  switch (form.kind) {
    case OutputForm::Kind::kChoice:
      while (!input.empty()) form.choices.emplace_back(input.part());
      break;
    case OutputForm::Kind::kToolCalls:
      form.format = static_cast<ChatFormat>(input.below(kFormats));
      form.several_calls = input.flag();
      while (!input.empty()) form.tools.emplace_back(input.part());
      break;
    default: form.text = input.rest();
  }
  return form;
}

// A way through it: of the tokens that may come always another one is taken.
void walk(const Grammar& grammar, size_t size) {
  constexpr size_t kSteps = 40;
  Result<std::unique_ptr<GrammarMatcher>> matcher = grammar.start();
  if (!matcher.ok()) return;
  std::vector<uint32_t> mask((size + 31) / 32);
  for (size_t step = 0; step < kSteps && !(*matcher)->ended(); ++step) {
    std::ranges::fill(mask, 0);
    if (!(*matcher)->fill(mask).ok()) return;
    std::vector<int32_t> allowed;  // bits behind the vocabulary mean nothing
    for (size_t id = 0; id < size; ++id) {
      if ((mask[id / 32] >> (id % 32) & 1) != 0) allowed.push_back(static_cast<int32_t>(id));
    }
    if (allowed.empty()) return;
    const int32_t token = allowed[step * 7 % allowed.size()];
    const Result<bool> accepted = (*matcher)->accept(token);
    if (!accepted.ok()) return;
    CHECK(*accepted, "token {} was allowed and is not accepted", token);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!have_grammars()) return 0;
  static const GrammarVocabulary words = vocabulary();
  static const std::unique_ptr<GrammarBackend> backend = make_grammar_backend(words, kLimits);
  test::FuzzInput input(data, size);
  const OutputForm form = read_form(input);
  const Status checked = check_form(form, kLimits);
  if (!checked.ok()) {
    CHECK(!checked.error().message().empty(), "a refusal says nothing");
    return 0;
  }
  const Result<std::shared_ptr<const Grammar>> grammar = backend->compile(form);
  if (grammar.ok()) {
    walk(**grammar, words.tokens.size());
  } else {
    CHECK(!grammar.error().message().empty(), "a refusal says nothing");
  }
  return 0;
}
