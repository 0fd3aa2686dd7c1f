// The reader of tokenizer_config.json. Only what changes ids is read.
#include <fmt/format.h>

#include <charconv>

#include "text/json.h"
#include "text/tokenizer_impl.h"

namespace lantern {
namespace json = boost::json;

namespace {

// A token is written as a string or as an object with its content.
Result<std::string> token_text(const json::object& config, std::string_view name) {
  const json::value* value = config.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr || value->is_null()) return std::string();
  const std::string where = fmt::format("\"{}\"", name);
  if (value->is_object()) {
    ASSIGN_OR_RETURN(value, json_member(value->get_object(), "content", where));
  }
  ASSIGN_OR_RETURN(const std::string_view text, json_string(*value, where));
  return std::string(text);
}

Result<std::optional<bool>> optional_bool(const json::object& config, std::string_view name) {
  const json::value* value = config.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr || value->is_null()) return std::optional<bool>();
  ASSIGN_OR_RETURN(const bool set, json_bool_or(config, name, false, "the file"));
  return std::optional<bool>(set);
}

Status read_added_tokens_decoder(const json::value& value, std::vector<AddedToken>& added) {
  ASSIGN_OR_RETURN(const json::object* entries, json_object(value, "\"added_tokens_decoder\""));
  for (const auto& entry : *entries) {
    const std::string_view key(entry.key().data(), entry.key().size());
    AddedToken token;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0 || token.id > kMaxTokenId) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("\"added_tokens_decoder\" has the key \"{}\", which is no token id", key));
    }
    const std::string where = fmt::format("added token {}", token.id);
    ASSIGN_OR_RETURN(const json::object* object, json_object(entry.value(), where));
    ASSIGN_OR_RETURN(const json::value* content_value, json_member(*object, "content", where));
    ASSIGN_OR_RETURN(const std::string_view content, json_string(*content_value, "\"content\" of " + where));
    if (content.empty()) return Error(ErrorCode::kCorrupt, where + " is empty");
    token.content = content;
    ASSIGN_OR_RETURN(token.special, json_bool_or(*object, "special", false, where));
    added.push_back(std::move(token));
  }
  return {};
}

}  // namespace

Result<TokenizerConfig> read_tokenizer_config(std::string_view text) {
  TokenizerConfig config;
  if (text.empty()) return config;
  ASSIGN_OR_RETURN(const json::value document, parse_json(text));
  ASSIGN_OR_RETURN(const json::object* root, json_object(document, "the file"));
  ASSIGN_OR_RETURN(config.bos_token, token_text(*root, "bos_token"));
  ASSIGN_OR_RETURN(config.eos_token, token_text(*root, "eos_token"));
  ASSIGN_OR_RETURN(config.pad_token, token_text(*root, "pad_token"));
  ASSIGN_OR_RETURN(config.add_bos_token, optional_bool(*root, "add_bos_token"));
  ASSIGN_OR_RETURN(config.add_eos_token, optional_bool(*root, "add_eos_token"));
  if (const json::value* chat_template = root->if_contains("chat_template");
      chat_template && chat_template->is_string()) {
    config.chat_template = std::string(chat_template->get_string());
  }
  if (const json::value* decoder = root->if_contains("added_tokens_decoder"); decoder && !decoder->is_null()) {
    RETURN_IF_ERROR(read_added_tokens_decoder(*decoder, config.added_tokens));
  }
  return config;
}

}  // namespace lantern
