// What help texts, the Markdown reference and the manual page have in common.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cli/command.h"

namespace lantern::cli {

// "--max-tokens N, -n"
std::string flag_column(const Setting& setting, const SettingUse& use);
// What it does, with choices, default and environment name.
std::string help_column(const Setting& setting, const SettingUse& use);
// "lantern serve [MODEL] [flags]"
std::string usage_line(const Command& command);
// What each exit code means.
std::span<const std::pair<std::string_view, std::string_view>> exit_codes();

}  // namespace lantern::cli
