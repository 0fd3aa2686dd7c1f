// The reader of tiktoken.model: one token a line, its bytes in base64 and its rank, which is also its id.
#include <fmt/format.h>

#include <charconv>
#include <unordered_map>

#include "text/tokenizer_impl.h"

namespace lantern {
namespace {

// Kimi and Moonlight reserve this many ids behind the ranks for special tokens, named or not.
constexpr size_t kReservedSpecialTokens = 256;

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

// Standard alphabet with padding.
bool decode_base64(std::string_view text, std::string* bytes) {
  bytes->clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t digits = i + 4 == text.size() ? 4 - padding : 4;
    uint32_t group = 0;
    for (size_t j = 0; j < 4; ++j) {
      const int digit = j < digits ? base64_digit(text[i + j]) : 0;
      if (digit < 0) return false;
      group = group << 6 | static_cast<uint32_t>(digit);
    }
    for (size_t j = 0; j + 1 < digits; ++j) bytes->push_back(static_cast<char>(group >> (16 - 8 * j) & 0xFF));
  }
  return true;
}

}  // namespace

Status read_tiktoken(std::string_view text, const TokenizerConfig& config, Tokenizer::Impl& impl) {
  const auto corrupt = [](size_t line, std::string_view what) {
    return Error(ErrorCode::kCorrupt, fmt::format("line {} {}", line, what));
  };
  std::vector<std::string> tokens;  // by rank
  std::vector<uint8_t> given;
  size_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const size_t line_end = text.find('\n');
    std::string_view line = text.substr(0, line_end);
    text = line_end == std::string_view::npos ? std::string_view() : text.substr(line_end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) return corrupt(line_number, "is not a base64 token, a space and a rank");
    std::string bytes;
    if (!decode_base64(line.substr(0, space), &bytes)) return corrupt(line_number, "has a token that is not base64");
    const std::string_view rank_text = line.substr(space + 1);
    size_t rank = 0;
    const auto [end, error] = std::from_chars(rank_text.data(), rank_text.data() + rank_text.size(), rank);
    if (error != std::errc() || end != rank_text.data() + rank_text.size() ||
        rank > kMaxTokenId - kReservedSpecialTokens) {
      return corrupt(line_number, "has a rank that is not a small number");
    }
    if (tokens.size() <= rank) {
      tokens.resize(rank + 1);
      given.resize(rank + 1);
    }
    if (given[rank] != 0) return corrupt(line_number, fmt::format("gives rank {} a second time", rank));
    given[rank] = 1;
    tokens[rank] = std::move(bytes);
  }
  for (size_t rank = 0; rank < given.size(); ++rank) {
    if (given[rank] == 0) return Error(ErrorCode::kCorrupt, fmt::format("no line has rank {}", rank));
  }

  const size_t base = tokens.size();
  impl.model = std::make_unique<BpeModel>(base + kReservedSpecialTokens);
  impl.model->merge_by_bytes();
  impl.model->set_ignore_merges(true);
  impl.bytes.resize(base + kReservedSpecialTokens);
  for (size_t rank = 0; rank < base; ++rank) {
    impl.bytes[rank] = tokens[rank];
    if (!impl.model->set_token(static_cast<TokenId>(rank), std::move(tokens[rank]))) {
      return Error(ErrorCode::kCorrupt, fmt::format("rank {} has the same bytes as an earlier one", rank));
    }
  }
  if (const int byte = impl.model->missing_byte(); byte >= 0) {
    return Error(ErrorCode::kCorrupt, fmt::format("there is no token for byte 0x{:02x}", byte));
  }
  impl.model->finish();

  std::unordered_map<TokenId, std::string_view> names;
  for (const AddedToken& token : config.added_tokens) names[token.id] = token.content;
  std::unordered_map<std::string, TokenId> seen;
  for (size_t i = 0; i < kReservedSpecialTokens; ++i) {
    AddedToken token;
    token.id = static_cast<TokenId>(base + i);
    token.special = true;
    const auto name = names.find(token.id);
    token.content = name != names.end() ? std::string(name->second) : fmt::format("<|reserved_token_{}|>", token.id);
    if (!seen.emplace(token.content, token.id).second) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("tokenizer_config.json gives \"{}\" to two special tokens", token.content));
    }
    impl.bytes[base + i] = token.content;
    impl.added.push_back(std::move(token));
  }
  for (const AddedToken& token : config.added_tokens) {
    if (static_cast<size_t>(token.id) < base || static_cast<size_t>(token.id) >= base + kReservedSpecialTokens) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("tokenizer_config.json names \"{}\" as token {}, but special tokens lie in [{}, {})",
                               token.content, token.id, base, base + kReservedSpecialTokens));
    }
  }
  impl.pre_tokenizer.add_split(make_kimi_pattern(), SplitBehavior::kIsolated, false);
  return {};
}

}  // namespace lantern
