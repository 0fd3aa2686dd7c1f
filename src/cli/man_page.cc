// The manual page, made from the registry: man(7).
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/help_parts.h"

namespace lantern::cli {
namespace {

// Text as roff shows it: hyphens can be searched for and copied, and no line is a request.
std::string roff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  if (!escaped.empty() && (escaped[0] == '.' || escaped[0] == '\'')) escaped.insert(0, "\\&");
  return escaped;
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return result;
}

}  // namespace

std::string man_page() {
  std::string text = fmt::format(
      ".\\\" Made by `lantern help --man`; do not edit by hand.\n"
      ".TH LANTERN 1 \"\" \"lantern {}\" \"User Commands\"\n"
      ".SH NAME\nlantern \\- inference for latent\\-attention language models\n"
      ".SH SYNOPSIS\n.B lantern\n.I COMMAND\n[\\fIflags\\fR]\n"
      ".SH DESCRIPTION\n",
      LANTERN_VERSION);
  text +=
      "Text goes to standard output, progress and statistics to standard error.\n"
      "In names of flags _ and \\- are the same. Every switch has a \\-\\-no\\- twin.\n"
      "Sizes take suffixes: k, m and g are powers of 1000, K, M, G and Ki, Mi, Gi powers of 1024.\n"
      "Where a flag names an environment variable, the flag wins.\n"
      ".SH COMMANDS\n";
  for (const Command& command : all_commands()) {
    text += fmt::format(".TP\n.B lantern {}\n{}.\n", roff(command.name), roff(command.summary));
  }
  for (const Command& command : all_commands()) {
    text += fmt::format(".SH LANTERN {}\n{}.\n.PP\n.B {}\n", roff(upper(command.name)), roff(command.summary),
                        roff(usage_line(command)));
    text += fmt::format(".PP\nExample:\n.PP\n.RS\n.nf\n{}\n.fi\n.RE\n", roff(command.example));
    if (!command.note.empty()) text += fmt::format(".PP\n{}\n", roff(command.note));
    for (const SettingUse& use : settings_of(command)) {
      const Setting& setting = find_setting(use.name);
      text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(flag_column(setting, use)), roff(help_column(setting, use)));
    }
  }
  text += ".SH ENVIRONMENT\n";
  for (const Setting& setting : all_settings()) {
    if (!setting.from_environment) continue;
    text += fmt::format(".TP\n.B {}\nas \\-\\-{}\n", environment_name(setting), roff(setting.name));
  }
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : exit_codes()) text += fmt::format(".TP\n.B {}\n{}\n", roff(code), roff(meaning));
  return text;
}

}  // namespace lantern::cli
