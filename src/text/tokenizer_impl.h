// What a tokenizer is made of; filled by the readers of the file formats.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace lantern {

// Ids are indices of arrays, so a file may not name any number.
inline constexpr int64_t kMaxTokenId = (1 << 22) - 1;

struct TokenizerConfig {
  std::string bos_token, eos_token, pad_token;  // empty: not named
  std::optional<bool> add_bos_token, add_eos_token;
  std::string chat_template;
  // added_tokens_decoder
  std::vector<AddedToken> added_tokens;
};

struct Tokenizer::Impl {
  std::unique_ptr<BpeModel> model;
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added;
  std::unique_ptr<AddedTokenMatcher> matcher;  // of all added tokens
  std::vector<std::string> bytes;              // by id
  std::vector<uint8_t> flags;                  // by id: kAdded, kSpecial
  std::vector<TokenId> prefix, suffix;         // what add_special puts around
  std::optional<TokenId> bos, eos, pad;
  std::string chat_template;

  static constexpr uint8_t kAdded = 1, kSpecial = 2;
};

// The readers below fill everything but matcher and flags, which finish_tokenizer makes.
Result<TokenizerConfig> read_tokenizer_config(std::string_view json);
Status read_tokenizer_json(std::string_view json, Tokenizer::Impl& impl);
Status read_tiktoken(std::string_view text, const TokenizerConfig& config, Tokenizer::Impl& impl);
Status finish_tokenizer(const TokenizerConfig& config, Tokenizer::Impl& impl);

// The GPT-2 byte alphabet: every byte is written as one printable character. Returns false if a character is not of the
// alphabet.
bool bytes_of_alphabet(std::string_view text, std::string* bytes);

}  // namespace lantern
