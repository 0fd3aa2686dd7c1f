// The plan of a batch as JSON. Names are a public format: docs/plan.md.
#include <fmt/format.h>

#include "cli/plan_case.h"

namespace lantern::cli {
namespace {

using Ints = std::vector<int32_t>;

void write_flat(JsonWriter& json, std::string_view name, const Ints& values) {
  json.key(name).value(std::span<const int32_t>(values));
}

// Rows of `width` entries; `rows` of them, even where a row has none.
void write_rows(JsonWriter& json, std::string_view name, const Ints& values, size_t rows, size_t width) {
  json.key(name).begin_array();
  for (size_t r = 0; r < rows; ++r) json.value(std::span<const int32_t>(values).subspan(r * width, width));
  json.end_array();
}

void write_views(JsonWriter& json, const PlanResult& r, size_t table_width) {
  const auto tokens = static_cast<size_t>(r.bucket.tokens);
  const auto width = static_cast<size_t>(r.bucket.query_width);
  json.key("views").begin_object();
  json.key("flattened").begin_object();
  write_flat(json, "context_lens", r.token_context_len);
  write_rows(json, "block_table", r.groups[0].expanded_block_table, tokens, table_width);
  write_flat(json, "decode_lens", r.decode_lens);
  json.end_object();
  write_flat(json, "row_request", r.token_request);
  json.key("per_request").begin_object();
  write_rows(json, "context_lens", r.per_request_context_lens, static_cast<size_t>(r.bucket.requests), width);
  json.field("query_width", r.bucket.query_width).field("requires_padding", r.counts[kRequiresPadding] != 0);
  json.end_object().end_object();
}

void write_schedules(JsonWriter& json, const PlanResult& r) {
  json.key("schedules").begin_object();
  if (!r.paged_mqa_sm90.empty()) {
    write_rows(json, "paged_mqa_sm90", r.paged_mqa_sm90, r.paged_mqa_sm90.size() / 2, 2);
    write_rows(json, "paged_mqa_sm100", r.paged_mqa_sm100, r.paged_mqa_sm100.size() / 2, 2);
  }
  if (!r.mla_tiles.empty()) {
    json.key("mla").begin_object();
    write_rows(json, "tiles", r.mla_tiles, r.mla_tiles.size() / 8, 8);
    write_flat(json, "num_splits", r.mla_num_splits);
    json.end_object();
  }
  json.end_object();
}

void write_chunks(JsonWriter& json, const PlanResult& r) {
  json.key("prefill_chunks").begin_array();
  for (size_t i = 0; i < r.prefill_chunks.size(); i += kPrefillChunkInts) {
    const std::span<const int32_t> chunk = std::span<const int32_t>(r.prefill_chunks).subspan(i, kPrefillChunkInts);
    json.begin_object().key("requests").value(chunk.first(2)).key("tokens").value(chunk.last(2)).end_object();
  }
  json.end_array();
}

void write_drafts(JsonWriter& json, const PlanResult& r, int32_t steps) {
  const auto requests = static_cast<size_t>(r.bucket.requests);
  json.key("draft").begin_array();
  for (size_t s = 0; s < static_cast<size_t>(steps); ++s) {
    const auto of_step = [&](std::string_view name, const Ints& values) {
      json.key(name).value(std::span<const int32_t>(values).subspan(s * requests, requests));
    };
    json.begin_object();
    write_flat(json, "query_start_loc", r.draft_query_start_loc);
    of_step("seq_lens", r.draft_seq_lens);
    of_step("positions", r.draft_positions);
    of_step("slot_mapping", r.groups[0].draft_slot_mapping);
    write_flat(json, "token_indices", r.draft_token_indices);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string plan_error_message(const PlanCase& c, const PlanResult::Fault& error) {
  std::string message(plan_fault_name(error.fault).message);
  if (error.request < 0) return message;
  const auto b = static_cast<size_t>(error.request);
  return fmt::format("{}; request {} has tokens {} to {} and length {}", message, b, c.query_start_loc[b],
                     c.query_start_loc[b + 1], c.seq_lens[b]);
}

void write_plan(JsonWriter& json, const PlanFile::Batch& batch, const PlanResult& r) {
  const StepPlanConfig& config = batch.plan_case.config;
  json.begin_object()
      .field("num_decodes", r.counts[kNumDecodes])
      .field("num_prefills", r.counts[kNumPrefills])
      .field("num_decode_tokens", r.counts[kNumDecodeTokens])
      .field("num_prefill_tokens", r.counts[kNumPrefillTokens]);
  write_flat(json, "token_request", r.token_request);
  write_flat(json, "token_context_len", r.token_context_len);
  write_flat(json, "slot_mapping", r.groups[0].slot_mapping);
  if (batch.compressed) {
    json.key("compressed").begin_object();
    write_flat(json, "context_lens", r.groups[0].compressed_context_len);
    write_flat(json, "slot_mapping", r.groups[0].compressed_slot_mapping);
    json.end_object();
  }
  if (config.dcp) write_flat(json, "local_context_lens", r.local_context_len);
  write_views(json, r, static_cast<size_t>(config.groups[0].max_blocks_per_request));
  if (config.workers > 0 || config.mla) write_schedules(json, r);
  if (config.prefill) write_chunks(json, r);
  if (config.drafts) write_drafts(json, r, config.draft_steps());
  json.key("errors").begin_array();
  for (const PlanResult::Fault& error : r.errors) {
    json.begin_object()
        .field("request", error.request)
        .field("code", plan_fault_name(error.fault).name)
        .field("message", plan_error_message(batch.plan_case, error))
        .end_object();
  }
  json.end_array().end_object();
}

}  // namespace lantern::cli
