#include "cli/option_names.h"

#include <algorithm>

namespace lantern::cli {
namespace {

struct OptionFlag {
  std::string_view option;
  std::string_view setting;  // that a command must have
  std::string_view flag;
};

// The first that the command has counts. Fields of files have some of these names too, but never stand bare in the
// messages of a command with the flag.
constexpr OptionFlag kFlags[] = {
    {"max_model_len", "max-model-len", "--max-model-len"},
    {"max_model_len", "context", "--context or --prefill"},
    {"kv_cache_bytes", "kv-cache-memory", "--kv-cache-memory"},
    {"max_num_seqs", "max-num-seqs", "--max-num-seqs"},
    {"max_num_batched_tokens", "max-num-batched-tokens", "--max-num-batched-tokens"},
    {"max_logprobs", "max-logprobs", "--max-logprobs"},
    {"max_traced_rows", "max-traced-rows", "--max-traced-rows"},
    {"traced_layer", "traced-layer", "--traced-layer"},
    {"data_parallel_size", "data-parallel-size", "--data-parallel-size"},
    {"max_tokens", "max-tokens", "--max-tokens"},
    {"min_tokens", "min-tokens", "--min-tokens"},
    {"logit_bias", "logit-bias", "--logit-bias"},
    {"bad_words", "bad-words", "--bad-words"},
    {"stop_token_ids", "stop-token-ids", "--stop-token-ids"},
};

bool has(const Command& command, std::string_view setting) {
  return std::ranges::any_of(command.settings, [&](const SettingUse& use) { return use.name == setting; });
}

// Of a longer name, a path or a quotation.
bool goes_on(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         std::string_view("_-/.\"'").find(c) != std::string_view::npos;
}

bool stands_alone(std::string_view text, size_t begin, size_t size) {
  const size_t end = begin + size;
  return (begin == 0 || !goes_on(text[begin - 1])) && (end == text.size() || !goes_on(text[end]));
}

}  // namespace

std::string with_flags(std::string_view message, const Command& command) {
  std::string text(message);
  for (const OptionFlag& known : kFlags) {
    if (!has(command, known.setting)) continue;
    for (size_t at = text.find(known.option); at != std::string::npos;) {
      const bool alone = stands_alone(text, at, known.option.size());
      if (alone) text.replace(at, known.option.size(), known.flag);
      at = text.find(known.option, at + (alone ? known.flag.size() : known.option.size()));
    }
  }
  return text;
}

}  // namespace lantern::cli
