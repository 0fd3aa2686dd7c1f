#include "cli/command.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <system_error>

#include "base/check.h"
#include "base/log.h"
#include "cli/console.h"
#include "cli/option_names.h"

namespace lantern::cli {
namespace {

std::vector<SettingUse> with_model(std::vector<SettingUse> own) {
  std::vector<SettingUse> all = {{"model"}};
  all.insert(all.end(), own.begin(), own.end());
  for (std::string_view name :
       {"device", "threads", "kv-cache-dtype", "max-model-len", "strict-config", "explain-dispatch", "require-impl"}) {
    all.push_back({name});
  }
  return all;
}

constexpr std::string_view kDraftHelp = "Tokens drafted for each sequence and step; 0 drafts none";

// Of `bench throughput` and `bench latency`, which run an engine.
std::vector<SettingUse> of_engine_bench(std::vector<SettingUse> own) {
  std::vector<SettingUse> all = {{"model"},   {"dummy"},     {"layers"},    {"weights"},
                                 {"prompts"}, {"input-len"}, {"output-len"}};
  all.insert(all.end(), own.begin(), own.end());
  all.push_back({"draft-tokens", std::nullopt, kDraftHelp});
  all.push_back({"data-parallel-size"});
  for (std::string_view name :
       {"drafter", "adaptive-drafts", "synthetic-acceptance", "max-num-seqs", "max-num-batched-tokens",
        "kv-cache-memory", "enable-prefix-caching", "mla-form", "graphs", "device", "threads", "kv-cache-dtype",
        "max-model-len", "explain-dispatch", "require-impl"}) {
    all.push_back({name});
  }
  all.push_back({"seed", "0", "Random seed of the prompts"});
  all.push_back({"json"});
  all.push_back({"quiet"});
  return all;
}

// Built once; help lists the commands in this order.
const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = {
      {.name = "generate",
       .summary = "Continue a prompt",
       .settings = with_model({{"prompt"},
                               {"prompt-file"},
                               {"tokens"},
                               {"max-tokens"},
                               {"temperature"},
                               {"top-p"},
                               {"top-k"},
                               {"min-p"},
                               {"repetition-penalty"},
                               {"presence-penalty"},
                               {"frequency-penalty"},
                               {"seed"},
                               {"logit-bias"},
                               {"bad-words"},
                               {"min-tokens"},
                               {"ignore-eos"},
                               {"stop"},
                               {"stop-token-ids"},
                               {"bos"},
                               {"special-tokens"},
                               {"draft-tokens"},
                               {"drafter"},
                               {"mla-form"},
                               {"graphs"},
                               {"indexer"},
                               {"json"},
                               {"quiet"}}),
       .exactly_one_of = {"prompt", "prompt-file", "tokens"},
       .example = "lantern generate --prompt \"Question: What is 6 times 7?\" --max-tokens 64 --temperature 0",
       .check = &check_generate,
       .run = &run_generate},
      {.name = "chat",
       .summary = "Talk with the model, or with a server's",
       .settings =
           with_model({{.name = "url",
                        .help = "Talk with the model of this server, as http://127.0.0.1:8000, instead of one "
                                "in this process",
                        .ignores_environment = true},
                       {"api-key", std::nullopt, "Key that the server asks for"},
                       {"served-model-name", std::nullopt, "Model of the server to ask for (default: its first)"},
                       {"system"},
                       {"think"},
                       {"chat-format"},
                       {"max-tokens"},
                       {"temperature"},
                       {"top-p"},
                       {"top-k"},
                       {"min-p"},
                       {"repetition-penalty"},
                       {"presence-penalty"},
                       {"frequency-penalty"},
                       {"seed"},
                       {"draft-tokens"},
                       {"drafter"},
                       {"mla-form"},
                       {"graphs"},
                       {"quiet"}}),
       .example = "lantern chat --system \"Answer briefly.\"",
       .check = &check_chat,
       .run = &run_chat},
      {.name = "score",
       .summary = "Log-probabilities of a given text",
       .settings = with_model({{"text"},
                               {"text-file"},
                               {"tokens"},
                               {"top-logprobs"},
                               {"bos"},
                               {"special-tokens"},
                               {"indexer"},
                               {"json"},
                               {"quiet"}}),
       .exactly_one_of = {"text", "text-file", "tokens"},
       .example = "lantern score --text \"Question: What is 6 times 7?\" --top-logprobs 3 --json",
       .run = &run_score},
      {.name = "tokenize",
       .summary = "Text to token ids and back",
       .settings = {{"model"}, {"text"}, {"text-file"}, {"decode"}, {"bos"}, {"special-tokens"}, {"json"}},
       .exactly_one_of = {"text", "text-file", "decode"},
       .example = "lantern tokenize --text \"Hello, world\"",
       .watches_interrupts = false,
       .run = &run_tokenize},
      {.name = "inspect",
       .summary =
           "What a checkpoint or a built-in shape (glm47-flash, ...) is: architecture, parameters, types, memory",
       .positional = "MODEL",
       .settings = {{"strict-config"}, {"json"}},
       .example = "lantern inspect models/tiny",
       .watches_interrupts = false,
       .run = &run_inspect},
      {.name = "quantize",
       .summary = "Write a copy of a checkpoint with FP8 weights in 128x128 blocks",
       .settings = {{"model"},
                    {"output", std::nullopt,
                     "Folder to write the new checkpoint to; must not exist, those above it are made"},
                    {"threads"},
                    {"json"},
                    {"quiet"}},
       .exactly_one_of = {"output"},
       .example = "lantern quantize --model models/tiny --output build/models/tiny-fp8",
       .run = &run_quantize},
      {.name = "run-batch",
       .summary = "Answer a file of requests in the OpenAI batch format; an interrupted run goes on where it was",
       .settings =
           with_model({{"input", std::nullopt, "Requests, one JSON object a line; - reads standard input"},
                       {"output", std::nullopt, "Results, one JSON object a line; those of an earlier run stay"},
                       {"data-parallel-size"},
                       {"max-num-seqs"},
                       {"max-num-batched-tokens"},
                       {"kv-cache-memory"},
                       {"enable-prefix-caching"},
                       {"mla-form"},
                       {"graphs"},
                       {"draft-tokens", std::nullopt, kDraftHelp},
                       {"drafter"},
                       {"max-logprobs"},
                       {"max-traced-rows"},
                       {"traced-layer"},
                       {"served-model-name"},
                       {"chat-format"},
                       {"seed", std::nullopt,
                        "Seed of requests that name none: this plus the line's number (default: a fresh one)"},
                       {"quiet"}}),
       .example = "lantern run-batch -i requests.jsonl -o results.jsonl",
       .note =
           "Requests that cannot be answered have an error in the results, and the exit code is 0 all the same; it is "
           "1 where not one request of the file has an answer. A file without requests has no results, which is no "
           "error.",
       .check = &check_run_batch,
       .run = &run_run_batch},
      {.name = "serve",
       .summary = "Answer requests of the OpenAI API over HTTP",
       .positional = "MODEL",
       .settings = with_model({{"host"},
                               {"port"},
                               {"served-model-name"},
                               {"api-key"},
                               {"api-key-file"},
                               {"admin-api-key"},
                               {"admin-api-key-file"},
                               {"allowed-origins"},
                               {"allowed-hosts"},
                               {"chat-format"},
                               {"reasoning-field"},
                               {"max-num-seqs"},
                               {"max-num-batched-tokens"},
                               {"kv-cache-memory"},
                               {"enable-prefix-caching"},
                               {"data-parallel-size"},
                               {"draft-tokens", std::nullopt, kDraftHelp},
                               {"drafter"},
                               {"adaptive-drafts"},
                               {"mla-form"},
                               {"graphs"},
                               {"max-logprobs"},
                               {"max-traced-rows"},
                               {"traced-layer"},
                               {"max-num-queued-reqs"},
                               {"max-num-queued-tokens"},
                               {"max-connections"},
                               {"max-body-size"},
                               {"header-timeout"},
                               {"body-timeout"},
                               {"keep-alive-timeout"},
                               {"ping-interval"},
                               {"allow-half-close"},
                               {"shutdown-timeout"},
                               {"watchdog-timeout"},
                               {"stream-interval"},
                               {"enable-force-include-usage"},
                               {"enable-tokenizer-info-endpoint"},
                               {"ui"},
                               {"access-log"},
                               {"log-format"},
                               {"otlp-traces-endpoint"},
                               {"http-threads"},
                               {"config"},
                               {"quiet", std::nullopt, "No statistics on stderr"}}),
       .example = "lantern serve models/tiny --port 8000",
       .check = &check_serve,
       .run = &run_serve},
      {.name = "top",
       .summary = "A server, watched live: tokens/s, requests, cache, drafts, latencies",
       .settings = {{"url", "http://127.0.0.1:8000"},
                    {"api-key", std::nullopt, "Key that the server asks for"},
                    {"interval"},
                    {"once"},
                    {"json", std::nullopt, "A line of JSON for each view"}},
       .example = "lantern top --url http://127.0.0.1:8000",
       .run = &run_top},
      {.name = "eval",
       .summary = "Exact match of a task's answers, greedily",
       .positional = "TASK.jsonl",
       .positional_required = true,
       .settings = with_model({{"limit"},
                               {"output", std::nullopt, "Write one JSON line per item to this file"},
                               {"draft-tokens"},
                               {"drafter"},
                               {"mla-form"},
                               {"graphs"},
                               {"indexer"},
                               {"json"},
                               {"quiet"}}),
       .example = "lantern eval models/tiny/eval/arithmetic.jsonl --json",
       .run = &run_eval},
      {.name = "bench step",
       .summary = "Speed of decode steps against the memory bandwidth of the machine",
       .settings = {{"dummy"},
                    {"layers"},
                    {"weights"},
                    {"context"},
                    {"prefill"},
                    {"repetitions"},
                    {"model"},
                    {"device"},
                    {"threads"},
                    {"kv-cache-dtype"},
                    {"graphs", std::nullopt,
                     "Run the engine and replay graphs of its steps (any but none), or not: none, auto on a CPU"},
                    {"explain-dispatch"},
                    {"require-impl"},
                    {"json"},
                    {"quiet"}},
       .exactly_one_of = {"dummy", "model"},
       .example = "lantern bench step --device cpu --dummy glm47-flash --layers 8 --json",
       .watches_interrupts = false,
       .check = &check_bench_step,
       .run = &run_bench_step},
      {.name = "bench throughput",
       .summary = "Speed of many requests at once, beside what the bytes that a step reads allow",
       .settings = of_engine_bench({{"requests"}}),
       .example = "lantern bench throughput --model models/tiny --requests 64 --json",
       .check = &check_bench_engine,
       .run = &run_bench_throughput},
      {.name = "bench latency",
       .summary = "Time to the first token, between tokens and to the end, as percentiles",
       .settings = of_engine_bench({{"requests", "1", "Requests that run together"},
                                    {"repetitions", "20", "Times that so many are run together"}}),
       .example = "lantern bench latency --model models/tiny --output-len 32 --json",
       .check = &check_bench_latency,
       .run = &run_bench_latency},
      {.name = "bench serve",
       .summary = "Load on a server of the OpenAI API, and how it stands it; names and definitions as vLLM's",
       .settings = {{"url", "http://127.0.0.1:8000"},
                    {"api-key", std::nullopt, "Key that the server asks for"},
                    {.name = "model",
                     .help = "Name of the model to ask for (default: the server's first)",
                     .value_name = "NAME",
                     .ignores_environment = true},
                    {"backend"},
                    {"dataset-name"},
                    {"prompts", std::nullopt,
                     "JSON lines with \"prompt\" and, where it is not --output-len, \"max_tokens\""},
                    {"requests", "100", "Requests to send"},
                    {"input-len", "1024", "Random tokens of each prompt"},
                    {"output-len", "128",
                     "Tokens that each request may make (default of prompts from files: what they say)"},
                    {"range-ratio"},
                    {"prefix-len"},
                    {"num-prefixes"},
                    {"request-rate"},
                    {"burstiness"},
                    {"max-concurrency"},
                    {"num-warmups"},
                    {"ignore-eos"},
                    {"temperature", "0", "0 is greedy"},
                    {"goodput"},
                    {"seed", "0", "Random seed of prompts, lengths and arrivals"},
                    {"output", std::nullopt, "Also write the result as JSON to this file"},
                    {"save-detailed"},
                    {"html"},
                    {"json"},
                    {"quiet"}},
       .example =
           "lantern bench serve --url http://127.0.0.1:8000 --dataset-name chat --max-concurrency 8 --html run.html",
       .check = &check_bench_serve,
       .run = &run_bench_serve},
      {.name = "bench memory",
       .summary = "Bandwidth of reading memory with all threads",
       .settings = {{"size"}, {"repetitions", "9", "Measured passes; the median counts"}, {"threads"}, {"json"}},
       .example = "lantern bench memory",
       .watches_interrupts = false,
       .run = &run_bench_memory},
      {.name = "bench kernels",
       .summary =
           "Time of the device's kernels at the sizes of public models, beside that of reading their bytes; small "
           "sizes on a CPU",
       .settings = {{"filter"},
                    {"repetitions", "20", "Replays of each kernel's graph, caches cold; the median counts"},
                    {"device"},
                    {"threads"},
                    {"json"},
                    {"markdown", std::nullopt, "Print the table as Markdown"},
                    {"quiet"}},
       .example = "lantern bench kernels --filter moe --markdown",
       .check = &check_bench_kernels,
       .run = &run_bench_kernels},
      {.name = "plan",
       .summary = "The step plan of a batch: lengths, slots, schedules, views, and what is wrong with it",
       .settings = {{"input"},
                    {"device"},
                    {"json", std::nullopt, "Print the plan as one line of JSON instead of tables"}},
       .exactly_one_of = {"input"},
       .example = "lantern plan --input tests/plan/cases/mixed_decode.json --json",
       .watches_interrupts = false,
       .run = &run_plan},
      {.name = "doctor",
       .summary = "What this build and machine can do, and whether the default model works",
       .settings = {{"model"},
                    {"device"},
                    {"threads"},
                    {"check-graphs"},
                    {"replays"},
                    {"seed", "1", "Random seed of the steps that --check-graphs replays"},
                    {"explain-dispatch"},
                    {"require-impl"},
                    {"json"}},
       .example = "lantern doctor",
       .watches_interrupts = false,
       .run = &run_doctor},
      {.name = "help",
       .summary = "This overview, the help of a command, or the whole reference",
       .positional = "COMMAND...",
       .settings = {{"markdown"}, {"man"}},
       .example = "lantern help generate",
       .watches_interrupts = false,
       .check = &check_help,
       .run = &run_help},
      {.name = "completion",
       .summary = "What makes a shell complete commands, flags and their values; SHELL is bash",
       .positional = "SHELL",
       .positional_required = true,
       .settings = {},
       .example = "lantern completion bash",
       .watches_interrupts = false,
       .check = &check_completion,
       .run = &run_completion},
  };
  return kCommands;
}

LogLevel log_level(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  return name == "error" ? LogLevel::kError : LogLevel::kWarning;
}

// What no function returns: the system refuses memory or threads, of which the standard library tells by an exception.
Result<int> run_command(const Command& command, const Values& values) {
  try {
    return command.run(values);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "the system gave no more memory; free some, or ask for less");
  } catch (const std::system_error& refusal) {
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("the system refused a thread ({}); lower --threads", refusal.code().message()));
  }
}

}  // namespace

std::span<const Command> all_commands() { return commands(); }

std::vector<SettingUse> settings_of(const Command& command) {
  std::vector<SettingUse> all = command.settings;
  all.push_back({"log-level"});
  return all;
}

int run(std::span<const std::string> arguments) {
  hold_standard_descriptors();
  Invocation invocation = parse_command_line(arguments);
  ignore_closed_pipes();
  Result<int> outcome = kSuccess;
  if (invocation.command != nullptr) {
    set_log_level(log_level(invocation.values.text("log-level")));
    if (invocation.command->watches_interrupts) watch_interrupts();
    outcome = run_command(*invocation.command, invocation.values);
  } else if (invocation.exit_code == kSuccess) {
    write_text(invocation.text);
  } else {
    std::fputs(invocation.text.c_str(), stderr);
    return invocation.exit_code;
  }
  if (Status written = output_status(); outcome.ok() && !written.ok()) outcome = std::move(written).error();
  if (outcome.ok()) return *outcome;
  const std::string& message = outcome.error().message();
  print_error(invocation.command == nullptr ? message : with_flags(message, *invocation.command));
  return outcome.error().code() == ErrorCode::kOutOfMemory ? kOutOfMemoryExit : kFailure;
}

namespace {

// Whether `words` name a command, or are the first word of some.
bool is_named_by(const Command& command, const std::string& words) {
  return command.name == words || command.name.starts_with(words + " ");
}

}  // namespace

Status check_help(const Values& values) {
  const std::string& wanted = values.text("COMMAND...");
  if (int{values.is_on("markdown")} + int{values.is_on("man")} + int{!wanted.empty()} > 1) {
    return Error(ErrorCode::kInvalidArgument,
                 "--markdown, --man and the name of a command ask for three different texts; give one of them");
  }
  if (wanted.empty() ||
      std::ranges::any_of(commands(), [&](const Command& command) { return is_named_by(command, wanted); })) {
    return {};
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  const auto meant = closest(wanted, names);
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("there is no command '{}'{}", wanted,
                           meant ? fmt::format(", did you mean '{}'?", *meant) : std::string()));
}

Result<int> run_help(const Values& values) {
  const std::string& wanted = values.text("COMMAND...");
  std::string text;
  if (values.is_on("markdown")) {
    text = help_markdown();
  } else if (values.is_on("man")) {
    text = man_page();
  } else if (wanted.empty()) {
    text = overview_text();
  } else {
    for (const Command& command : commands()) text += is_named_by(command, wanted) ? help_text(command) : "";
  }
  write_text(text);
  return kSuccess;
}

}  // namespace lantern::cli
