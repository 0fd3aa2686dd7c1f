#include <fmt/format.h>

#include <set>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/json_writer.h"
#include "cli/kernel_cases.h"
#include "cli/kernel_timer.h"
#include "engine/session.h"

namespace lantern::cli {
namespace {

struct KernelResult {
  std::string name;
  double us = 0;
  int64_t bytes = 0;
  double flops = 0;
  double floor_us = 0;  // of reading so many bytes
  double goal_us = 0;   // 0: none

  double gb_per_second() const { return static_cast<double>(bytes) / us / 1e3; }
  double tflops() const { return flops / us / 1e6; }
  double ratio() const { return floor_us / us; }
};

Result<KernelResult> measure(KernelTimer& timer, const KernelCase& of) {
  Stream& stream = timer.stream();
  const int workers = stream.device().worker_count();
  Workspace counted = Workspace::counting();
  KernelMemory counting(counted, nullptr);
  of.make(counting, workers);
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::create(stream.device(), counted.peak_bytes()));
  KernelMemory memory(workspace, &stream);
  const KernelWork work = of.make(memory, workers);
  ASSIGN_OR_RETURN(const double seconds, timer.measure(work.launch));
  const double floor_us = static_cast<double>(work.bytes) / timer.read_bytes_per_second() * 1e6;
  return KernelResult{.name = of.name,
                      .us = seconds * 1e6,
                      .bytes = work.bytes,
                      .flops = work.flops,
                      .floor_us = floor_us,
                      .goal_us = of.goal.is_set() ? of.goal.most_us(floor_us) : 0};
}

Result<std::vector<KernelCase>> chosen_cases(CaseSize size, const std::string& filter) {
  std::vector<KernelCase> all = kernel_cases(size), chosen;
  std::set<std::string> ops;
  for (KernelCase& one : all) {
    ops.insert(one.name.substr(0, one.name.find(' ')));
    if (one.name.find(filter) != std::string::npos) chosen.push_back(std::move(one));
  }
  if (chosen.empty()) {
    return Error(ErrorCode::kNotFound, fmt::format("--filter '{}' is in the name of no case; cases begin with {}",
                                                   filter, fmt::join(ops, ", ")));
  }
  return chosen;
}

// Columns as text or as Markdown.
class Table {
 public:
  explicit Table(bool markdown) : markdown_(markdown) {
    row("case", {"us", "GB/s", "TFLOP/s", "floor us", "ratio", "goal us", ""});
    if (markdown_) write_text("|---|---|---|---|---|---|---|---|\n");
  }
  void add(const KernelResult& result) {
    const bool goal = result.goal_us > 0;
    row(result.name,
        {fmt::format("{:.2f}", result.us), fmt::format("{:.1f}", result.gb_per_second()),
         result.flops > 0 ? fmt::format("{:.2f}", result.tflops()) : "", fmt::format("{:.2f}", result.floor_us),
         fmt::format("{:.3f}", result.ratio()), goal ? fmt::format("{:.1f}", result.goal_us) : "",
         !goal                         ? ""
         : result.us <= result.goal_us ? "met"
                                       : "missed"});
  }

 private:
  void row(const std::string& name, const std::vector<std::string>& cells) {
    std::string line = markdown_ ? fmt::format("| {} ", name) : fmt::format("{:<66}", name);
    for (const std::string& cell : cells) line += markdown_ ? fmt::format("| {} ", cell) : fmt::format("{:>10}", cell);
    if (markdown_) line += "|";
    write_text(line.substr(0, line.find_last_not_of(' ') + 1) + "\n");
  }
  bool markdown_;
};

void write_json(const std::vector<KernelResult>& results, const std::vector<std::pair<std::string, std::string>>& left,
                KernelTimer& timer, int64_t repetitions) {
  JsonWriter json;
  json.begin_object()
      .field("device", timer.stream().device().description())
      .field("repetitions", repetitions)
      .field("read_gb_per_second", timer.read_bytes_per_second() / 1e9)
      .field("flush_bytes", timer.flush_bytes())
      .key("cases")
      .begin_array();
  for (const KernelResult& result : results) {
    json.begin_object()
        .field("name", result.name)
        .field("us", result.us)
        .field("bytes", result.bytes)
        .field("flops", result.flops)
        .field("gb_per_second", result.gb_per_second())
        .field("tflops", result.tflops())
        .field("floor_us", result.floor_us)
        .field("ratio", result.ratio());
    if (result.goal_us > 0) json.field("goal_us", result.goal_us).field("met", result.us <= result.goal_us);
    json.end_object();
  }
  json.end_array().key("refused").begin_array();
  for (const auto& [name, reason] : left) {
    json.begin_object().field("name", name).field("reason", reason).end_object();
  }
  write_text(json.end_array().end_object().take() + "\n");
}

}  // namespace

Status check_bench_kernels(const Values& values) {
  if (!values.is_on("json") || !values.is_on("markdown")) return {};
  return Error(ErrorCode::kInvalidArgument, "--json and --markdown are two forms of one table; give one of them");
}

Result<int> run_bench_kernels(const Values& values) {
  const bool json = values.is_on("json"), quiet = values.is_on("quiet");
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                   make_device(values.text("device"), static_cast<int32_t>(values.integer("threads"))));
  const CaseSize size = device->kind() == DeviceKind::kCuda ? CaseSize::kFull : CaseSize::kSmall;
  ASSIGN_OR_RETURN(const std::vector<KernelCase> cases, chosen_cases(size, values.text("filter")));
  const auto repetitions = static_cast<int32_t>(values.integer("repetitions"));
  ASSIGN_OR_RETURN(const std::unique_ptr<KernelTimer> timer, KernelTimer::create(*device, repetitions));
  if (!quiet) {
    print_notice(fmt::format("{}: reads {:.1f} GB/s; {} replays of each graph, {} MiB read before each",
                             device->description(), timer->read_bytes_per_second() / 1e9, repetitions,
                             timer->flush_bytes() >> 20));
  }
  std::optional<Table> table;
  if (!json) table.emplace(values.is_on("markdown"));
  std::vector<KernelResult> results;
  std::vector<std::pair<std::string, std::string>> refused;
  for (const KernelCase& one : cases) {
    if (interrupted()) return interrupt_exit_code();
    Result<KernelResult> result = measure(*timer, one);
    if (!result.ok()) {
      // Others may need less.
      print_error(fmt::format("{}: {}", one.name, result.error().message()));
      refused.emplace_back(one.name, result.error().message());
      continue;
    }
    if (table) table->add(*result);
    results.push_back(std::move(*result));
  }
  if (json) write_json(results, refused, *timer, repetitions);
  return refused.empty() ? kSuccess : kFailure;
}

}  // namespace lantern::cli
