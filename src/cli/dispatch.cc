#include "cli/dispatch.h"

#include <fmt/format.h>

#include <span>
#include <sstream>
#include <string>

#include "attention/host_choice.h"
#include "cli/console.h"

namespace lantern::cli {

Status apply_dispatch_settings(const Values& values, const Model& model) {
  const bool explains = values.is_on("explain-dispatch"), requires_some = values.given("require-impl");
  if (!explains && !requires_some) return {};
  const std::vector<DispatchChoice> report = report_dispatch(model);
  if (explains) {
    const Device& device = model.device();
    print_notice(device.kind() == DeviceKind::kCpu
                     ? fmt::format("{}, Highway's code for {}", device.description(), highway_target())
                     : device.description());
    std::istringstream lines(dispatch_text(report));
    for (std::string line; std::getline(lines, line);) print_notice(line);
  }
  if (!requires_some) return {};
  return require_implementations(report, values.text("require-impl"));
}

void write_dispatch(JsonWriter& json, const std::vector<DispatchChoice>& report) {
  json.begin_array();
  for (const DispatchChoice& choice : report) {
    json.begin_object()
        .field("op", choice.op())
        .field("subject", choice.subject)
        .field("layers", std::span<const int32_t>(choice.layers))
        .field("first_rows", choice.first_rows)
        .field("last_rows", choice.last_rows)
        .field("chosen", choice.chosen().name)
        .key("passed_over")
        .begin_array();
    for (const Considered& entry : choice.list) {
      if (!entry.refusal) break;
      json.begin_object().field("name", entry.name).field("reason", entry.refusal.reason);
      json.field("by_choice", entry.refusal.by_choice).end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

}  // namespace lantern::cli
