// The batches of `lantern plan` as JSON: a public format, described in docs/plan.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attention/plan/plan_replay.h"
#include "base/result.h"
#include "cli/json_writer.h"

namespace lantern::cli {

struct PlanFile {
  struct Batch {
    PlanCase plan_case;
    bool compressed = false;  // "compress_ratio" was given
  };
  std::vector<Batch> batches;
  bool is_list = false;                     // the file holds a list, so that a list comes out
  std::vector<std::string> unknown_fields;  // as "batch 0: limits.foo"; they are not looked at
};
// Errors name the batch (in a list), the field and what it must be.
Result<PlanFile> parse_plan_file(std::string_view text);

void write_plan(JsonWriter& json, const PlanFile::Batch& batch, const PlanResult& result);
std::string plan_table(const PlanFile::Batch& batch, const PlanResult& result);
// One sentence with the request's own numbers.
std::string plan_error_message(const PlanCase& plan_case, const PlanResult::Fault& error);

}  // namespace lantern::cli
