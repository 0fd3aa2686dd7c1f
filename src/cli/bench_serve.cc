// Load on a server of the OpenAI API, and how it stood it.
#include "cli/bench_serve.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/value_forms.h"

namespace lantern::cli {
namespace {

constexpr int64_t kMostAtOnce =
    4096;  // of descriptors that are asked of the system, where there is no limit of requests

Status write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return Error(ErrorCode::kIo, fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  return {};
}

// Fails where one of them fails: a run in which nothing works would say little.
Status warm_up(ServerAccess& server, const ServeTarget& target, std::span<const std::string> bodies,
               int64_t max_concurrency) {
  const std::vector<double> at_once(bodies.size(), 0);
  const ServeRun run = run_load(
      server, target, {.bodies = bodies, .arrivals = at_once, .max_concurrency = max_concurrency}, [](int64_t) {});
  for (const ServeRecord& record : run.records) {
    if (record.ok() || interrupted()) continue;
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{}{}: the warm-up failed: {}", server.url(), target.path(), record.error));
  }
  return {};
}

}  // namespace

Status check_bench_serve(const Values& values) {
  if (values.given("prompts") && values.given("dataset-name"))
    return Error(ErrorCode::kInvalidArgument, "--prompts and --dataset-name both say what to ask; give one of them");
  Result<Goodput> limits = parse_goodput(values.list("goodput"));
  return limits.ok() ? Status() : std::move(limits).error().within("--goodput");
}

Result<int> run_bench_serve(const Values& values) {
  const bool quiet = values.is_on("quiet");
  const int64_t count = values.integer("requests");
  const int64_t num_warmups = values.integer("num-warmups");
  ServeSubject subject;
  ASSIGN_OR_RETURN(subject.request_rate, parse_request_rate(values.text("request-rate")));
  subject.burstiness = values.real("burstiness");
  if (values.given("max-concurrency")) subject.max_concurrency = values.integer("max-concurrency");
  subject.seed = static_cast<uint64_t>(values.integer("seed"));
  subject.dataset = values.given("prompts") ? values.text("prompts") : values.text("dataset-name");
  std::optional<Goodput> goodput;
  if (values.given("goodput")) {
    ASSIGN_OR_RETURN(goodput, parse_goodput(values.list("goodput")));
  }
  const int64_t at_once = subject.max_concurrency > 0 ? subject.max_concurrency : std::min(count, kMostAtOnce);
  if (!reserve_descriptors(static_cast<int32_t>(at_once)).ok()) {
    return Error(ErrorCode::kIo, fmt::format("{} requests at a time need more open files than the system allows; lower "
                                             "--max-concurrency or raise the limit (ulimit -n)",
                                             at_once));
  }

  ASSIGN_OR_RETURN(ServerAccess server, ServerAccess::open(values));
  subject.url = server.url();
  ServeTarget target;
  target.chat = values.given("backend") ? values.text("backend") == "openai-chat" : subject.dataset == "chat";
  subject.backend = target.chat ? "openai-chat" : "openai";
  target.model = values.text("model");
  if (target.model.empty()) {
    ASSIGN_OR_RETURN(target.model, server.first_model());
  }
  subject.model = target.model;

  ASSIGN_OR_RETURN(const std::vector<std::string> bodies, serve_requests(values, server, target, count + num_warmups));
  const auto all = std::span(bodies);
  const auto measured = all.first(static_cast<size_t>(count));
  RETURN_IF_ERROR(warm_up(server, target, all.last(static_cast<size_t>(num_warmups)), at_once));
  const Result<MetricsSnapshot> before = server.metrics();

  ServeResult result;
  {
    const std::vector<double> arrivals = arrival_times(count, subject.request_rate, subject.burstiness, subject.seed);
    Progress progress("requests", count, quiet);
    result.run =
        run_load(server, target, {.bodies = measured, .arrivals = arrivals, .max_concurrency = subject.max_concurrency},
                 [&](int64_t over) { progress.update(over); });
  }
  if (interrupted()) return interrupt_exit_code();
  // A server without vLLM's counters is measured without its drafts.
  if (const Result<MetricsSnapshot> after = server.metrics(); before.ok() && after.ok())
    result.drafts = drafts_between(*before, *after);
  subject.date = fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(std::time(nullptr)));
  result.subject = std::move(subject);
  result.summary = summarise(result.run, goodput);

  write_text(values.is_on("json") ? serve_json(result, values.is_on("save-detailed")) + "\n" : serve_table(result));
  if (const std::string& path = values.text("output"); !path.empty())
    RETURN_IF_ERROR(write_file(path, serve_json(result, values.is_on("save-detailed")) + "\n"));
  if (const std::string& path = values.text("html"); !path.empty())
    RETURN_IF_ERROR(write_file(path, serve_html(result)));
  if (result.summary.completed > 0) return static_cast<int>(kSuccess);
  return Error(ErrorCode::kUnsupported,
               fmt::format("none of {} requests was answered: {}", count, result.summary.failures.front().first));
}

}  // namespace lantern::cli
