// The commands of `lantern` as data, and what main() does with them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/settings.h"

namespace lantern::cli {

// What a process ends with; 128 + n after signal n.
enum ExitCode : int { kSuccess = 0, kFailure = 1, kBadUsage = 2, kOutOfMemoryExit = 3, kInterrupted = 130 };

// A setting that a command takes, with what of it is the command's own where that differs from the registry's.
struct SettingUse {
  std::string_view name;
  std::optional<std::string_view> default_value = std::nullopt;
  std::string_view help = {};
  std::string_view value_name = {};
  bool ignores_environment = false;  // a variable of that name means something else
};

struct Command {
  std::string_view name;             // "generate", "bench step"
  std::string_view summary;          // one line
  std::string_view positional = {};  // "MODEL"; empty: takes none; "COMMAND..." takes several words
  bool positional_required = false;
  std::vector<SettingUse> settings;
  std::vector<std::string_view> exactly_one_of = {};  // settings of which one must be given, and only one
  std::string_view example;                           // a command line that works in a checkout
  std::string_view note = {};                         // a sentence more for its help
  // The command asks interrupted() and ends in order; where it does not, Ctrl-C ends the process at once.
  bool watches_interrupts = true;
  // What is bad usage by the values alone but not by one of them: settings that contradict each other, and the like.
  Status (*check)(const Values& values) = nullptr;
  // Returns the exit code. Values has the positional under its name.
  Result<int> (*run)(const Values& values);
};

std::span<const Command> all_commands();
// The command's settings followed by those that every command takes.
std::vector<SettingUse> settings_of(const Command& command);

// The outcome of reading a command line.
struct Invocation {
  const Command* command = nullptr;  // null: print `text` and exit with `exit_code`
  Values values;
  std::string text;
  int exit_code = kSuccess;
};
Invocation parse_command_line(std::span<const std::string> arguments);

std::string overview_text();
std::string help_text(const Command& command);
std::string help_markdown();
std::string man_page();         // for man, in roff
std::string bash_completion();  // a script for bash to source

// The candidate with the fewest edits from `word`, if it is near enough to be what was meant.
std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& candidates);

// Runs the command line; prints errors to stderr as "lantern: error: ...".
int run(std::span<const std::string> arguments);

// The checks of commands; these and the functions below are in the files of their commands' names.
Status check_generate(const Values& values);
Status check_chat(const Values& values);
Status check_run_batch(const Values& values);
Status check_serve(const Values& values);
Status check_bench_step(const Values& values);
Status check_bench_engine(const Values& values);  // of bench throughput, and of bench latency as well
Status check_bench_latency(const Values& values);
Status check_bench_serve(const Values& values);
Status check_bench_kernels(const Values& values);
Status check_help(const Values& values);
Status check_completion(const Values& values);

// One function per command.
Result<int> run_generate(const Values& values);
Result<int> run_chat(const Values& values);
Result<int> run_score(const Values& values);
Result<int> run_tokenize(const Values& values);
Result<int> run_inspect(const Values& values);
Result<int> run_quantize(const Values& values);
Result<int> run_bench_step(const Values& values);
// The same by an engine that replays graphs, in such a mode.
Result<int> run_bench_engine_step(const Values& values, std::string_view graphs);
Result<int> run_bench_throughput(const Values& values);
Result<int> run_bench_latency(const Values& values);
Result<int> run_bench_memory(const Values& values);
Result<int> run_bench_kernels(const Values& values);
Result<int> run_bench_serve(const Values& values);
Result<int> run_run_batch(const Values& values);
Result<int> run_serve(const Values& values);
Result<int> run_top(const Values& values);
Result<int> run_eval(const Values& values);
Result<int> run_plan(const Values& values);
Result<int> run_doctor(const Values& values);
Result<int> run_help(const Values& values);
Result<int> run_completion(const Values& values);

}  // namespace lantern::cli
