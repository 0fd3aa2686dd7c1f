// Values of settings that are more than a word or a number: one reader each, for the registry's check and for the
// command that takes the value.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/sampling_settings.h"

namespace lantern::cli {

// "0,17,42", "0 17 42" or "[0, 17, 42]". Errors say at which character, counted from 1; no id at all is one.
Result<std::vector<int32_t>> parse_token_ids(std::string_view text);
// "17=-2.5", from -100 to 100.
Result<LogitBias> parse_logit_bias(std::string_view text);
// Per second, above 0; infinite for "inf".
Result<double> parse_request_rate(std::string_view text);

// Something besides blanks.
Status check_has_text(std::string_view text);
// A list with commas that has a key.
Status check_has_key(std::string_view text);
// Not "-": what is written to a file of its own is no part of standard output.
Status check_is_file(std::string_view text);
// Patterns with commas between them, none of which is empty.
Status check_name_patterns(std::string_view text);
// "auto" or a name that parse_chat_format() knows.
Status check_chat_format(std::string_view text);

// A reader as the check that a setting has.
template <auto kParse>
Status form_of(std::string_view text) {
  auto parsed = kParse(text);
  if (!parsed.ok()) return std::move(parsed).error();
  return {};
}

}  // namespace lantern::cli
