#include "cli/plan_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

namespace lantern::cli {
namespace {

namespace json = boost::json;

Error wrong(const std::string& field, std::string_view expected) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("\"{}\" must be {}", field, expected));
}

// An object with the path that messages name it by; remembers which of its fields were asked for.
class Fields {
 public:
  Fields(const json::object& object, std::string path) : object_(object), path_(std::move(path)) {}

  std::string name_of(std::string_view name) const {
    return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
  }
  // Null where the field is missing or null.
  const json::value* find(std::string_view name) {
    known_.emplace_back(name);
    const json::value* found = object_.if_contains(name);
    return found == nullptr || found->is_null() ? nullptr : found;
  }
  Result<const json::value*> need(std::string_view name) {
    const json::value* found = find(name);
    if (found == nullptr) return Error(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is missing", name_of(name)));
    return found;
  }

  template <class Integer>
  Status read(std::string_view name, Integer& to) {
    ASSIGN_OR_RETURN(const json::value* value, need(name));
    return read_integer(name, *value, to);
  }
  // Leaves `to` alone where the field is missing.
  template <class Integer>
  Status read_if_given(std::string_view name, Integer& to) {
    const json::value* value = find(name);
    return value == nullptr ? Status() : read_integer(name, *value, to);
  }
  Status read_if_given(std::string_view name, std::optional<int32_t>& to) {
    const json::value* value = find(name);
    if (value == nullptr) return {};
    int32_t number = 0;
    RETURN_IF_ERROR(read_integer(name, *value, number));
    to = number;
    return {};
  }
  Status read_if_given(std::string_view name, bool& to) {
    const json::value* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_bool()) return wrong(name_of(name), "true or false");
    to = value->get_bool();
    return {};
  }
  // An object inside, where there is one.
  Result<std::optional<Fields>> object(std::string_view name) {
    const json::value* value = find(name);
    if (value == nullptr) return std::optional<Fields>();
    if (!value->is_object()) return wrong(name_of(name), "an object");
    return std::optional<Fields>(Fields(value->get_object(), name_of(name)));
  }

  void collect_unknown(std::vector<std::string>& unknown) const {
    for (const auto& field : object_) {
      if (std::find(known_.begin(), known_.end(), std::string(field.key())) == known_.end()) {
        unknown.push_back(name_of(field.key()));
      }
    }
  }

 private:
  template <class Integer>
  Status read_integer(std::string_view name, const json::value& value, Integer& to) const {
    boost::system::error_code failure;
    to = value.to_number<Integer>(failure);
    if (failure || value.is_double()) {
      return wrong(name_of(name), sizeof(Integer) == 4 ? "a whole number of 32 bits" : "a whole number");
    }
    return {};
  }

  const json::object& object_;
  std::string path_;
  std::vector<std::string> known_;
};

// A whole number; one that 32 bits cannot hold becomes the nearest that they can, which no limit allows.
bool read_entry(const json::value& value, int32_t& to) {
  if (value.is_bool()) {
    to = value.get_bool() ? 1 : 0;
  } else if (value.is_int64()) {
    to = static_cast<int32_t>(std::clamp<int64_t>(value.get_int64(), INT32_MIN + 1, INT32_MAX));
  } else if (value.is_uint64()) {
    to = INT32_MAX;
  } else {
    return false;
  }
  return true;
}

// The first `count` entries; what lies beyond them is not looked at.
Result<std::vector<int32_t>> read_array(const std::string& name, const json::value& value, size_t count) {
  if (!value.is_array()) return wrong(name, "an array");
  const json::array& array = value.get_array();
  if (array.size() < count) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("\"{}\" has {} entries, but the batch needs {}", name, array.size(), count));
  }
  std::vector<int32_t> entries(count);
  for (size_t i = 0; i < count; ++i) {
    if (!read_entry(array[i], entries[i])) return wrong(fmt::format("{}[{}]", name, i), "a whole number");
  }
  return entries;
}

Status read_limits(Fields fields, StepLimits& limits, std::vector<std::string>& unknown) {
  RETURN_IF_ERROR(fields.read("max_requests", limits.max_requests));
  RETURN_IF_ERROR(fields.read("max_tokens", limits.max_tokens));
  RETURN_IF_ERROR(fields.read("max_query_len", limits.max_query_len));
  RETURN_IF_ERROR(fields.read("max_blocks_per_request", limits.max_blocks_per_request));
  RETURN_IF_ERROR(fields.read("block_size", limits.block_size));
  RETURN_IF_ERROR(fields.read("num_blocks", limits.num_blocks));
  RETURN_IF_ERROR(fields.read_if_given("index_topk", limits.index_topk));
  RETURN_IF_ERROR(fields.read("max_model_len", limits.max_model_len));
  fields.collect_unknown(unknown);
  return {};
}

Status read_counts(Fields& fields, PlanCase& c) {
  const StepLimits& limits = c.config.limits;
  RETURN_IF_ERROR(fields.read("num_requests", c.num_requests));
  RETURN_IF_ERROR(fields.read("num_tokens", c.num_tokens));
  if (c.num_requests < 0 || c.num_requests > limits.max_requests) {
    return wrong("num_requests", fmt::format("between 0 and limits.max_requests, {}", limits.max_requests));
  }
  if (c.num_tokens < 0 || c.num_tokens > limits.max_tokens) {
    return wrong("num_tokens", fmt::format("between 0 and limits.max_tokens, {}", limits.max_tokens));
  }
  return {};
}

Status read_arrays(Fields& fields, PlanCase& c) {
  const auto requests = static_cast<size_t>(c.num_requests);
  ASSIGN_OR_RETURN(const json::value* starts, fields.need("query_start_loc"));
  ASSIGN_OR_RETURN(c.query_start_loc, read_array("query_start_loc", *starts, requests + 1));
  ASSIGN_OR_RETURN(const json::value* lengths, fields.need("seq_lens"));
  ASSIGN_OR_RETURN(c.seq_lens, read_array("seq_lens", *lengths, requests));
  if (const json::value* prefilling = fields.find("prefilling")) {
    ASSIGN_OR_RETURN(c.prefilling, read_array("prefilling", *prefilling, requests));
  }
  if (const json::value* accepted = fields.find("accepted")) {
    ASSIGN_OR_RETURN(c.accepted, read_array("accepted", *accepted, requests));
    c.config.drafts = true;
  }
  ASSIGN_OR_RETURN(const json::value* table, fields.need("block_table"));
  if (!table->is_array()) return wrong("block_table", "an array of rows");
  const json::array& rows = table->get_array();
  if (rows.size() < requests) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("\"block_table\" has {} rows, but the batch needs {}", rows.size(), requests));
  }
  c.block_table.emplace_back();
  for (size_t b = 0; b < requests; ++b) {
    const std::string name = fmt::format("block_table[{}]", b);
    if (!rows[b].is_array()) return wrong(name, "an array of block ids");
    const size_t width =
        std::min(rows[b].get_array().size(), static_cast<size_t>(std::max(c.config.limits.max_blocks_per_request, 0)));
    ASSIGN_OR_RETURN(std::vector<int32_t> row, read_array(name, rows[b], width));
    c.block_table[0].push_back(std::move(row));
  }
  return {};
}

Status read_schedules(Fields& fields, PlanCase& c, std::vector<std::string>& unknown) {
  StepPlanConfig& config = c.config;
  RETURN_IF_ERROR(fields.read_if_given("workers", config.workers));
  if (config.workers < 0) return wrong("workers", "at least 1");
  ASSIGN_OR_RETURN(std::optional<Fields> mla, fields.object("mla"));
  if (mla) {
    MlaTiles& tiles = config.mla.emplace();
    int32_t heads = 128;
    RETURN_IF_ERROR(mla->read_if_given("heads", heads));
    RETURN_IF_ERROR(mla->read_if_given("fixed_overhead_blocks", tiles.fixed_overhead_blocks));
    RETURN_IF_ERROR(mla->read_if_given("topk", tiles.topk));
    if (heads < 1) return wrong("mla.heads", "at least 1");
    if (mla->find("parts") != nullptr) {
      RETURN_IF_ERROR(mla->read("parts", tiles.parts));
    } else if (config.workers > 0) {
      // One block of 64 query rows of a request, all heads, per worker and part.
      tiles.parts = std::max(1, config.workers / bucket_of(c).query_width / ((heads + 63) / 64));
    } else {
      return Error(ErrorCode::kInvalidArgument,
                   "\"mla.parts\" is missing, and without \"workers\" it cannot be derived");
    }
    mla->collect_unknown(unknown);
  }
  ASSIGN_OR_RETURN(std::optional<Fields> prefill, fields.object("prefill"));
  if (prefill) {
    PrefillBudget& budget = config.prefill.emplace();
    RETURN_IF_ERROR(prefill->read("workspace_tokens", budget.workspace_tokens));
    RETURN_IF_ERROR(prefill->read("logits_bytes", budget.logits_bytes));
    prefill->collect_unknown(unknown);
  }
  return {};
}

Result<PlanFile::Batch> read_batch(const json::value& value, std::vector<std::string>& unknown) {
  if (!value.is_object()) return Error(ErrorCode::kInvalidArgument, "a batch must be a JSON object");
  PlanFile::Batch batch;
  PlanCase& c = batch.plan_case;
  StepPlanConfig& config = c.config;
  Fields fields(value.get_object(), "");
  ASSIGN_OR_RETURN(std::optional<Fields> limits, fields.object("limits"));
  if (!limits) return Error(ErrorCode::kInvalidArgument, "\"limits\" is missing");
  RETURN_IF_ERROR(read_limits(*limits, config.limits, unknown));
  Result<StepLimits> checked = StepLimits::checked(config.limits);
  if (!checked.ok()) return std::move(checked).error().within("limits");
  RETURN_IF_ERROR(read_counts(fields, c));
  RETURN_IF_ERROR(read_arrays(fields, c));
  ASSIGN_OR_RETURN(std::optional<Fields> bucket, fields.object("bucket"));
  if (bucket) {
    RETURN_IF_ERROR(bucket->read_if_given("tokens", c.bucket_tokens));
    RETURN_IF_ERROR(bucket->read_if_given("requests", c.bucket_requests));
    RETURN_IF_ERROR(bucket->read_if_given("query_width", c.bucket_query_width));
    bucket->collect_unknown(unknown);
  }
  RETURN_IF_ERROR(check_bucket(bucket_of(c), config.limits));
  ASSIGN_OR_RETURN(std::optional<Fields> dcp, fields.object("dcp"));
  if (dcp) {
    ContextShard& shard = config.dcp.emplace();
    RETURN_IF_ERROR(dcp->read("world", shard.world));
    RETURN_IF_ERROR(dcp->read("rank", shard.rank));
    RETURN_IF_ERROR(dcp->read_if_given("interleave", shard.interleave));
    dcp->collect_unknown(unknown);
  }
  CacheGroup group = StepPlanConfig::group_of(config.limits);
  batch.compressed = fields.find("compress_ratio") != nullptr;
  RETURN_IF_ERROR(fields.read_if_given("compress_ratio", group.compress_ratio));
  if (group.compress_ratio < 1) return wrong("compress_ratio", "at least 1");
  config.groups = {group};
  RETURN_IF_ERROR(read_schedules(fields, c, unknown));
  RETURN_IF_ERROR(fields.read_if_given("poison", c.poison));
  config.flattened = config.per_request = true;
  RETURN_IF_ERROR(config.check());
  fields.collect_unknown(unknown);
  return batch;
}

}  // namespace

Result<PlanFile> parse_plan_file(std::string_view text) {
  boost::system::error_code failure;
  const json::value document = json::parse(text, failure);
  if (failure) return Error(ErrorCode::kInvalidArgument, fmt::format("not JSON: {}", failure.message()));
  PlanFile file;
  file.is_list = document.is_array();
  const size_t count = file.is_list ? document.get_array().size() : 1;
  for (size_t i = 0; i < count; ++i) {
    const std::string where = file.is_list ? fmt::format("batch {}", i) : std::string();
    std::vector<std::string> unknown;
    Result<PlanFile::Batch> batch = read_batch(file.is_list ? document.get_array()[i] : document, unknown);
    if (!batch.ok()) return file.is_list ? std::move(batch).error().within(where) : std::move(batch).error();
    file.batches.push_back(std::move(batch).value());
    for (const std::string& field : unknown) {
      file.unknown_fields.push_back(where.empty() ? field : fmt::format("{}: {}", where, field));
    }
  }
  return file;
}

}  // namespace lantern::cli
