// Text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lantern {

using TokenId = int32_t;

struct EncodeOptions {
  // Puts the ids around the text that the post-processor or add_bos_token / add_eos_token ask for.
  bool add_special = true;
  // Whether added tokens (`<think>`, `<|user|>`, ...) written in the text become their ids. Text that a user wrote is
  // encoded with false: then no added token is recognised in it, whether flagged special or not.
  bool parse_special = true;
  // With parse_special false: still recognises the added tokens that are not flagged special, as the tokenizers package
  // does under encode_special_tokens. For comparisons; control tokens of several models are not flagged special.
  bool parse_not_special = false;
};

// A byte-level BPE tokenizer. Immutable; every method may be called from several threads.
class Tokenizer {
 public:
  // Reads tokenizer.json (byte-level BPE) or, where there is none, tiktoken.model (Kimi), and tokenizer_config.json
  // beside it if present. Ids equal those of the tokenizers package, or of tiktoken.
  static Result<Tokenizer> load(const std::filesystem::path& model_dir);

  // The same from the files' contents; an empty config is none.
  static Result<Tokenizer> from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json);
  static Result<Tokenizer> from_tiktoken(std::string_view tiktoken_model, std::string_view tokenizer_config_json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ill-formed UTF-8 becomes U+FFFD first (as Python's errors="replace"). Fails only where a pattern of an unknown kind
  // reaches PCRE2's limits on this text.
  Result<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Always valid UTF-8: bytes that form no code point become U+FFFD. Ids without a token (the padding rows of a
  // vocabulary) give nothing. skip_special leaves out added tokens that are flagged special.
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  // The pre-tokens of a text, in which byte pairs are merged: shows why a text is cut as it is. Added tokens are not
  // recognised.
  Result<std::vector<std::string>> words(std::string_view text) const;

  // The bytes a token stands for, which need not be valid UTF-8; empty for an id without a token.
  std::string_view token_bytes(TokenId id) const;

  // The highest id + 1, added tokens included. The model's embedding may have more rows.
  int64_t vocab_size() const;

  // From tokenizer_config.json; none where it does not name them.
  std::optional<TokenId> bos_id() const;
  std::optional<TokenId> eos_id() const;
  std::optional<TokenId> pad_id() const;

  // The id of an added token by its exact text.
  std::optional<TokenId> added_token_id(std::string_view content) const;
  // Flagged special: left out by decode(skip_special).
  bool is_special(TokenId id) const;
  // Added tokens, special or not.
  bool is_added(TokenId id) const;

  // chat_template.jinja, or chat_template of tokenizer_config.json where it is one string; else empty. Only a hint for
  // choosing a ChatFormat: Lantern never runs a template.
  std::string_view chat_template() const;

  struct Impl;

 private:
  explicit Tokenizer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace lantern
