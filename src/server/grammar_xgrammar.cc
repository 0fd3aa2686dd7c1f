// Grammars by the xgrammar library (https://github.com/mlc-ai/xgrammar). It reports errors as exceptions.
#include <fmt/format.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>

#include "server/grammar_backend.h"

namespace lantern {
namespace {

// Its messages begin with a place in its source and may have several lines.
Error failed(std::string_view what, std::string_view message) {
  std::string text(message.substr(0, message.find('\n')));
  if (const size_t place = text.find("] "); !text.empty() && text.front() == '[' && place != std::string::npos)
    text.erase(0, place + 2);
  if (const size_t place = text.find(": ");
      place != std::string::npos && text.rfind(".cc:", place) != std::string::npos)
    text.erase(0, place + 2);
  constexpr size_t kMostBytes = 300;
  return {ErrorCode::kInvalidArgument, fmt::format("{} cannot be compiled: {:.{}}", what, text, kMostBytes)};
}

// Runs what may throw.
template <class T, class F>
Result<T> guarded(std::string_view what, F&& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, fmt::format("no memory is left for {}", what));
  } catch (const std::exception& exception) {
    return failed(what, exception.what());
  }
}

class Matcher final : public GrammarMatcher {
 public:
  explicit Matcher(const xgrammar::CompiledGrammar& grammar) : matcher_(grammar) {}

  Result<bool> accept(int32_t token) override {
    return guarded<bool>("the grammar", [&] { return matcher_.AcceptToken(token); });
  }
  Result<bool> accept_text(const std::string& text) override {
    return guarded<bool>("the grammar", [&] { return matcher_.AcceptString(text); });
  }
  Status fill(std::span<uint32_t> mask) override {
    int64_t words = static_cast<int64_t>(mask.size());
    DLTensor tensor{.data = mask.data(),
                    .device = {.device_type = kDLCPU, .device_id = 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &words,
                    .strides = nullptr,
                    .byte_offset = 0};
    const Result<bool> filled = guarded<bool>("the grammar", [&] { return matcher_.FillNextTokenBitmask(&tensor); });
    return filled.ok() ? Status() : Status(filled.error());
  }
  bool ended() const override { return matcher_.IsTerminated(); }

 private:
  xgrammar::GrammarMatcher matcher_;
};

class Compiled final : public Grammar {
 public:
  explicit Compiled(xgrammar::CompiledGrammar grammar) : grammar_(std::move(grammar)) {}

  Result<std::unique_ptr<GrammarMatcher>> start() const override {
    return guarded<std::unique_ptr<GrammarMatcher>>("the grammar", [&]() -> Result<std::unique_ptr<GrammarMatcher>> {
      return std::unique_ptr<GrammarMatcher>(std::make_unique<Matcher>(grammar_));
    });
  }

 private:
  xgrammar::CompiledGrammar grammar_;
};

// A terminal of EBNF.
std::string terminal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Which tokens a form is made of.
struct Words {
  bool control_tokens;  // those of tool calls
  // The library's strings with a maxLength take raw control characters, which JSON forbids: no token has any. Line
  // breaks are white space between values, and are not taken in strings.
  bool json;
};

bool has_control_character(std::string_view bytes) {
  return std::ranges::any_of(bytes, [](char c) { return static_cast<uint8_t>(c) < 0x20 && c != '\n' && c != '\r'; });
}

class Backend final : public GrammarBackend {
 public:
  Backend(GrammarVocabulary vocabulary, const GrammarLimits& limits)
      : vocabulary_(std::move(vocabulary)), cached_bytes_(static_cast<int64_t>(limits.max_cached_bytes / kCompilers)) {}

  Result<std::shared_ptr<const Grammar>> compile(const OutputForm& form) override {
    using Kind = OutputForm::Kind;
    constexpr Words kText{.control_tokens = false, .json = false}, kJson{.control_tokens = false, .json = true};
    switch (form.kind) {
      case Kind::kJsonObject:
        return made("a JSON object", kJson,
                    [](auto& of) { return json(of, R"({"type": "object"})", /*strict=*/false); });
      case Kind::kJsonSchema:
        return made("the JSON schema", kJson, [&](auto& of) { return json(of, form.text, /*strict=*/true); });
      case Kind::kRegex:
        return made("the regular expression", kText, [&](auto& of) { return of.CompileRegex(form.text); });
      case Kind::kGrammar: return made("the grammar", kText, [&](auto& of) { return of.CompileGrammar(form.text); });
      case Kind::kChoice: {
        std::string rule = "root ::= ";
        for (const std::string& choice : form.choices) {
          if (&choice != form.choices.data()) rule += " | ";
          rule += terminal(choice);
        }
        return made("the choice", kText, [&](auto& of) { return of.CompileGrammar(rule); });
      }
      case Kind::kToolCalls: {
        ASSIGN_OR_RETURN(const std::string tag, tool_calls_tag(form));
        return made("the tools' parameters", Words{.control_tokens = true, .json = writes_json_arguments(form.format)},
                    [&](auto& of) { return of.CompileStructuralTag(tag); });
      }
    }
    return Error(ErrorCode::kInvalidArgument, "unknown kind of form");
  }

 private:
  static constexpr int kThreads = 2;
  static constexpr size_t kCompilers = 4;
  // Of white space in a row, for indented JSON. Without a limit a model may write it for ever.
  static constexpr int kMostWhitespace = 24;

  static xgrammar::CompiledGrammar json(xgrammar::GrammarCompiler& of, const std::string& schema, bool strict) {
    return of.CompileJSONSchema(schema, /*any_whitespace=*/true, std::nullopt, std::nullopt, strict, kMostWhitespace);
  }

  template <class F>
  Result<std::shared_ptr<const Grammar>> made(std::string_view what, Words words, F&& compile) {
    return guarded<std::shared_ptr<const Grammar>>(what, [&]() -> Result<std::shared_ptr<const Grammar>> {
      return std::shared_ptr<const Grammar>(std::make_shared<Compiled>(compile(compiler(words))));
    });
  }

  // Made when first needed: it holds the vocabulary sorted.
  xgrammar::GrammarCompiler& compiler(Words words) {
    std::optional<xgrammar::GrammarCompiler>& slot = compilers_[(words.control_tokens ? 2 : 0) + (words.json ? 1 : 0)];
    if (slot) return *slot;
    std::vector<std::string> tokens = vocabulary_.tokens;
    for (size_t id = 0; id < tokens.size(); ++id) {
      const bool unwanted =
          (vocabulary_.added[id] && !words.control_tokens) || (words.json && has_control_character(tokens[id]));
      if (unwanted) tokens[id].clear();
    }
    const xgrammar::TokenizerInfo info(tokens, xgrammar::VocabType::RAW, vocabulary_.size, vocabulary_.end_ids);
    return slot.emplace(info, kThreads, /*cache_enabled=*/true, cached_bytes_);
  }

  GrammarVocabulary vocabulary_;
  int64_t cached_bytes_;
  std::array<std::optional<xgrammar::GrammarCompiler>, kCompilers> compilers_;
};

}  // namespace

bool have_grammars() { return true; }

std::unique_ptr<GrammarBackend> make_grammar_backend(GrammarVocabulary vocabulary, const GrammarLimits& limits) {
  // What it recurses over are forms of bounded size; its own limit suits a stack of its own.
  xgrammar::SetMaxRecursionDepth(2000);
  return std::make_unique<Backend>(std::move(vocabulary), limits);
}

}  // namespace lantern
