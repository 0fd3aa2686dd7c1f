// Every setting of the command line as data: one list gives the flags, the environment names, the names in a file of
// settings, the help texts, docs/cli.md, the man page and what shells complete. No other code reads the environment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lantern::cli {

enum class SettingType {
  kSwitch,  // --name and --no-name
  kText,
  kPath,
  kInteger,
  kSize,  // an integer that takes the suffixes of parse_size()
  kReal,
};

// Bounds of a number; text for choices.
struct Limits {
  double lowest = -1e300;
  double highest = 1e300;
  bool above_lowest = false;  // lowest itself is not allowed
};

struct Setting {
  std::string_view name;  // "max-tokens"; the flag is --max-tokens, --max_tokens works too
  SettingType type = SettingType::kText;
  std::string_view value_name = {};     // how help names the value: "N", "DIR"
  std::string_view default_value = {};  // as a user would type it; empty: none
  std::string_view help;                // one line
  Limits limits = {};
  std::string_view choices = {};  // "auto|bf16|fp8": the only values allowed
  std::string_view aliases = {};  // further flags, separated by spaces: "-n --ctx-size"
  bool repeatable = false;
  bool from_environment = false;  // LANTERN_MAX_TOKENS sets it where the command line does not
  bool may_be_empty = false;      // of text; a path or name that is empty is a variable that was not set
  // What else a value must be, beside its type, limits and choices.
  Status (*form)(std::string_view value) = nullptr;
};

std::span<const Setting> all_settings();
// Those of them that are for commands which talk to a server.
std::span<const Setting> client_settings();
// CHECKs that the registry has it.
const Setting& find_setting(std::string_view name);
// {"-n", "--ctx-size"}: its aliases one by one.
std::vector<std::string_view> alias_flags(const Setting& setting);
// "LANTERN_MAX_TOKENS".
std::string environment_name(const Setting& setting);
// The value in the environment, if the setting takes one from there.
std::optional<std::string> environment_value(const Setting& setting);

// A size as vLLM reads it: k, m, g are powers of 1000 and may follow a decimal ("1.5k"); K, M, G and Ki, Mi, Gi are
// powers of 1024.
Result<int64_t> parse_size(std::string_view text);
Result<int64_t> parse_integer(std::string_view text);
Result<double> parse_real(std::string_view text);
// Type, limits, choices and form. `flag` names the setting in the message: "--top-p must be ...".
Status check_value(const Setting& setting, std::string_view flag, std::string_view value);

// The values of one invocation, checked when they were put in. Asking for a name that the command does not have is a
// broken invariant.
class Values {
 public:
  // Where a value comes from; an earlier one wins over a later.
  enum class Origin : uint8_t { kCommandLine, kEnvironment, kConfigFile, kDefault };

  void declare(std::string_view name, std::string_view default_value);
  void set(std::string_view name, std::vector<std::string> values, Origin origin = Origin::kCommandLine);

  Origin origin(std::string_view name) const;
  // By whomever, but not by default.
  bool given(std::string_view name) const { return origin(name) != Origin::kDefault; }
  bool is_on(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::vector<std::string>& list(std::string_view name) const;

 private:
  struct Value {
    std::vector<std::string> values;  // the default, or what was given
    Origin origin = Origin::kDefault;
  };
  const Value& find(std::string_view name) const;

  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace lantern::cli
