// Rooms below this one name options as programs set them (max_model_len); who types commands knows flags.
#pragma once

#include <string>
#include <string_view>

#include "cli/command.h"

namespace lantern::cli {

// The message with the command's own flags in place of such names; a name that it has no flag for stays.
std::string with_flags(std::string_view message, const Command& command);

}  // namespace lantern::cli
