// What is asked of the library that compiles grammars. For this room's sources only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/grammar.h"

namespace lantern {

// A tokenizer's vocabulary as bytes.
struct GrammarVocabulary {
  std::vector<std::string> tokens;  // empty: never comes; so are the tokens flagged special
  std::vector<bool> added;          // control tokens: tool calls alone are written with them
  int32_t size = 0;                 // of the model
  std::vector<int32_t> end_ids;
};

class GrammarBackend {
 public:
  virtual ~GrammarBackend() = default;
  // Of a form within the limits. One call at a time.
  virtual Result<std::shared_ptr<const Grammar>> compile(const OutputForm& form) = 0;
};

std::unique_ptr<GrammarBackend> make_grammar_backend(GrammarVocabulary vocabulary, const GrammarLimits& limits);

// What a form holds that is beyond the limits or that no grammar keeps to.
Status check_form(const OutputForm& form, const GrammarLimits& limits);

// The format's calls have one JSON text as arguments, not parameters between tags.
bool writes_json_arguments(ChatFormat format);

// The structural tag (xgrammar's description of tagged text) of tool calls.
Result<std::string> tool_calls_tag(const OutputForm& form);

}  // namespace lantern
