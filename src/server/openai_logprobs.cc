#include "server/openai_logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

namespace lantern {
namespace {

namespace json = boost::json;

// JSON has no infinity; this is what clients of the API know for it.
constexpr double kNoChance = -9999.0;
double number_of(float logprob) { return std::isinf(logprob) ? kNoChance : static_cast<double>(logprob); }

int64_t count_code_points(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) != 0x80u; });
}

std::string text_of(const Tokenizer& tokenizer, int32_t token, bool as_ids = false) {
  return as_ids ? fmt::format("token_id:{}", token) : tokenizer.decode({&token, 1});
}

json::array bytes_of(const Tokenizer& tokenizer, int32_t token) {
  json::array bytes;
  for (const char byte : tokenizer.token_bytes(token)) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

// f(token, logprob, rank) of the leading `top` tokens of a row.
template <class F>
void for_each_top(const Logprobs& rows, size_t row, int32_t top, F&& f) {
  const size_t begin = row * static_cast<size_t>(rows.width);
  for (int32_t i = 0; i < std::min(top, rows.width); ++i) {
    const size_t at = begin + static_cast<size_t>(i);
    if (rows.top_tokens[at] >= 0) f(rows.top_tokens[at], rows.top_logprobs[at], i + 1);
  }
}

}  // namespace

void CompletionLogprobs::add_text(int32_t token) {
  texts_.emplace_back(text_of(tokenizer_, token, as_ids_));
  offsets_.push_back(code_points_);
  code_points_ += count_code_points(detokenizer_.add(token));
}

void CompletionLogprobs::add_row(int32_t token, const Logprobs& rows, size_t row, int32_t top) {
  add_text(token);
  const double logprob = number_of(rows.logprobs[row]);
  logprobs_.emplace_back(logprob);
  json::object likeliest;
  for_each_top(rows, row, top, [&](int32_t other, float value, int32_t) {
    likeliest.emplace(text_of(tokenizer_, other, as_ids_), number_of(value));
  });
  likeliest.emplace(texts_.back().get_string(), logprob);
  top_.emplace_back(std::move(likeliest));
}

void CompletionLogprobs::add_prompt(std::span<const int32_t> tokens, const Logprobs& rows, int32_t top) {
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (t > 0) {
      add_row(tokens[t], rows, t - 1, top);
      continue;
    }
    add_text(tokens[t]);
    logprobs_.emplace_back(nullptr);
    top_.emplace_back(nullptr);
  }
  code_points_ += count_code_points(detokenizer_.flush());
}

void CompletionLogprobs::add_output(std::span<const int32_t> tokens, const Logprobs& rows, int32_t top) {
  for (size_t t = 0; t < tokens.size(); ++t) add_row(tokens[t], rows, t, top);
}

json::object CompletionLogprobs::take(std::string_view text) {
  const int64_t end = count_code_points(text);
  json::array offsets;
  for (const int64_t offset : offsets_) offsets.emplace_back(std::min(offset, end));
  return {{"tokens", std::move(texts_)},
          {"token_logprobs", std::move(logprobs_)},
          {"top_logprobs", std::move(top_)},
          {"text_offset", std::move(offsets)}};
}

json::object CompletionLogprobs::take_piece() {
  json::array offsets;
  for (const int64_t offset : std::exchange(offsets_, {})) offsets.emplace_back(offset);
  return {{"tokens", std::exchange(texts_, {})},
          {"token_logprobs", std::exchange(logprobs_, {})},
          {"top_logprobs", std::exchange(top_, {})},
          {"text_offset", std::move(offsets)}};
}

json::object chat_logprobs(const Tokenizer& tokenizer, std::span<const int32_t> tokens, const Logprobs& rows,
                           int32_t top, bool as_ids) {
  const auto entry = [&](int32_t token, float logprob) {
    return json::object{{"token", text_of(tokenizer, token, as_ids)},
                        {"logprob", number_of(logprob)},
                        {"bytes", bytes_of(tokenizer, token)}};
  };
  json::array content;
  for (size_t t = 0; t < tokens.size(); ++t) {
    json::object one = entry(tokens[t], rows.logprobs[t]);
    json::array likeliest;
    for_each_top(rows, t, top,
                 [&](int32_t other, float value, int32_t) { likeliest.emplace_back(entry(other, value)); });
    one["top_logprobs"] = std::move(likeliest);
    content.emplace_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

void TextLogprobs::add(std::span<const int32_t> tokens, const Logprobs& rows) {
  json::object told = chat_logprobs(tokenizer_, tokens, rows, top_, as_ids_);
  json::array& entries = told.at("content").get_array();
  for (size_t t = 0; t < tokens.size(); ++t)
    entries_.push_back({std::string(tokenizer_.token_bytes(tokens[t])), std::move(entries[t])});
}

json::array TextLogprobs::take(std::string_view text) {
  json::array taken;
  size_t same = 0;
  while (same < rest_.size() && same < text.size() && rest_[same] == text[same]) ++same;
  text.remove_prefix(same);
  rest_ = text.empty() ? rest_.substr(same) : std::string();
  while (!text.empty() && !entries_.empty()) {
    Entry& entry = entries_.front();
    const bool ends_in_it = entry.bytes.starts_with(text);
    if (ends_in_it || (!entry.bytes.empty() && text.starts_with(entry.bytes))) {
      rest_ = ends_in_it ? entry.bytes.substr(text.size()) : std::string();
      text.remove_prefix(std::min(text.size(), entry.bytes.size()));
      taken.push_back(std::move(entry.told));
    }
    entries_.pop_front();
  }
  return taken;
}

json::array prompt_logprobs(const Tokenizer& tokenizer, std::span<const int32_t> tokens, const Logprobs& rows,
                            int32_t top) {
  json::array all;
  all.emplace_back(nullptr);
  for (size_t t = 1; t < tokens.size(); ++t) {
    json::object of_token;
    const auto put = [&](int32_t token, float logprob, int32_t rank) {
      of_token.emplace(
          fmt::format("{}", token),
          json::object{{"logprob", number_of(logprob)}, {"rank", rank}, {"decoded_token", text_of(tokenizer, token)}});
    };
    for_each_top(rows, t - 1, top, put);
    put(tokens[t], rows.logprobs[t - 1], rows.ranks[t - 1]);
    all.emplace_back(std::move(of_token));
  }
  return all;
}

}  // namespace lantern
