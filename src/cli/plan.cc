// lantern plan: the step plan of a batch from a file, as tables or as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/plan_case.h"
#include "engine/session.h"

namespace lantern::cli {
namespace {

using Ints = std::vector<int32_t>;

std::string pairs(const Ints& values, size_t width) {
  std::string text;
  for (size_t i = 0; i < values.size(); i += width) {
    text += fmt::format(" ({})", fmt::join(values.begin() + static_cast<std::ptrdiff_t>(i),
                                           values.begin() + static_cast<std::ptrdiff_t>(i + width), ","));
  }
  return text;
}

std::string token_table(const PlanFile::Batch& batch, const PlanResult& r) {
  const bool local = batch.plan_case.config.dcp.has_value();
  std::string text = fmt::format("\n{:>6} {:>8} {:>12} {:>10}", "token", "request", "context_len", "slot");
  if (batch.compressed) text += fmt::format(" {:>15} {:>15}", "compressed_len", "compressed_slot");
  if (local) text += fmt::format(" {:>10}", "local_len");
  text += '\n';
  for (size_t t = 0; t < r.token_request.size(); ++t) {
    text += fmt::format("{:>6} {:>8} {:>12} {:>10}", t, r.token_request[t], r.token_context_len[t],
                        r.groups[0].slot_mapping[t]);
    if (batch.compressed) {
      text +=
          fmt::format(" {:>15} {:>15}", r.groups[0].compressed_context_len[t], r.groups[0].compressed_slot_mapping[t]);
    }
    if (local) text += fmt::format(" {:>10}", r.local_context_len[t]);
    text += '\n';
  }
  return text;
}

std::string draft_table(const PlanResult& r, int32_t steps) {
  const auto requests = static_cast<size_t>(r.bucket.requests);
  std::string text = fmt::format("\n{:>6} {:>8} {:>12} {:>10} {:>10} {:>12}\n", "draft", "request", "from_token",
                                 "position", "seq_len", "slot");
  for (size_t i = 0; i < requests * static_cast<size_t>(steps); ++i) {
    text += fmt::format("{:>6} {:>8} {:>12} {:>10} {:>10} {:>12}\n", i / requests + 1, i % requests,
                        r.draft_token_indices[i % requests], r.draft_positions[i], r.draft_seq_lens[i],
                        r.groups[0].draft_slot_mapping[i]);
  }
  return text;
}

}  // namespace

std::string plan_table(const PlanFile::Batch& batch, const PlanResult& r) {
  const StepPlanConfig& config = batch.plan_case.config;
  std::string text = fmt::format(
      "bucket: {} tokens, {} requests, query width {}\ndecodes: {} with {} tokens; prefills: {} with {} tokens\n",
      r.bucket.tokens, r.bucket.requests, r.bucket.query_width, r.counts[kNumDecodes], r.counts[kNumDecodeTokens],
      r.counts[kNumPrefills], r.counts[kNumPrefillTokens]);
  text += fmt::format("\n{:>8} {:>16} {:>10} {:>10}  context_lens of the per-request view\n", "request", "tokens",
                      "query_len", "seq_len");
  const auto width = static_cast<size_t>(r.bucket.query_width);
  for (size_t b = 0; b < r.seq_len.size(); ++b) {
    const auto row = r.per_request_context_lens.begin() + static_cast<std::ptrdiff_t>(b * width);
    text += fmt::format("{:>8} {:>16} {:>10} {:>10}  {}\n", b,
                        fmt::format("[{},{})", r.query_start[b], r.query_start[b] + r.query_len[b]), r.query_len[b],
                        r.seq_len[b], fmt::join(row, row + static_cast<std::ptrdiff_t>(width), " "));
  }
  if (r.counts[kRequiresPadding] != 0) text += "queries must be packed for the per-request view\n";
  text += token_table(batch, r);
  if (config.workers > 0) {
    text += fmt::format("\npaged MQA, sm90: {}\npaged MQA, sm100:{}\n", pairs(r.paged_mqa_sm90, 2),
                        pairs(r.paged_mqa_sm100, 2));
  }
  if (config.mla) {
    text +=
        fmt::format("\nMLA tiles:{}\nMLA num_splits: {}\n", pairs(r.mla_tiles, 8), fmt::join(r.mla_num_splits, " "));
  }
  if (config.prefill) {
    text += "\nprefill chunks (requests, tokens):";
    for (size_t i = 0; i < r.prefill_chunks.size(); i += 4) {
      const int32_t* c = &r.prefill_chunks[i];
      text += fmt::format(" [{},{}) [{},{})", c[0], c[1], c[2], c[3]);
    }
    text += '\n';
  }
  if (config.drafts) text += draft_table(r, config.draft_steps());
  for (const PlanResult::Fault& error : r.errors) {
    text +=
        fmt::format("\nerror {}: {}\n", plan_fault_name(error.fault).name, plan_error_message(batch.plan_case, error));
  }
  return text;
}

Result<int> run_plan(const Values& values) {
  const std::string& path = values.text("input");
  ASSIGN_OR_RETURN(const std::string text, read_text(path));
  Result<PlanFile> parsed = parse_plan_file(text);
  if (!parsed.ok()) return std::move(parsed).error().within(path);
  const PlanFile& file = *parsed;
  for (const std::string& field : file.unknown_fields) {
    print_notice(fmt::format("{}: {} is not a field of a batch and was not looked at", path, field));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, make_device(values.text("device"), 1));
  bool faulty = false;
  std::string tables;
  JsonWriter json;
  if (file.is_list) json.begin_array();
  for (size_t i = 0; i < file.batches.size(); ++i) {
    Result<PlanResult> plan = replay_plan(*device, file.batches[i].plan_case);
    if (!plan.ok()) return std::move(plan).error().within(path);
    faulty = faulty || !plan->errors.empty();
    if (values.is_on("json")) {
      write_plan(json, file.batches[i], *plan);
    } else {
      if (file.is_list) tables += fmt::format("{}batch {}\n", i == 0 ? "" : "\n", i);
      tables += plan_table(file.batches[i], *plan);
    }
  }
  if (file.is_list) json.end_array();
  write_text(values.is_on("json") ? json.take() + "\n" : tables);
  return faulty ? kFailure : kSuccess;
}

}  // namespace lantern::cli
