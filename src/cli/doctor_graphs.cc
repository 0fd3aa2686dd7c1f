#include "cli/doctor_graphs.h"

#include <fmt/format.h>

#include <string>

#include "attention/plan/plan_graphs.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/json_writer.h"
#include "engine/session.h"

namespace lantern::cli {
namespace {

std::string as_json(const std::string& device, const PlanGraphReport& report) {
  JsonWriter json;
  json.begin_object().field("ok", report.mismatches == 0).field("device", device).field("buckets", report.buckets);
  json.field("replays", report.replays).field("mismatches", report.mismatches).field("graph_bytes", report.graph_bytes);
  json.field("capture_seconds", report.capture_seconds).field("seconds", report.seconds);
  json.key("first_mismatch");
  if (report.first_mismatch.empty()) {
    json.null();
  } else {
    json.value(report.first_mismatch);
  }
  return json.end_object().take() + "\n";
}

std::string as_text(const std::string& device, const PlanGraphReport& report) {
  std::string text = fmt::format(
      "device     {}\ngraphs     {} buckets captured in {:.3f} s, {:.1f} KiB\nreplays    {} on poisoned memory, each "
      "compared with a plan from scratch, in {:.3f} s\nmismatches {}\n",
      device, report.buckets, report.capture_seconds, static_cast<double>(report.graph_bytes) / 1024, report.replays,
      report.seconds, report.mismatches);
  if (!report.first_mismatch.empty()) text += fmt::format("first      {}\n", report.first_mismatch);
  return text;
}

}  // namespace

Result<int> run_doctor_graphs(const Values& values) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, make_device(values.text("device"), 1));
  ASSIGN_OR_RETURN(const PlanGraphReport report, check_plan_graphs(*device, values.integer("replays"),
                                                                   static_cast<uint64_t>(values.integer("seed"))));
  const std::string name = device->description();
  write_text(values.is_on("json") ? as_json(name, report) : as_text(name, report));
  return report.mismatches == 0 ? kSuccess : kFailure;
}

}  // namespace lantern::cli
