// What `bench serve` asks a server.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <random>
#include <sstream>

#include "cli/bench_serve.h"
#include "cli/console.h"
#include "cli/model_access.h"

namespace lantern::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// The ids of random prompts are those of such words: every tokenizer has them, and none is special.
constexpr std::string_view kWords =
    "apple river stone paper light green house water mountain bread yellow garden winter music letter silver ocean "
    "window forest summer table morning bridge cloud island market orange pencil rabbit school tiger violet walnut "
    "yard zebra anchor basket candle desert engine farmer glass hammer iron jacket kitchen ladder mirror needle oven "
    "pocket queen road shadow tower uncle valley wagon animal bottle circle dollar evening flower ground hundred "
    "inside "
    "journey keep little middle number open people question right small think under voice world young zero 12 345 6789";
constexpr const char* kChatTasks[] = {"eval/arithmetic.jsonl", "eval/copysort.jsonl", "eval/recall.jsonl"};

struct ServePrompt {
  json::value content;     // text, or ids
  int64_t max_tokens = 0;  // 0: the file does not say
};

// Tokens of random prompts, which the server itself named.
class RandomTokens {
 public:
  RandomTokens(std::vector<int64_t> ids, uint64_t seed) : ids_(std::move(ids)), random_(seed) {}

  static Result<RandomTokens> of(ServerAccess& server, const ServeTarget& target, uint64_t seed) {
    const json::object body{{"model", target.model}, {"prompt", kWords}, {"add_special_tokens", false}};
    Result<std::string> text = server.fetch(server.post("/tokenize", json::serialize(body)));
    if (!text.ok()) {
      return std::move(text).error().within(
          "the server must tokenize for random prompts, else give --dataset-name chat or --prompts FILE");
    }
    json::error_code failure;
    const json::value document = json::parse(*text, failure);
    const json::value* tokens = failure ? nullptr : document.find_pointer("/tokens", failure);
    std::vector<int64_t> ids;
    if (tokens != nullptr && tokens->is_array()) {
      for (const json::value& token : tokens->get_array()) {
        if (token.is_int64()) ids.push_back(token.get_int64());
      }
    }
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    if (ids.empty()) return Error(ErrorCode::kCorrupt, fmt::format("{}/tokenize names no tokens", server.url()));
    return RandomTokens(std::move(ids), seed);
  }

  json::array make(int64_t count) {
    std::uniform_int_distribution<size_t> any(0, ids_.size() - 1);
    json::array tokens;
    tokens.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) tokens.emplace_back(ids_[any(random_)]);
    return tokens;
  }
  // From (1 - ratio) * length to (1 + ratio) * length, at least 1.
  int64_t length(int64_t length, double ratio) {
    const auto least = static_cast<int64_t>(std::ceil(static_cast<double>(length) * (1 - ratio)));
    const auto most = static_cast<int64_t>(std::floor(static_cast<double>(length) * (1 + ratio)));
    return std::uniform_int_distribution<int64_t>(std::max<int64_t>(least, 1), std::max<int64_t>(most, 1))(random_);
  }

 private:
  std::vector<int64_t> ids_;
  std::mt19937_64 random_;
};

// Completions take ids as they are; a chat needs text.
Result<json::value> content_of(ServerAccess& server, const ServeTarget& target, json::array tokens) {
  if (!target.chat) return json::value(std::move(tokens));
  const json::object body{{"model", target.model}, {"tokens", std::move(tokens)}};
  ASSIGN_OR_RETURN(const std::string text, server.fetch(server.post("/detokenize", json::serialize(body))));
  json::error_code failure;
  const json::value document = json::parse(text, failure);
  const json::value* prompt = failure ? nullptr : document.find_pointer("/prompt", failure);
  if (prompt == nullptr || !prompt->is_string())
    return Error(ErrorCode::kCorrupt, fmt::format("{}/detokenize gives no text", server.url()));
  return *prompt;
}

Result<std::vector<ServePrompt>> random_prompts(const Values& values, ServerAccess& server, const ServeTarget& target,
                                                int64_t count) {
  ASSIGN_OR_RETURN(RandomTokens random,
                   RandomTokens::of(server, target, static_cast<uint64_t>(values.integer("seed"))));
  const double ratio = values.real("range-ratio");
  std::vector<json::array> prefixes;
  if (values.text("dataset-name") == "prefix-repetition") {
    for (int64_t i = 0; i < values.integer("num-prefixes"); ++i)
      prefixes.push_back(random.make(values.integer("prefix-len")));
  }
  std::vector<ServePrompt> prompts;
  for (int64_t i = 0; i < count; ++i) {
    json::array tokens;
    if (!prefixes.empty()) tokens = prefixes[static_cast<size_t>(i) % prefixes.size()];
    for (json::value& token : random.make(random.length(values.integer("input-len"), ratio)))
      tokens.push_back(std::move(token));
    ServePrompt prompt;
    ASSIGN_OR_RETURN(prompt.content, content_of(server, target, std::move(tokens)));
    prompt.max_tokens = random.length(values.integer("output-len"), ratio);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// JSON lines with "prompt" and, where they have it, "max_tokens" or vLLM's "output_tokens".
Result<std::vector<ServePrompt>> read_prompts(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_text(path));
  std::vector<ServePrompt> prompts;
  std::istringstream lines(text);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    json::error_code failure;
    const json::value document = json::parse(line, failure);
    const json::value* prompt = failure ? nullptr : document.find_pointer("/prompt", failure);
    if (prompt == nullptr || !prompt->is_string()) {
      return Error(ErrorCode::kCorrupt,
                   fmt::format("{}: line {} is no JSON object with a string \"prompt\"", path, number));
    }
    ServePrompt made{.content = *prompt};
    for (const char* name : {"max_tokens", "output_tokens"}) {
      const json::value* most = document.get_object().if_contains(name);
      if (most == nullptr) continue;
      if (!most->is_int64() || most->get_int64() < 1) {
        return Error(ErrorCode::kCorrupt,
                     fmt::format("{}: line {}: \"{}\" is no number of 1 or more", path, number, name));
      }
      made.max_tokens = most->get_int64();
    }
    prompts.push_back(std::move(made));
  }
  if (prompts.empty()) return Error(ErrorCode::kCorrupt, fmt::format("{}: has no prompts", path));
  return prompts;
}

// Of several files all prompts, in an order by the seed; again from the beginning where there are too few.
Result<std::vector<ServePrompt>> prompts_of_files(const Values& values, const std::vector<std::string>& paths,
                                                  int64_t count) {
  std::vector<ServePrompt> all;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(std::vector<ServePrompt> read, read_prompts(path));
    std::ranges::move(read, std::back_inserter(all));
  }
  std::mt19937_64 random(static_cast<uint64_t>(values.integer("seed")));
  std::shuffle(all.begin(), all.end(), random);
  std::vector<ServePrompt> prompts;
  for (int64_t i = 0; i < count; ++i) {
    prompts.push_back(all[static_cast<size_t>(i) % all.size()]);
    int64_t& most = prompts.back().max_tokens;
    if (most == 0 || values.given("output-len")) most = values.integer("output-len");
  }
  return prompts;
}

Result<std::vector<ServePrompt>> make_prompts(const Values& values, ServerAccess& server, const ServeTarget& target,
                                              int64_t count) {
  if (values.given("prompts")) return prompts_of_files(values, {values.text("prompts")}, count);
  if (values.text("dataset-name") != "chat") return random_prompts(values, server, target, count);
  ASSIGN_OR_RETURN(const fs::path model, default_model_dir());
  std::vector<std::string> paths;
  for (const char* task : kChatTasks) paths.push_back((model / task).string());
  return prompts_of_files(values, paths, count);
}

}  // namespace

Result<std::vector<std::string>> serve_requests(const Values& values, ServerAccess& server, const ServeTarget& target,
                                                int64_t count) {
  ASSIGN_OR_RETURN(const std::vector<ServePrompt> prompts, make_prompts(values, server, target, count));
  std::vector<std::string> bodies;
  for (const ServePrompt& prompt : prompts) {
    json::object body{{"model", target.model}};
    if (target.chat) {
      body["messages"] = json::array{json::object{{"role", "user"}, {"content", prompt.content}}};
    } else {
      body["prompt"] = prompt.content;
    }
    body[target.chat ? "max_completion_tokens" : "max_tokens"] = prompt.max_tokens;
    body["temperature"] = values.real("temperature");
    if (values.is_on("ignore-eos")) body["ignore_eos"] = true;
    body["stream"] = true;
    body["stream_options"] = json::object{{"include_usage", true}};
    bodies.push_back(json::serialize(body));
  }
  return bodies;
}

}  // namespace lantern::cli
