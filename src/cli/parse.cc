// From arguments to checked values. CLI11 splits flags from values; names, aliases, defaults, limits and suggestions
// come from the registry.
#include <fmt/ranges.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/config_file.h"
#include "cli/option_names.h"

namespace lantern::cli {
namespace {

constexpr std::string_view kVersion = LANTERN_VERSION;
constexpr size_t kMostConfigBytes = size_t{1} << 20;
constexpr int kMostWords = 64;  // of positional arguments, whether allowed or not

Invocation usage_error(std::string message, std::string_view hint) {
  Invocation invocation;
  invocation.text = fmt::format("lantern: error: {}; see {}\n", message, hint);
  invocation.exit_code = kBadUsage;
  return invocation;
}

std::string with_underscores(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '-', '_');
  return result;
}

// "--max-tokens,--max_tokens,-n": every spelling that CLI11 shall accept.
std::string spellings(const Setting& setting) {
  std::string all = fmt::format("--{}", setting.name);
  if (setting.name.find('-') != std::string_view::npos) all += fmt::format(",--{}", with_underscores(setting.name));
  for (const std::string_view alias : alias_flags(setting)) {
    all += fmt::format(",{}", alias);
    if (alias.starts_with("--") && alias.substr(2).find('-') != std::string_view::npos) {
      all += fmt::format(",--{}", with_underscores(alias.substr(2)));
    }
  }
  return all;
}

std::string negated_spellings(const Setting& setting) {
  std::string all = fmt::format(",!--no-{}", setting.name);
  const std::string underscored = with_underscores(setting.name);
  all += fmt::format(",!--no_{}", underscored);
  return all;
}

// The command named by the first one or two arguments, and how many arguments its name takes.
std::pair<const Command*, size_t> find_command(std::span<const std::string> arguments) {
  for (const Command& command : all_commands()) {
    if (arguments[0] == command.name) return {&command, 1};
    if (arguments.size() > 1 && fmt::format("{} {}", arguments[0], arguments[1]) == command.name) return {&command, 2};
  }
  return {nullptr, 0};
}

Invocation unknown_command(std::span<const std::string> arguments) {
  std::vector<std::string> names;
  std::string second_words;
  for (const Command& command : all_commands()) {
    names.emplace_back(command.name);
    if (command.name.starts_with(arguments[0] + " ")) {
      second_words += fmt::format("{}{}", second_words.empty() ? "" : " or ", command.name);
    }
  }
  if (!second_words.empty()) {
    if (arguments.size() > 1 && (arguments[1] == "--help" || arguments[1] == "-h")) {
      Invocation invocation;
      for (const Command& command : all_commands()) {
        if (command.name.starts_with(arguments[0] + " ")) invocation.text += help_text(command);
      }
      return invocation;
    }
    if (arguments.size() == 1 || arguments[1].starts_with("-")) {
      return usage_error(fmt::format("'{}' needs a second word: {}", arguments[0], second_words), "lantern --help");
    }
  }
  const bool is_flag = arguments[0].starts_with("-");
  if (is_flag) names = {"--help", "--version"};
  const std::string wanted = second_words.empty() ? arguments[0] : fmt::format("{} {}", arguments[0], arguments[1]);
  const auto meant = closest(wanted, names);
  return usage_error(fmt::format("unknown {} '{}'{}", is_flag ? "flag" : "command", wanted,
                                 meant ? fmt::format(", did you mean '{}'?", *meant) : std::string()),
                     "lantern --help");
}

Invocation unknown_argument(const Command& command, const std::string& argument) {
  const std::string hint = fmt::format("lantern {} --help", command.name);
  if (!argument.starts_with("-") || argument == "-") {
    return usage_error(fmt::format("unexpected argument '{}'", argument), hint);
  }
  const std::string flag = argument.substr(0, argument.find('='));
  std::vector<std::string> known = {"--help"};
  for (const SettingUse& use : settings_of(command)) {
    const Setting& setting = find_setting(use.name);
    known.push_back(fmt::format("--{}", setting.name));
    if (setting.type == SettingType::kSwitch) known.push_back(fmt::format("--no-{}", setting.name));
    for (const std::string_view alias : alias_flags(setting)) {
      if (alias.starts_with("--")) known.emplace_back(alias);
    }
  }
  if (const auto meant = closest(flag, known)) {
    return usage_error(fmt::format("unknown flag '{}', did you mean '{}'?", flag, *meant), hint);
  }
  return usage_error(fmt::format("unknown flag '{}'", flag), hint);
}

// Of a command line that has a setting more than once.
Error given_again(const Setting& setting, size_t times) {
  const std::string also =
      setting.aliases.empty() ? std::string() : fmt::format(" ({} is the same flag)", alias_flags(setting).front());
  return {ErrorCode::kInvalidArgument,
          fmt::format("--{} is given {} times{}; give it once", setting.name, times, also)};
}

Status check_exactly_one(const Command& command, const Values& values) {
  // A flag wins over the environment's word for another of them.
  const bool by_flag = std::ranges::any_of(command.exactly_one_of, [&](std::string_view name) {
    return values.origin(name) == Values::Origin::kCommandLine;
  });
  int given = 0;
  std::string names;
  for (const std::string_view name : command.exactly_one_of) {
    given += (by_flag ? values.origin(name) == Values::Origin::kCommandLine : values.given(name)) ? 1 : 0;
    names += fmt::format("{}--{}", names.empty() ? "" : ", ", name);
  }
  if (given == 1 || command.exactly_one_of.empty()) return {};
  if (command.exactly_one_of.size() == 1) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("lantern {} needs {}", command.name, names));
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("lantern {} needs exactly one of {}, and {} were given", command.name, names, given));
}

// The command's setting that a line of a file names.
Result<const Setting*> find_in_file(const Command& command, const ConfigEntry& entry) {
  std::string wanted = entry.name;
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  std::vector<std::string> known;
  for (const SettingUse& use : settings_of(command)) {
    const Setting& setting = find_setting(use.name);
    if (setting.name == "config") continue;  // a file names no other
    if (setting.name == wanted || std::ranges::count(alias_flags(setting), "--" + wanted) > 0) return &setting;
    known.emplace_back(setting.name);
  }
  const auto meant = closest(wanted, known);
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("line {}: lantern {} has no setting '{}'{}", entry.line, command.name, entry.name,
                           meant ? fmt::format(", did you mean '{}'?", *meant) : std::string()));
}

// What neither the command line nor the environment has said.
Status fill_from_file(const Command& command, const std::string& text, Values& values) {
  ASSIGN_OR_RETURN(std::vector<ConfigEntry> entries, parse_config(text));
  std::map<std::string_view, std::string> names;  // as the file has them
  for (ConfigEntry& entry : entries) {
    ASSIGN_OR_RETURN(const Setting* const setting, find_in_file(command, entry));
    const std::string where = fmt::format("line {}: {}", entry.line, entry.name);
    if (const auto [other, is_new] = names.emplace(setting->name, entry.name); !is_new)
      return Error(ErrorCode::kInvalidArgument, fmt::format("{} is {}, which is there already", where, other->second));
    if (entry.is_list && !setting->repeatable)
      return Error(ErrorCode::kInvalidArgument, where + " takes one value, not a list");
    if (entry.values.empty()) return Error(ErrorCode::kInvalidArgument, where + " is a list of nothing; leave it out");
    for (const std::string& value : entry.values) RETURN_IF_ERROR(check_value(*setting, where, value));
    if (!values.given(setting->name)) values.set(setting->name, std::move(entry.values), Values::Origin::kConfigFile);
  }
  return {};
}

// Limits and choices of everything given; where the command line is silent the environment counts, then the file.
Status fill(const Command& command, CLI::App& app, std::map<std::string_view, std::vector<std::string>>& texts,
            Values& values) {
  bool takes_file = false;
  for (const SettingUse& use : settings_of(command)) {
    const Setting& setting = find_setting(use.name);
    values.declare(setting.name, use.default_value.value_or(setting.default_value));
    const CLI::Option* option = app.get_option(fmt::format("--{}", setting.name));
    if (option->count() > 1 && !setting.repeatable) return given_again(setting, option->count());
    if (option->count() > 0) {
      std::vector<std::string> given =
          setting.type == SettingType::kSwitch ? option->reduced_results() : texts[setting.name];
      for (const std::string& value : given) {
        RETURN_IF_ERROR(check_value(setting, fmt::format("--{}", setting.name), value));
      }
      values.set(setting.name, std::move(given));
    } else if (const auto from_environment = use.ignores_environment ? std::nullopt : environment_value(setting)) {
      RETURN_IF_ERROR(check_value(setting, environment_name(setting), *from_environment));
      values.set(setting.name, {*from_environment}, Values::Origin::kEnvironment);
    }
    takes_file |= setting.name == "config";
  }
  if (!takes_file || values.text("config").empty()) return {};
  const std::string& path = values.text("config");
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMostConfigBytes));
  Status filled = fill_from_file(command, text, values);
  if (!filled.ok()) return std::move(filled).error().within(path);
  return {};
}

}  // namespace

std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j <= candidate.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t replaced = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

Invocation parse_command_line(std::span<const std::string> arguments) {
  Invocation invocation;
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    invocation.text = overview_text();
    invocation.exit_code = arguments.empty() ? kBadUsage : kSuccess;
    return invocation;
  }
  if (arguments[0] == "--version") {
    invocation.text = fmt::format("lantern {}\n", kVersion);
    return invocation;
  }
  const auto [command, words] = find_command(arguments);
  if (command == nullptr) return unknown_command(arguments);
  const std::string hint = fmt::format("lantern {} --help", command->name);

  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  app.allow_config_extras(CLI::config_extras_mode::error);
  bool help = false;
  app.add_flag("-h,--help", help);
  std::map<std::string_view, std::vector<std::string>> texts;
  for (const SettingUse& use : settings_of(*command)) {
    const Setting& setting = find_setting(use.name);
    if (setting.type == SettingType::kSwitch) {
      app.add_flag(spellings(setting) + negated_spellings(setting))->take_last();
      continue;
    }
    app.add_option(spellings(setting), texts[setting.name])->expected(1)->allow_extra_args(false)->take_all();
  }
  std::vector<std::string> positional;
  if (!command->positional.empty()) {
    app.add_option("positional", positional)->expected(0, kMostWords);
  }

  // CLI11 wants its arguments last first.
  std::vector<std::string> rest(arguments.begin() + static_cast<std::ptrdiff_t>(words), arguments.end());
  std::reverse(rest.begin(), rest.end());
  try {
    app.parse(rest);
  } catch (const CLI::ArgumentMismatch& error) {
    // "--prompt: 1 required TEXT missing"
    const std::string message = error.what();
    return usage_error(fmt::format("{} needs a value", message.substr(0, message.find(':'))), hint);
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what(), hint);
  }
  if (help) {
    invocation.text = help_text(*command);
    return invocation;
  }
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty()) {
    return unknown_argument(*command, extras.front());
  }
  Status filled = fill(*command, app, texts, invocation.values);
  if (filled.ok()) filled = check_exactly_one(*command, invocation.values);
  if (!filled.ok()) return usage_error(filled.error().message(), hint);
  if (!command->positional.empty()) {
    if (positional.size() > 1 && !command->positional.ends_with("..."))
      return unknown_argument(*command, positional[1]);
    if (positional.empty() && command->positional_required) {
      return usage_error(fmt::format("lantern {} needs {}", command->name, command->positional), hint);
    }
    invocation.values.declare(command->positional, "");
    if (!positional.empty()) {
      std::string named = fmt::format("{}", fmt::join(positional, " "));
      if (named.empty()) return usage_error(fmt::format("{} is empty; name one", command->positional), hint);
      invocation.values.set(command->positional, {std::move(named)});
    }
  }
  if (command->check != nullptr) {
    if (const Status checked = command->check(invocation.values); !checked.ok())
      return usage_error(with_flags(checked.error().message(), *command), hint);
  }
  invocation.command = command;
  return invocation;
}

}  // namespace lantern::cli
