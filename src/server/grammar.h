// Structured output: a request may say what its answer has to look like. The form is compiled into a grammar, which
// says before every token which ones may come (TokenConstraint); so every answer that ends by itself has the form.
// Grammars are the xgrammar library's; a build without it refuses every form.
//
// A constrained row runs without drafts, so the text is the same for every draft length (token_constraint.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/token_constraint.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace lantern {

struct OutputForm {
  enum class Kind : uint8_t {
    kJsonObject,  // any JSON object
    kJsonSchema,  // `text` is a JSON schema
    kRegex,       // `text` is a regular expression that the whole answer matches
    kChoice,      // one of `choices`
    kGrammar,     // `text` is a grammar in EBNF (GBNF); its first symbol is "root"
    kToolCalls,   // one call or more of `tools`, written as `format` writes them
  };
  Kind kind = Kind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};
  ChatFormat format = {};
  std::vector<std::string> tools = {};  // as ChatOptions has them
  bool several_calls = true;
};

struct GrammarLimits {
  size_t max_bytes = size_t{64} << 10;  // of a form's text, or of all its choices
  size_t max_choices = 1024;
  size_t max_depth = 32;         // of a schema's JSON
  int64_t max_repeats = 10'000;  // {m,n} of an expression; minItems, maxLength and the like of a schema
  std::chrono::milliseconds compile_time{5000};
  size_t max_waiting = 64;                      // forms that wait to be compiled
  size_t max_cached_bytes = size_t{256} << 20;  // of compiled forms that are kept for the next request
};

// One choice's way through a grammar. Errors are failures inside of the library.
class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;
  // False: the grammar does not allow it here.
  virtual Result<bool> accept(int32_t token) = 0;
  virtual Result<bool> accept_text(const std::string& text) = 0;
  // Sets the bits of the tokens that may come next, as TokenConstraint::allow does.
  virtual Status fill(std::span<uint32_t> mask) = 0;
  // An end-of-sequence token was accepted: nothing may follow.
  virtual bool ended() const = 0;
};

// A compiled form; immutable, used by several requests at a time.
class Grammar {
 public:
  virtual ~Grammar() = default;
  virtual Result<std::unique_ptr<GrammarMatcher>> start() const = 0;
};

// Whether this build has the library.
bool have_grammars();

// Compiles forms for one model, on a thread of its own: a form that takes too long does not hold up the engine.
class GrammarCompiler {
 public:
  // `end_ids` end a sequence: the model's end-of-sequence tokens and those that end a turn. `vocab_size` is the
  // model's, which may have more rows than the tokenizer has tokens. The tokenizer is read here alone.
  GrammarCompiler(const Tokenizer& tokenizer, int32_t vocab_size, const std::vector<int32_t>& end_ids,
                  GrammarLimits limits = {});
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Any thread; waits. Errors: unsupported (a build without the library, a part of a schema that could not be kept
  // to), invalid_argument (a malformed form, or one beyond the limits), out_of_memory (too many forms are waiting).
  Result<std::shared_ptr<const Grammar>> compile(const OutputForm& form);

  const std::vector<int32_t>& end_ids() const { return end_ids_; }

 private:
  struct Shared;
  std::vector<int32_t> end_ids_;
  GrammarLimits limits_;
  std::shared_ptr<Shared> shared_;
};

// Where an answer stands when it begins.
struct AnswerStart {
  bool thinking = false;   // the prompt has opened a thinking block: the form is asked for behind its end
  bool may_think = false;  // the answer may begin with "<think>", as one token
};

// `tokenizer` must outlive what is returned. While the model thinks, every token but those of `end_ids` may come.
// Thinking ends with the characters "</think>", in whatever tokens; white space that the last of them brings along
// belongs to no form.
std::shared_ptr<TokenConstraint> constrain(std::shared_ptr<const Grammar> grammar, const Tokenizer& tokenizer,
                                           std::vector<int32_t> end_ids, AnswerStart start);

}  // namespace lantern
