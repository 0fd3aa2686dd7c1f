#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/dispatch.h"
#include "cli/doctor_graphs.h"
#include "cli/json_writer.h"
#include "cli/model_access.h"
#include "ops/linear.h"
#include "ops/memory_read.h"

namespace lantern::cli {
namespace {

enum class Verdict { kOk, kMissing, kFailed };

struct Finding {
  std::string_view name;
  Verdict verdict = Verdict::kOk;
  std::string text;
};

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kMissing: return "none";
    case Verdict::kFailed: return "FAILED";
  }
  return "";
}

Finding failed(std::string_view name, const Error& error) { return {name, Verdict::kFailed, error.message()}; }

// The processor's name, where /proc tells it.
std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  }
  return "unknown processor";
}

std::string instruction_sets() {
  std::string names;
  const auto note = [&](bool has, std::string_view name) {
    if (has) names += fmt::format("{}{}", names.empty() ? "" : " ", name);
  };
#if defined(__x86_64__)  // the compiler's feature query exists for x86 only
  note(__builtin_cpu_supports("avx2") != 0, "avx2");
  note(__builtin_cpu_supports("avx512f") != 0, "avx512");
  note(__builtin_cpu_supports("avx512bf16") != 0, "avx512_bf16");
  note(__builtin_cpu_supports("avx512vnni") != 0, "avx512_vnni");
#endif
  return names.empty() ? "no vector extension that Lantern asks for" : names;
}

Finding check_cuda() {
  Result<std::unique_ptr<Device>> device = make_device("cuda", 0);
  if (device.ok()) return {"cuda", Verdict::kOk, (*device)->description()};
  return {"cuda", Verdict::kMissing, device.error().message()};
}

// Each implementation that an op chooses for the model, once.
std::string chosen_names(const std::vector<DispatchChoice>& report) {
  std::vector<std::string_view> names;
  for (const DispatchChoice& choice : report) {
    const std::string_view name = choice.chosen().name;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Finding check_dispatch(const Values& values, const std::vector<DispatchChoice>& report) {
  if (values.given("require-impl")) {
    if (const Status met = require_implementations(report, values.text("require-impl")); !met.ok()) {
      return failed("dispatch", met.error());
    }
  }
  return {"dispatch", Verdict::kOk, chosen_names(report)};
}

// Loads the model and lets it say one token: what proves more than any list of files.
void check_model(const Values& values, const Device& device, std::vector<Finding>& findings,
                 std::vector<DispatchChoice>& dispatch) {
  Result<std::filesystem::path> dir = model_dir(values);
  if (!dir.ok()) {
    findings.push_back(failed("model", dir.error()));
    return;
  }
  Result<Tokenizer> tokenizer = Tokenizer::load(*dir);
  if (!tokenizer.ok()) {
    findings.push_back(failed("tokenizer", tokenizer.error()));
    return;
  }
  findings.push_back({"tokenizer", Verdict::kOk, fmt::format("{} tokens", tokenizer->vocab_size())});
  const auto start = std::chrono::steady_clock::now();
  SessionOptions options;
  options.model_dir = *dir;
  options.device = device.kind() == DeviceKind::kCpu ? "cpu" : "auto";
  options.threads = static_cast<int32_t>(values.integer("threads"));
  Result<std::unique_ptr<Session>> session = Session::load(options);
  if (!session.ok()) {
    findings.push_back(failed("model", session.error()));
    return;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  findings.push_back(
      {"model", Verdict::kOk,
       fmt::format("{}: {}, loaded in {:.2f} s, context {}", dir->string(),
                   lantern::to_string((*session)->config().architecture), seconds, (*session)->max_model_len())});
  dispatch = report_dispatch((*session)->model());
  findings.push_back(check_dispatch(values, dispatch));
  GenerateRequest request;
  request.max_tokens = 1;
  request.sampling.temperature = 0;
  Result<std::vector<TokenId>> prompt = tokenizer->encode("Question: What is 2 plus 2?");
  if (!prompt.ok()) {
    findings.push_back(failed("generate", prompt.error()));
    return;
  }
  request.prompt = *prompt;
  Result<GenerateResult> generated = (*session)->generate(request);
  findings.push_back(generated.ok() ? Finding{"generate", Verdict::kOk,
                                              fmt::format("first token after {:.3f} s", generated->prefill_seconds)}
                                    : failed("generate", generated.error()));
}

}  // namespace

Result<int> run_doctor(const Values& values) {
  if (values.is_on("check-graphs")) return run_doctor_graphs(values);
  std::vector<Finding> findings;
  findings.push_back({"version", Verdict::kOk, LANTERN_VERSION});
  findings.push_back({"processor", Verdict::kOk, fmt::format("{} ({})", processor_name(), instruction_sets())});
  Result<std::unique_ptr<Device>> device =
      make_device(values.text("device"), static_cast<int32_t>(values.integer("threads")));
  if (device.ok()) {
    findings.push_back({"device", Verdict::kOk,
                        fmt::format("{}, {:.1f} GiB of memory available", (*device)->description(),
                                    static_cast<double>((*device)->available_bytes()) / (1 << 30))});
  } else {
    findings.push_back(failed("device", device.error()));
  }
  findings.push_back({"cache", Verdict::kOk,
                      fmt::format("{:.1f} MiB last level", static_cast<double>(last_level_cache_bytes()) / (1 << 20))});
  for (const LinearImplementation& gemm : linear_host_implementations()) {
    findings.push_back(gemm.missing == nullptr
                           ? Finding{"gemm", Verdict::kOk, gemm.name}
                           : Finding{"gemm", Verdict::kMissing, fmt::format("{}: {}", gemm.name, gemm.missing)});
  }
  findings.push_back(check_cuda());
  std::vector<DispatchChoice> dispatch;
  if (device.ok()) check_model(values, **device, findings, dispatch);
  const bool explains = values.is_on("explain-dispatch");

  bool all_well = true;
  JsonWriter json;
  json.begin_array();
  for (const Finding& finding : findings) {
    all_well = all_well && finding.verdict != Verdict::kFailed;
    json.begin_object().field("check", finding.name).field("verdict", to_string(finding.verdict));
    json.field("text", finding.text).end_object();
    if (!values.is_on("json")) {
      write_text(fmt::format("{:<10} {:<7} {}\n", finding.name, to_string(finding.verdict), finding.text));
    }
  }
  json.end_array();
  if (values.is_on("json")) {
    JsonWriter explained;
    if (explains) write_dispatch(explained, dispatch);
    write_text(fmt::format("{{\"ok\": {}, \"findings\": {}{}{}}}\n", all_well, json.take(),
                           explains ? ", \"dispatch\": " : "", explained.take()));
  } else if (explains) {
    write_text("\n" + dispatch_text(dispatch));
  }
  return all_well ? kSuccess : kFailure;
}

}  // namespace lantern::cli
