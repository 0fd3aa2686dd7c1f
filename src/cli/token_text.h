// How tables of tokens show one.
#pragma once

#include <string>
#include <string_view>

namespace lantern::cli {

// A JSON string; where the bytes are no whole characters, as those of many tokens are not, each that is not printable
// ASCII as \xE2.
std::string token_text(std::string_view bytes);

}  // namespace lantern::cli
