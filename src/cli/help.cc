// Help texts and the Markdown reference, made from the registry.
#include <fmt/format.h>

#include <algorithm>

#include "cli/help_parts.h"

namespace lantern::cli {
namespace {

// Shell examples and tables take | and < literally; a Markdown table cell does not.
std::string markdown_cell(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

std::string flag_column(const Setting& setting, const SettingUse& use) {
  const std::string_view value_name = use.value_name.empty() ? setting.value_name : use.value_name;
  std::string text = setting.type == SettingType::kSwitch ? fmt::format("--[no-]{}", setting.name)
                                                          : fmt::format("--{} {}", setting.name, value_name);
  for (const std::string_view alias : alias_flags(setting)) text += fmt::format(", {}", alias);
  return text;
}

std::string help_column(const Setting& setting, const SettingUse& use) {
  std::string text(use.help.empty() ? setting.help : use.help);
  const std::string_view default_value = use.default_value.value_or(setting.default_value);
  std::string notes;
  const auto note = [&](std::string_view part) { notes += fmt::format("{}{}", notes.empty() ? "" : "; ", part); };
  if (!setting.choices.empty()) note(setting.choices);
  if (!default_value.empty() && setting.type != SettingType::kSwitch) note(fmt::format("default {}", default_value));
  if (setting.type == SettingType::kSwitch && default_value == "true") note("default on");
  if (setting.from_environment && !use.ignores_environment) note(environment_name(setting));
  return notes.empty() ? text : fmt::format("{} [{}]", text, notes);
}

std::string usage_line(const Command& command) {
  std::string usage = fmt::format("lantern {}", command.name);
  if (!command.positional.empty()) {
    usage +=
        command.positional_required ? fmt::format(" {}", command.positional) : fmt::format(" [{}]", command.positional);
  }
  return usage + " [flags]";
}

std::span<const std::pair<std::string_view, std::string_view>> exit_codes() {
  static constexpr std::pair<std::string_view, std::string_view> kCodes[] = {
      {"0", "success"},
      {"1", "the input or the set-up is at fault; one line on standard error says what"},
      {"2", "bad usage: an unknown flag, one that is there twice, a value that is empty, malformed or out of range"},
      {"3", "memory or device"},
      {"128 + n", "ended by signal n (130: Ctrl-C; what was generated so far is kept)"},
  };
  return kCodes;
}

std::string overview_text() {
  std::string text =
      "lantern: inference for latent-attention language models\n\nusage: lantern COMMAND [flags]\n\ncommands:\n";
  size_t width = 0;
  for (const Command& command : all_commands()) width = std::max(width, command.name.size());
  for (const Command& command : all_commands()) {
    text += fmt::format("  {:<{}} {}\n", command.name, width, command.summary);
  }
  text +=
      "\nlantern COMMAND --help explains a command; lantern --version prints the version.\n"
      "Exit codes: 0 success, 1 the input or the set-up is at fault, 2 bad usage, 3 memory or device, 128+n signal "
      "n.\n";
  return text;
}

std::string help_text(const Command& command) {
  std::string text = fmt::format("{}\n\nusage: {}\n", command.summary, usage_line(command));
  if (!command.example.empty()) text += fmt::format("example: {}\n", command.example);
  if (!command.note.empty()) text += fmt::format("\n{}\n", command.note);
  text += "\nflags (_ and - are the same in their names; sizes take k, Ki, M, ...):\n";
  for (const SettingUse& use : settings_of(command)) {
    const Setting& setting = find_setting(use.name);
    const std::string flag = flag_column(setting, use);
    const std::string_view gap = flag.size() > 28 ? "\n                               " : " ";
    text += fmt::format("  {:<28}{}{}\n", flag, gap, help_column(setting, use));
  }
  return text + "\n";
}

std::string help_markdown() {
  std::string text =
      "# Command line\n\nMade by `lantern help --markdown`; do not edit by hand.\n\n"
      "Text goes to standard output, progress and statistics to standard error. `_` and `-` are the same in flag "
      "names.\n"
      "Every switch has a `--no-` twin; no flag may be given twice but the repeatable ones.\nSizes take suffixes: `k`, "
      "`m`, `g` are powers of 1000 (`1.5k`), `K`, `M`, `G` "
      "and\n"
      "`Ki`, `Mi`, `Gi` powers of 1024. Where a flag names an environment variable, the flag wins.\n\n"
      "`lantern help --man` is the same as a manual page, `lantern completion bash` makes bash complete all of it:\n\n"
      "```\nlantern help --man > /usr/local/share/man/man1/lantern.1\n"
      "lantern completion bash > /etc/bash_completion.d/lantern\n```\n\n"
      "| exit code | meaning |\n|---|---|\n";
  for (const auto& [code, meaning] : exit_codes()) text += fmt::format("| {} | {} |\n", code, meaning);
  for (const Command& command : all_commands()) {
    text += fmt::format("\n## lantern {}\n\n{}.\n\n```\n{}\n```\n\nExample: `{}`\n", command.name, command.summary,
                        usage_line(command), command.example);
    if (!command.note.empty()) text += fmt::format("\n{}\n", command.note);
    text += "\n| flag | meaning |\n|---|---|\n";
    for (const SettingUse& use : settings_of(command)) {
      const Setting& setting = find_setting(use.name);
      text += fmt::format("| `{}` | {} |\n", flag_column(setting, use), markdown_cell(help_column(setting, use)));
    }
  }
  return text;
}

}  // namespace lantern::cli
