// What makes a shell complete the command line, made from the registry.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/console.h"

namespace lantern::cli {
namespace {

// "|a|b|" of "a|b": patterns of a case. Flags are matched in both spellings.
std::string spellings_of(const Setting& setting) {
  std::string all = fmt::format("--{}", setting.name);
  for (const std::string_view alias : alias_flags(setting)) all += fmt::format("|{}", alias);
  return all;
}

std::string words_of(std::string_view choices) {
  std::string words(choices);
  for (char& c : words) c = c == '|' ? ' ' : c;
  return words;
}

std::string flags_of(const Command& command) {
  std::string flags = "--help";
  for (const SettingUse& use : settings_of(command)) {
    const Setting& setting = find_setting(use.name);
    flags += fmt::format(" --{}", setting.name);
    if (setting.type == SettingType::kSwitch) flags += fmt::format(" --no-{}", setting.name);
  }
  return flags;
}

}  // namespace

std::string bash_completion() {
  std::string first_words;
  std::string second_words;  // of a case over the first
  std::string flags;         // of a case over the command
  for (const Command& command : all_commands()) {
    const size_t space = command.name.find(' ');
    const std::string first(command.name.substr(0, space));
    const bool is_new = fmt::format(" {} ", first_words).find(fmt::format(" {} ", first)) == std::string::npos;
    if (is_new) first_words += fmt::format("{}{}", first_words.empty() ? "" : " ", first);
    if (space != std::string_view::npos && is_new) {
      std::string words;
      for (const Command& other : all_commands()) {
        if (other.name.starts_with(first + " ")) words += fmt::format(" {}", other.name.substr(space + 1));
      }
      second_words += fmt::format("    {}) words='{}' ;;\n", first, words.substr(1));
    }
    flags += fmt::format("    '{}') flags='{}' ;;\n", command.name, flags_of(command));
  }
  std::string values;
  std::string no_value;
  for (const Setting& setting : all_settings()) {
    if (setting.type == SettingType::kSwitch) continue;
    const std::string spelled = spellings_of(setting);
    if (!setting.choices.empty()) {
      values += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$current\")); return ;;\n", spelled,
                            words_of(setting.choices));
    } else if (setting.type == SettingType::kPath) {
      values += fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n", spelled);
    } else {
      no_value += fmt::format("{}{}", no_value.empty() ? "" : "|", spelled);
    }
  }
  return fmt::format(
      "# Made by `lantern completion bash`: source it, or write it to /etc/bash_completion.d/lantern.\n"
      "_lantern() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  local command=${{COMP_WORDS[1]-}} words='' flags=''\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '{} --help --version' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case $command in\n{}  esac\n"
      "  if [[ $words ]]; then\n"
      "    if ((COMP_CWORD == 2)); then\n"
      "      COMPREPLY=($(compgen -W \"$words --help\" -- \"$current\"))\n"
      "      return\n"
      "    fi\n"
      "    command+=\" ${{COMP_WORDS[2]}}\"\n"
      "  fi\n"
      "  case $previous in\n{}    {}) return ;;\n  esac\n"
      "  case $command in\n{}  esac\n"
      "  if [[ $current == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$flags\" -- \"$current\"))\n"
      "  elif [[ $command == completion ]]; then\n"
      "    COMPREPLY=($(compgen -W bash -- \"$current\"))\n"
      "  elif [[ $command == help ]]; then\n"
      "    COMPREPLY=($(compgen -W '{}' -- \"$current\"))\n"
      "  else\n"
      "    COMPREPLY=($(compgen -f -- \"$current\"))\n"
      "  fi\n"
      "}}\n"
      "complete -o filenames -F _lantern lantern\n",
      first_words, second_words, values, no_value, flags, first_words);
}

Status check_completion(const Values& values) {
  const std::string& shell = values.text("SHELL");
  if (shell == "bash") return {};
  return Error(ErrorCode::kInvalidArgument, fmt::format("there is no completion for '{}'; SHELL is bash", shell));
}

Result<int> run_completion(const Values&) {
  write_text(bash_completion());
  return static_cast<int>(kSuccess);
}

}  // namespace lantern::cli
