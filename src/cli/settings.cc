#include "cli/settings.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/check.h"

namespace lantern::cli {
namespace {

constexpr Limits kPositive{.lowest = 1, .highest = 2147483647};
constexpr Limits kNotNegative{.lowest = 0, .highest = 2147483647};

constexpr Setting kSettings[] = {
    // The model and how it runs.
    {.name = "model",
     .type = SettingType::kPath,
     .value_name = "DIR",
     .help = "Folder of the checkpoint: config.json, tokenizer, safetensors (default: models/tiny of the checkout)",
     .aliases = "-m",
     .from_environment = true},
    {.name = "device",
     .value_name = "NAME",
     .default_value = "auto",
     .help = "Where to compute; auto takes the best device that this build and machine have",
     .choices = "auto|cpu|cuda",
     .from_environment = true},
    {.name = "threads",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "0",
     .help = "CPU threads; 0 takes every usable core",
     .limits = {.lowest = 0, .highest = 1024},
     .from_environment = true},
    {.name = "kv-cache-dtype",
     .value_name = "TYPE",
     .default_value = "auto",
     .help = "Type of the latent cache: auto is bf16; fp8 takes 57 % of it; f32 rounds nothing (reference)",
     .choices = "auto|bf16|fp8|f32",
     .from_environment = true},
    {.name = "max-model-len",
     .type = SettingType::kSize,
     .value_name = "N",
     .help = "Longest context in tokens (default: the model's own limit)",
     .limits = kPositive,
     .aliases = "--ctx-size --context-length -c",
     .from_environment = true},
    {.name = "strict-config",
     .type = SettingType::kSwitch,
     .help = "Refuse a config.json with fields that Lantern does not know, instead of warning"},
    {.name = "draft-tokens",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "0",
     .help = "Tokens drafted for each step, which verifies them: the output is the same",
     .limits = {.lowest = 0, .highest = 8},
     .aliases = "--mtp"},
    {.name = "drafter",
     .value_name = "NAME",
     .default_value = "auto",
     .help = "Who drafts: the model's MTP layer, or n-grams of the text so far; auto is mtp where the model has it",
     .choices = "auto|mtp|ngram"},
    {.name = "mla-form",
     .value_name = "FORM",
     .default_value = "auto",
     .help = "Attention: auto expands the latents for prompts; absorbed computes a position alike in prompt and answer",
     .choices = "auto|absorbed"},
    {.name = "indexer",
     .value_name = "KIND",
     .default_value = "model",
     .help = "How sparse layers choose keys: by the model's indexer, or simply the most recent index_topk",
     .choices = "model|recent"},

    // How an engine serves many.
    {.name = "max-num-seqs",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "64",
     .help = "Sequences that run at a time",
     .limits = {.lowest = 1, .highest = 65536},
     .from_environment = true},
    {.name = "data-parallel-size",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "1",
     .help =
         "Engines that share the weights and run in step, each with caches, sequences and steps of its own; threads "
         "and the memory of caches are divided among them",
     .limits = {.lowest = 1, .highest = 64},
     .aliases = "--dp-size --dp",
     .from_environment = true},
    {.name = "max-num-batched-tokens",
     .type = SettingType::kSize,
     .value_name = "N",
     .help = "Tokens of one step (default: 512, or what drafts for every sequence need)",
     .limits = kPositive,
     .from_environment = true},
    {.name = "kv-cache-memory",
     .type = SettingType::kSize,
     .value_name = "BYTES",
     .help = "Memory of the caches (default: full contexts for all sequences, in half of what is free)",
     .limits = {.lowest = 1, .highest = 9e15},
     .aliases = "--kv-cache-memory-bytes",
     .from_environment = true},
    {.name = "enable-prefix-caching",
     .type = SettingType::kSwitch,
     .default_value = "true",
     .help = "Requests share the cache of the prompt that they begin with"},
    {.name = "max-logprobs",
     .type = SettingType::kInteger,
     .value_name = "K",
     .default_value = "20",
     .help = "Most likely tokens that a request may have listed for each token; -1: no log-probabilities",
     .limits = {.lowest = -1, .highest = 20},
     .from_environment = true},
    {.name = "graphs",
     .value_name = "MODE",
     .default_value = "auto",
     .help = "Replay steps of decodes from captured graphs: full; never: none; and eagerly too, comparing all: verify",
     .choices = "auto|none|full|piecewise|verify",
     .from_environment = true},
    {.name = "served-model-name",
     .value_name = "NAME",
     .help = "Name that requests may ask for, beside the model's folder; repeatable, the first is told to clients",
     .repeatable = true},

    // What goes in.
    {.name = "prompt",
     .value_name = "TEXT",
     .help = "Prompt text; special tokens in it are recognised",
     .aliases = "-p"},
    {.name = "prompt-file",
     .type = SettingType::kPath,
     .value_name = "FILE",
     .help = "Read the prompt from a file; - is standard input",
     .aliases = "-f"},
    {.name = "tokens", .value_name = "IDS", .help = "Token ids instead of text: \"0,17,42\" or a JSON array"},
    {.name = "text", .value_name = "TEXT", .help = "Text to work on; special tokens in it are recognised"},
    {.name = "text-file",
     .type = SettingType::kPath,
     .value_name = "FILE",
     .help = "Read the text from a file; - is standard input"},
    {.name = "bos",
     .type = SettingType::kSwitch,
     .default_value = "true",
     .help = "Begin with the beginning-of-sentence token where the tokenizer is configured to"},
    {.name = "special-tokens",
     .type = SettingType::kSwitch,
     .default_value = "true",
     .help = "Recognise special tokens in the text; --no-special-tokens takes them as plain text"},
    {.name = "decode", .value_name = "IDS", .help = "Turn token ids into text: \"0,17,42\" or a JSON array"},

    // What comes out.
    {.name = "max-tokens",
     .type = SettingType::kSize,
     .value_name = "N",
     .help = "Most tokens to generate (default: what the context has room for)",
     .limits = kPositive,
     .aliases = "-n"},
    {.name = "temperature",
     .type = SettingType::kReal,
     .value_name = "T",
     .help = "0 is greedy (default: generation_config.json, else 1)",
     .limits = {.lowest = 0, .highest = 100}},
    {.name = "top-p",
     .type = SettingType::kReal,
     .value_name = "P",
     .help = "Keep the most likely tokens of total probability P (default: generation_config.json, else 1)",
     .limits = {.lowest = 0, .highest = 1, .above_lowest = true}},
    {.name = "top-k",
     .type = SettingType::kInteger,
     .value_name = "K",
     .help = "Keep the K most likely tokens; 0 or -1 keeps all (default: generation_config.json, else 0)",
     .limits = {.lowest = -1, .highest = 2147483647}},
    {.name = "min-p",
     .type = SettingType::kReal,
     .value_name = "P",
     .default_value = "0",
     .help = "Drop tokens less likely than P times the likeliest",
     .limits = {.lowest = 0, .highest = 1}},
    {.name = "repetition-penalty",
     .type = SettingType::kReal,
     .value_name = "R",
     .help = "Divide logits above 0, and multiply others, of tokens that came up in prompt or output "
             "(default: generation_config.json, else 1)",
     .limits = {.lowest = 0, .highest = 1000, .above_lowest = true}},
    {.name = "presence-penalty",
     .type = SettingType::kReal,
     .value_name = "P",
     .default_value = "0",
     .help = "Subtracted from the logits of tokens that the output has",
     .limits = {.lowest = -2, .highest = 2}},
    {.name = "frequency-penalty",
     .type = SettingType::kReal,
     .value_name = "P",
     .default_value = "0",
     .help = "Subtracted from a token's logit for each time that the output has it",
     .limits = {.lowest = -2, .highest = 2}},
    {.name = "logit-bias",
     .value_name = "ID=VALUE",
     .help = "Add VALUE, -100 to 100, to the logit of token ID; repeatable",
     .repeatable = true},
    {.name = "bad-words",
     .value_name = "TEXT",
     .help = "Never write TEXT: the token that would complete it is not chosen; repeatable",
     .repeatable = true},
    {.name = "min-tokens",
     .type = SettingType::kSize,
     .value_name = "N",
     .default_value = "0",
     .help = "Tokens to generate before the end-of-sentence token or one of --stop-token-ids",
     .limits = kNotNegative},
    {.name = "stop-token-ids", .value_name = "IDS", .help = "End at one of these tokens too: \"0,17,42\""},
    {.name = "seed",
     .type = SettingType::kInteger,
     .value_name = "N",
     .help = "Random seed; the same seed gives the same text (default: a fresh one, printed with the statistics)",
     .limits = {.lowest = 0, .highest = 9.2e18}},
    {.name = "ignore-eos", .type = SettingType::kSwitch, .help = "Go on after the end-of-sentence token"},
    {.name = "stop",
     .value_name = "TEXT",
     .help = "End when the output contains TEXT, which is not printed; repeatable",
     .repeatable = true},
    {.name = "top-logprobs",
     .type = SettingType::kInteger,
     .value_name = "K",
     .default_value = "0",
     .help = "Also give the K most likely tokens of every position",
     .limits = {.lowest = 0, .highest = 20}},
    {.name = "check-graphs",
     .type = SettingType::kSwitch,
     .help = "Check captured graphs instead: replay the step plan of many buckets on poisoned memory and compare"},
    {.name = "replays",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "2000",
     .help = "How many replays --check-graphs makes",
     .limits = {.lowest = 1, .highest = 1e9}},
    {.name = "json", .type = SettingType::kSwitch, .help = "Print one JSON object instead of text"},
    {.name = "quiet", .type = SettingType::kSwitch, .help = "No statistics and no progress on stderr", .aliases = "-q"},
    {.name = "output",
     .type = SettingType::kPath,
     .value_name = "PATH",
     .help = "Where to write",
     .aliases = "-o --output-file"},

    // chat
    {.name = "system", .value_name = "TEXT", .help = "System message of the conversation"},
    {.name = "chat-format",
     .value_name = "NAME",
     .default_value = "auto",
     .help = "How a conversation is written for the model, e.g. deepseek_v32 or glm47; auto goes by the checkpoint"},
    {.name = "think",
     .type = SettingType::kSwitch,
     .help = "Whether the model thinks before it answers (default: as its format does by itself)"},

    // eval
    {.name = "limit",
     .type = SettingType::kSize,
     .value_name = "N",
     .help = "Only the first N items",
     .limits = kPositive},

    // bench
    {.name = "dummy", .value_name = "NAME", .help = "Random weights with the shapes of a public model, by name"},
    {.name = "layers",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "0",
     .help = "Layers to keep of the model; 0 keeps all",
     .limits = kNotNegative},
    {.name = "weights",
     .value_name = "TYPE",
     .default_value = "bf16",
     .help = "Type of the random weights",
     .choices = "bf16|fp8"},
    {.name = "context",
     .type = SettingType::kSize,
     .value_name = "N",
     .default_value = "1024",
     .help = "Tokens in the cache before the measured decode steps",
     .limits = kPositive},
    {.name = "repetitions",
     .type = SettingType::kSize,
     .value_name = "N",
     .default_value = "20",
     .help = "Measured decode steps; the median counts",
     .limits = kPositive},
    {.name = "prefill",
     .type = SettingType::kSize,
     .value_name = "N",
     .default_value = "512",
     .help = "Tokens of the measured prompt; 0 leaves prefill out",
     .limits = kNotNegative},
    {.name = "requests",
     .type = SettingType::kSize,
     .value_name = "N",
     .default_value = "64",
     .help = "Requests that come at once",
     .limits = {.lowest = 1, .highest = 65536},
     .aliases = "--num-prompts --batch-size"},
    {.name = "input-len",
     .type = SettingType::kSize,
     .value_name = "N",
     .default_value = "128",
     .help = "Random tokens of each prompt, where there is no file of prompts",
     .limits = kPositive},
    {.name = "output-len",
     .type = SettingType::kSize,
     .value_name = "N",
     .default_value = "64",
     .help = "Tokens that each request makes",
     .limits = kPositive},
    {.name = "prompts",
     .type = SettingType::kPath,
     .value_name = "FILE",
     .help = "JSON lines with \"prompt\" (default: eval/arithmetic.jsonl of the model where it is, else random tokens)",
     .aliases = "--dataset-path"},
    {.name = "synthetic-acceptance",
     .type = SettingType::kReal,
     .value_name = "P",
     .help = "Accept each draft with this chance instead of checking it: for random weights",
     .limits = {.lowest = 0, .highest = 1}},
    {.name = "adaptive-drafts",
     .type = SettingType::kSwitch,
     .default_value = "true",
     .help = "Draft as many tokens as pay; --no-adaptive-drafts always drafts --draft-tokens"},
    {.name = "size",
     .type = SettingType::kSize,
     .value_name = "BYTES",
     .default_value = "1Gi",
     .help = "Bytes to read in one pass",
     .limits = {.lowest = 1 << 20, .highest = 1e12}},
    {.name = "filter", .value_name = "TEXT", .help = "Only the cases with TEXT in their names"},

    // plan
    {.name = "input",
     .type = SettingType::kPath,
     .value_name = "FILE",
     .help = "JSON file with a batch or a list of batches; - reads standard input",
     .aliases = "-i --input-file"},

    // serve
    {.name = "host",
     .value_name = "ADDRESS",
     .default_value = "127.0.0.1",
     .help = "Address or name to listen on; 0.0.0.0 or :: is every interface of the machine",
     .from_environment = true},
    {.name = "port",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "8000",
     .help = "Port to listen on; 0 takes a free one, which the start-up text names",
     // Not from the environment: for a service named lantern Kubernetes sets LANTERN_PORT to a URL.
     .limits = {.lowest = 0, .highest = 65535}},
    {.name = "api-key",
     .value_name = "KEY",
     .help =
         "Key that requests must bring (\"Authorization: Bearer KEY\" or \"x-api-key: KEY\"); repeatable, or a list "
         "with commas; the environment keeps it out of the list of processes",
     .repeatable = true,
     .from_environment = true},
    {.name = "api-key-file",
     .type = SettingType::kPath,
     .value_name = "FILE",
     .help = "Further keys, one a line",
     .from_environment = true},
    {.name = "allowed-origins",
     .value_name = "ORIGIN",
     .help =
         "Web pages that may use the server, beside its own and those on this machine, as https://chat.example.org; "
         "* is all; repeatable",
     .repeatable = true},
    {.name = "allowed-hosts",
     .value_name = "NAME",
     .help = "Host names that a server on the loopback interface answers to, beside localhost; repeatable",
     .repeatable = true},
    {.name = "max-connections",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "4096",
     .help = "Connections that may be open; further ones are told so and closed",
     .limits = {.lowest = 1, .highest = 1000000},
     .from_environment = true},
    {.name = "max-num-queued-reqs",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "1024",
     .help = "Requests that may wait for their first token; further ones are refused (503) before they cost anything",
     .limits = kPositive,
     .aliases = "--max-queued-requests",
     .from_environment = true},
    {.name = "max-num-queued-tokens",
     .type = SettingType::kSize,
     .value_name = "N",
     .default_value = "0",
     .help = "Tokens of their prompts, by the length of their text; 0 is any number",
     .limits = {.lowest = 0, .highest = 9e15},
     .from_environment = true},
    {.name = "max-body-size",
     .type = SettingType::kSize,
     .value_name = "BYTES",
     .default_value = "32Mi",
     .help = "Longest request body",
     .limits = {.lowest = 1024, .highest = 1e9}},
    {.name = "header-timeout",
     .type = SettingType::kReal,
     .value_name = "SECONDS",
     .default_value = "10",
     .help = "For a request's header to come in",
     .limits = {.lowest = 0.01, .highest = 3600}},
    {.name = "body-timeout",
     .type = SettingType::kReal,
     .value_name = "SECONDS",
     .default_value = "60",
     .help = "For a request's body to come in",
     .limits = {.lowest = 0.01, .highest = 3600}},
    {.name = "keep-alive-timeout",
     .type = SettingType::kReal,
     .value_name = "SECONDS",
     .default_value = "75",
     .help = "That a connection may stay open without a request",
     .limits = {.lowest = 0.01, .highest = 86400}},
    {.name = "ping-interval",
     .type = SettingType::kReal,
     .value_name = "SECONDS",
     .default_value = "15",
     .help = "Of silence, after which a stream gets a comment, so that nobody takes it for dead",
     .limits = {.lowest = 0.01, .highest = 3600}},
    {.name = "allow-half-close",
     .type = SettingType::kSwitch,
     .help = "A client that has closed its sending half still waits for its answer; without this it counts as gone and "
             "its request ends"},
    {.name = "shutdown-timeout",
     .type = SettingType::kReal,
     .value_name = "SECONDS",
     .default_value = "30",
     .help =
         "That requests in work have to end when the server is stopped (SIGTERM, Ctrl-C); what is left ends with an "
         "error. A second signal ends the process at once",
     .limits = {.lowest = 0, .highest = 86400},
     .from_environment = true},
    {.name = "watchdog-timeout",
     .type = SettingType::kReal,
     .value_name = "SECONDS",
     .default_value = "300",
     .help = "After which a step that does not end makes the server report what it knows and exit with 1; 0 is never",
     .limits = {.lowest = 0, .highest = 86400},
     .from_environment = true},
    {.name = "stream-interval",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "1",
     .help = "Tokens in one event of a stream, but for the first and the last; a request may ask for more",
     .limits = {.lowest = 1, .highest = 4096}},
    {.name = "enable-force-include-usage",
     .type = SettingType::kSwitch,
     .help = "Streams end with an event of usage whether asked for or not"},
    {.name = "reasoning-field",
     .value_name = "NAME",
     .default_value = "reasoning_content",
     .help = "What a message's thinking is called in answers",
     .choices = "reasoning_content|reasoning"},
    {.name = "enable-tokenizer-info-endpoint",
     .type = SettingType::kSwitch,
     .help = "GET /tokenizer_info answers; it tells the chat template"},
    {.name = "access-log",
     .type = SettingType::kSwitch,
     .default_value = "true",
     .help = "A line on stderr for every answer, without anything of prompts, answers and keys"},
    {.name = "log-format",
     .value_name = "FORMAT",
     .default_value = "text",
     .help = "Of the access log",
     .choices = "text|json"},
    {.name = "http-threads",
     .type = SettingType::kInteger,
     .value_name = "N",
     .default_value = "2",
     .help = "Threads that read and write sockets, and as many that read requests and tokenize",
     .limits = {.lowest = 1, .highest = 64}},

    // Everywhere.
    {.name = "log-level",
     .value_name = "LEVEL",
     .default_value = "warning",
     .help = "Least severe message to print",
     .choices = "debug|info|warning|error",
     .from_environment = true},
    {.name = "markdown", .type = SettingType::kSwitch, .help = "Print the whole reference as Markdown"},
};

constexpr int64_t kKibi = 1024;

Result<int64_t> size_factor(std::string_view suffix) {
  struct Suffix {
    std::string_view name;
    int64_t factor;
  };
  static constexpr Suffix kSuffixes[] = {{"", 1},
                                         {"k", 1'000},
                                         {"m", 1'000'000},
                                         {"g", 1'000'000'000},
                                         {"K", kKibi},
                                         {"Ki", kKibi},
                                         {"M", kKibi * kKibi},
                                         {"Mi", kKibi * kKibi},
                                         {"G", kKibi * kKibi * kKibi},
                                         {"Gi", kKibi * kKibi * kKibi}};
  for (const Suffix& known : kSuffixes) {
    if (known.name == suffix) return known.factor;
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("'{}' is no size suffix (k, K, Ki, m, M, Mi, g, G, Gi)", suffix));
}

}  // namespace

std::span<const Setting> all_settings() { return kSettings; }

const Setting& find_setting(std::string_view name) {
  for (const Setting& setting : kSettings) {
    if (setting.name == name) return setting;
  }
  CHECK(false, "no setting is named {}", name);
}

std::string environment_name(const Setting& setting) {
  std::string name = "LANTERN_";
  for (char c : setting.name) name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

std::optional<std::string> environment_value(const Setting& setting) {
  if (!setting.from_environment) return std::nullopt;
  const char* value =
      std::getenv(environment_name(setting).c_str());           // NOLINT(concurrency-mt-unsafe): before any thread
  if (value == nullptr || *value == '\0') return std::nullopt;  // empty says nothing, as with other tools
  return std::string(value);
}

Result<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a whole number", text));
  }
  return value;
}

Result<double> parse_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a number", text));
  }
  return value;
}

Result<int64_t> parse_size(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  if (digits == 0) return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a number of 0 or more", text));
  const std::string_view suffix = text.substr(digits);
  ASSIGN_OR_RETURN(const int64_t factor, size_factor(suffix));
  double value = 0;
  if (text.substr(0, digits).find('.') == std::string_view::npos) {
    ASSIGN_OR_RETURN(const int64_t whole, parse_integer(text.substr(0, digits)));
    value = static_cast<double>(whole);
  } else {
    ASSIGN_OR_RETURN(value, parse_real(text.substr(0, digits)));
  }
  const double size = value * static_cast<double>(factor);
  if (size != std::floor(size) || size > 9e15) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a whole number of a sensible size", text));
  }
  return static_cast<int64_t>(size);
}

Status check_value(const Setting& setting, std::string_view flag, std::string_view value) {
  if (!setting.choices.empty()) {
    for (std::string_view rest = setting.choices; !rest.empty();) {
      const size_t bar = std::min(rest.find('|'), rest.size());
      if (rest.substr(0, bar) == value) return {};
      rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} must be one of {}, not '{}'", flag, setting.choices, value));
  }
  double number = 0;
  switch (setting.type) {
    case SettingType::kText:
    case SettingType::kPath: return {};
    case SettingType::kSwitch:
      if (value == "true" || value == "false") return {};
      return Error(ErrorCode::kInvalidArgument, fmt::format("{} must be true or false, not '{}'", flag, value));
    case SettingType::kInteger: {
      Result<int64_t> parsed = parse_integer(value);
      if (!parsed.ok()) return std::move(parsed).error().within(flag);
      number = static_cast<double>(*parsed);
      break;
    }
    case SettingType::kSize: {
      Result<int64_t> parsed = parse_size(value);
      if (!parsed.ok()) return std::move(parsed).error().within(flag);
      number = static_cast<double>(*parsed);
      break;
    }
    case SettingType::kReal: {
      Result<double> parsed = parse_real(value);
      if (!parsed.ok()) return std::move(parsed).error().within(flag);
      number = *parsed;
      break;
    }
  }
  const Limits& limits = setting.limits;
  if (number < limits.lowest || number > limits.highest || (limits.above_lowest && number == limits.lowest)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} must be {} {} and at most {}, not {}", flag,
                             limits.above_lowest ? "above" : "at least", limits.lowest, limits.highest, value));
  }
  return {};
}

void Values::declare(std::string_view name, std::string_view default_value) {
  Value value;
  if (!default_value.empty()) value.values.emplace_back(default_value);
  values_.insert_or_assign(std::string(name), std::move(value));
}

void Values::set(std::string_view name, std::vector<std::string> values) {
  values_.insert_or_assign(std::string(name), Value{.values = std::move(values), .given = true});
}

const Values::Value& Values::find(std::string_view name) const {
  const auto found = values_.find(name);
  CHECK(found != values_.end(), "this command has no setting {}", name);
  return found->second;
}

bool Values::given(std::string_view name) const { return find(name).given; }

bool Values::is_on(std::string_view name) const { return text(name) == "true"; }

const std::string& Values::text(std::string_view name) const {
  static const std::string none;
  const Value& value = find(name);
  return value.values.empty() ? none : value.values.back();
}

int64_t Values::integer(std::string_view name) const {
  const std::string& value = text(name);
  Result<int64_t> parsed = find_setting(name).type == SettingType::kSize ? parse_size(value) : parse_integer(value);
  CHECK(parsed.ok(), "setting {} has no number", name);
  return *parsed;
}

double Values::real(std::string_view name) const {
  Result<double> parsed = parse_real(text(name));
  CHECK(parsed.ok(), "setting {} has no number", name);
  return *parsed;
}

const std::vector<std::string>& Values::list(std::string_view name) const { return find(name).values; }

}  // namespace lantern::cli
