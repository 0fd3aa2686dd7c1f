// What is wrong with a text that should be JSON, for whoever has to mend it.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/result.h"

namespace lantern {

// "not valid JSON at line 3, column 6, byte 16 of 18 (syntax error)": where reading stopped, lines and columns counted
// from 1, columns in bytes. Precondition: `text` is not a JSON document of at most `max_depth` levels.
Error json_error(std::string_view text, size_t max_depth = 32);

}  // namespace lantern
