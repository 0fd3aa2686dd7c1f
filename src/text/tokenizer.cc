#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/check.h"
#include "base/file.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace lantern {
namespace {

// Real vocabularies have 7 to 30 MB; more is not a tokenizer.
constexpr size_t kMaxFileBytes = 256u << 20;

}  // namespace

bool bytes_of_alphabet(std::string_view text, std::string* bytes) {
  // Printable Latin-1 stands for itself; the other bytes, in order, for the characters from U+0100 on.
  static const std::vector<int16_t> byte_of = [] {
    std::vector<int16_t> table(0x144, -1);
    int16_t next = 0x100;
    for (int16_t byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      table[static_cast<size_t>(itself ? byte : next++)] = byte;
    }
    return table;
  }();
  bytes->clear();
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    if (!step.valid || step.value >= byte_of.size() || byte_of[step.value] < 0) return false;
    bytes->push_back(static_cast<char>(byte_of[step.value]));
    i += step.size;
  }
  return true;
}

Status finish_tokenizer(const TokenizerConfig& config, Tokenizer::Impl& impl) {
  impl.flags.assign(impl.bytes.size(), 0);
  for (const AddedToken& token : impl.added) {
    impl.flags[static_cast<size_t>(token.id)] =
        static_cast<uint8_t>(Tokenizer::Impl::kAdded | (token.special ? Tokenizer::Impl::kSpecial : 0));
  }
  impl.matcher = std::make_unique<AddedTokenMatcher>(impl.added);
  impl.chat_template = config.chat_template;

  const auto resolve = [&](const std::string& name, std::string_view role, std::optional<TokenId>& id) -> Status {
    if (name.empty()) return {};
    const auto token =
        std::find_if(impl.added.begin(), impl.added.end(), [&](const auto& t) { return t.content == name; });
    if (token != impl.added.end()) {
      id = token->id;
      return {};
    }
    std::string bytes;
    const TokenId plain = bytes_of_alphabet(name, &bytes) ? impl.model->find(bytes) : -1;
    if (plain < 0) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("tokenizer_config.json: {} is \"{}\", which is not in the vocabulary", role, name));
    }
    id = plain;
    return {};
  };
  RETURN_IF_ERROR(resolve(config.bos_token, "bos_token", impl.bos));
  RETURN_IF_ERROR(resolve(config.eos_token, "eos_token", impl.eos));
  RETURN_IF_ERROR(resolve(config.pad_token, "pad_token", impl.pad));

  // Where the config says whether to add bos and eos, it overrides the post-processor's template.
  if (!config.add_bos_token && !config.add_eos_token) return {};
  const auto choose = [&](std::optional<bool> add, std::optional<TokenId> id, std::string_view role,
                          std::vector<TokenId>& ids) -> Status {
    ids.clear();
    if (!add.value_or(false)) return {};
    if (!id) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("tokenizer_config.json: add_{0} is true, but there is no {0}", role));
    }
    ids.push_back(*id);
    return {};
  };
  RETURN_IF_ERROR(choose(config.add_bos_token, impl.bos, "bos_token", impl.prefix));
  return choose(config.add_eos_token, impl.eos, "eos_token", impl.suffix);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json) {
  auto config = read_tokenizer_config(tokenizer_config_json);
  if (!config.ok()) return std::move(config).error().within("tokenizer_config.json");
  auto impl = std::make_unique<Impl>();
  if (Status status = read_tokenizer_json(tokenizer_json, *impl); !status.ok()) {
    return std::move(status).error().within("tokenizer.json");
  }
  RETURN_IF_ERROR(finish_tokenizer(*config, *impl));
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::from_tiktoken(std::string_view tiktoken_model, std::string_view tokenizer_config_json) {
  auto config = read_tokenizer_config(tokenizer_config_json);
  if (!config.ok()) return std::move(config).error().within("tokenizer_config.json");
  auto impl = std::make_unique<Impl>();
  if (Status status = read_tiktoken(tiktoken_model, *config, *impl); !status.ok()) {
    return std::move(status).error().within("tiktoken.model");
  }
  RETURN_IF_ERROR(finish_tokenizer(*config, *impl));
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& model_dir) {
  std::error_code ignored;
  std::string config;
  if (const auto path = model_dir / "tokenizer_config.json"; std::filesystem::exists(path, ignored)) {
    ASSIGN_OR_RETURN(config, read_file(path, kMaxFileBytes));
  }
  // Newer checkpoints keep the chat template in a file of its own.
  std::string chat_template;
  if (const auto path = model_dir / "chat_template.jinja"; std::filesystem::exists(path, ignored)) {
    ASSIGN_OR_RETURN(chat_template, read_file(path, kMaxFileBytes));
  }
  const auto finish = [&](Result<Tokenizer> tokenizer) -> Result<Tokenizer> {
    if (!tokenizer.ok()) return std::move(tokenizer).error().within(model_dir.string());
    if (!chat_template.empty()) tokenizer->impl_->chat_template = chat_template;
    return tokenizer;
  };
  if (const auto path = model_dir / "tokenizer.json"; std::filesystem::exists(path, ignored)) {
    ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxFileBytes));
    return finish(from_json(text, config));
  }
  if (const auto path = model_dir / "tiktoken.model"; std::filesystem::exists(path, ignored)) {
    ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxFileBytes));
    return finish(from_tiktoken(text, config));
  }
  return Error(ErrorCode::kNotFound,
               fmt::format("{} has neither tokenizer.json nor tiktoken.model", model_dir.string()));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  std::vector<TokenId> ids;
  if (options.add_special) ids = impl_->prefix;

  std::vector<AddedTokenMatcher::Section> sections;
  if (options.parse_special || options.parse_not_special) {
    sections = impl_->matcher->cut(text, options.parse_special);
  } else if (!text.empty()) {
    sections.push_back({text, -1});
  }
  std::vector<std::string_view> words;
  std::vector<std::unique_ptr<std::string>> storage;
  for (const auto& section : sections) {
    if (section.id >= 0) {
      ids.push_back(section.id);
      continue;
    }
    words.clear();
    storage.clear();
    RETURN_IF_ERROR(impl_->pre_tokenizer.split(section.text, words, storage));
    for (const std::string_view word : words) impl_->model->encode(word, ids);
  }
  if (options.add_special) ids.insert(ids.end(), impl_->suffix.begin(), impl_->suffix.end());
  return ids;
}

Result<std::vector<std::string>> Tokenizer::words(std::string_view text) const {
  const std::string repaired = replace_invalid_utf8(text);
  std::vector<std::string_view> words;
  std::vector<std::unique_ptr<std::string>> storage;
  RETURN_IF_ERROR(impl_->pre_tokenizer.split(repaired, words, storage));
  return std::vector<std::string>(words.begin(), words.end());
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (skip_special && is_special(id)) continue;
    bytes += token_bytes(id);
  }
  return is_valid_utf8(bytes) ? bytes : replace_invalid_utf8(bytes);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || static_cast<size_t>(id) >= impl_->bytes.size()) return {};
  return impl_->bytes[static_cast<size_t>(id)];
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(impl_->bytes.size()); }
std::optional<TokenId> Tokenizer::bos_id() const { return impl_->bos; }
std::optional<TokenId> Tokenizer::eos_id() const { return impl_->eos; }
std::optional<TokenId> Tokenizer::pad_id() const { return impl_->pad; }

std::optional<TokenId> Tokenizer::added_token_id(std::string_view content) const {
  const auto& added = impl_->added;
  const auto token = std::find_if(added.begin(), added.end(), [&](const auto& t) { return t.content == content; });
  return token == added.end() ? std::nullopt : std::optional<TokenId>(token->id);
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && static_cast<size_t>(id) < impl_->flags.size() &&
         (impl_->flags[static_cast<size_t>(id)] & Impl::kSpecial) != 0;
}

bool Tokenizer::is_added(TokenId id) const {
  return id >= 0 && static_cast<size_t>(id) < impl_->flags.size() &&
         (impl_->flags[static_cast<size_t>(id)] & Impl::kAdded) != 0;
}

std::string_view Tokenizer::chat_template() const { return impl_->chat_template; }

}  // namespace lantern
