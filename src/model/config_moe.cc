// Experts, router, layer lists and the quantisation entry.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>

#include "model/config_sections.h"

namespace lantern {
namespace json = boost::json;
namespace {

constexpr int64_t kMaxExperts = kMaxRouterExperts;

Status read_router(ConfigFields& fields, const ArchitectureDefaults& defaults, ModelConfig& config) {
  const bool is_v2 = config.architecture == Architecture::kDeepseekV2;
  config.router_scoring = defaults.scoring;
  config.router_group_score = is_v2 ? RouterGroupScore::kMax : RouterGroupScore::kTop2Sum;
  config.router_has_bias = !is_v2;
  const std::string_view scoring = is_v2 ? "softmax" : "sigmoid";
  RETURN_IF_ERROR(fields.choice_or("scoring_func", {scoring}, scoring));

  ASSIGN_OR_RETURN(config.num_expert_groups, fields.integer_or("n_group", 1, kMaxExperts, defaults.num_expert_groups));
  ASSIGN_OR_RETURN(config.topk_groups, fields.integer_or("topk_group", 1, kMaxExperts, defaults.topk_groups));
  if (is_v2) {
    ASSIGN_OR_RETURN(const std::string method,
                     fields.choice_or("topk_method", {"greedy", "group_limited_greedy"}, "greedy"));
    if (method == "greedy") config.num_expert_groups = config.topk_groups = 1;
  } else {
    RETURN_IF_ERROR(fields.choice_or("topk_method", {"noaux_tc"}, "noaux_tc"));
  }
  ASSIGN_OR_RETURN(config.norm_topk_prob, fields.boolean_or("norm_topk_prob", defaults.norm_topk_prob));
  ASSIGN_OR_RETURN(const double scale,
                   fields.number_or("routed_scaling_factor", 1e-6, 1e6, defaults.routed_scaling_factor));
  config.routed_scaling_factor = static_cast<float>(scale);
  if (is_v2 && config.norm_topk_prob && config.experts_per_token > 1 && scale != 1.0) {
    return fields.bad_value("routed_scaling_factor",
                            "1 together with norm_topk_prob true: published implementations of V2 disagree on it",
                            ErrorCode::kUnsupported);
  }

  const int32_t groups = config.num_expert_groups;
  if (config.num_routed_experts % groups != 0) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: 'n_group' is {}, which does not divide the {} routed experts", fields.where(), groups,
                             config.num_routed_experts));
  }
  if (config.topk_groups > groups) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: 'topk_group' is {}; expected at most 'n_group', {}",
                                                          fields.where(), config.topk_groups, groups));
  }
  const int64_t group_size = config.num_routed_experts / groups;
  if (groups > 1 && group_size < 2 && config.router_group_score == RouterGroupScore::kTop2Sum) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: 'n_group' is {}, which leaves one expert a group; a group's score is the sum of its "
                             "two best",
                             fields.where(), groups));
  }
  if (config.experts_per_token > group_size * config.topk_groups) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: 'num_experts_per_tok' is {}, but {} groups of {} experts hold only {}", fields.where(),
                    config.experts_per_token, config.topk_groups, group_size, group_size * config.topk_groups));
  }
  return {};
}

Status read_moe_layers(ConfigFields& fields, const ArchitectureDefaults& defaults, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<std::string> types, read_layer_list(fields, "mlp_layer_types", config));
  const bool states_first_dense = fields.has("first_k_dense_replace");
  ASSIGN_OR_RETURN(config.first_k_dense_replace,
                   fields.integer_or("first_k_dense_replace", 0, kMaxDimension, defaults.first_k_dense_replace));
  const bool any_experts = config.num_routed_experts > 0;
  for (int32_t layer = 0; layer < config.total_layers(); ++layer) {
    bool is_moe = any_experts && layer >= config.first_k_dense_replace;
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(std::min<int64_t>(layer, std::ssize(types) - 1))];
      if (type != "dense" && type != "sparse") {
        return fields.bad_value("mlp_layer_types", "'dense' or 'sparse' for every layer", ErrorCode::kUnsupported);
      }
      const bool listed = type == "sparse";
      // Only the classes that have the list let it win over the count, which they always write.
      const bool list_wins =
          config.architecture != Architecture::kDeepseekV2 && config.architecture != Architecture::kDeepseekV3;
      if (listed != is_moe && !list_wins && states_first_dense && layer < config.num_layers) {
        return fields.bad_value("mlp_layer_types", fmt::format("the same layers as 'first_k_dense_replace' {}",
                                                               config.first_k_dense_replace));
      }
      is_moe = listed;
    }
    if (is_moe && !any_experts) {
      return fields.bad_value("mlp_layer_types", "'dense' for every layer, as there are no routed experts");
    }
    config.layer_is_moe.push_back(is_moe);
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> read_layer_list(ConfigFields& fields, std::string_view name,
                                                 const ModelConfig& config) {
  ASSIGN_OR_RETURN(std::vector<std::string> list, fields.strings_or_empty(name));
  const auto length = std::ssize(list);
  if (fields.has(name) && length != config.num_layers && length != config.total_layers()) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: '{}' has {} entries; expected {}, one a layer",
                                                          fields.where(), name, length, config.num_layers));
  }
  return list;
}

Status read_experts(ConfigFields& fields, ModelConfig& config) {
  const ArchitectureDefaults& defaults = architecture_defaults(config.architecture);
  ASSIGN_OR_RETURN(const std::string_view experts_name,
                   fields.spelling({"n_routed_experts", "num_local_experts", "num_experts"}));
  if (!fields.is_written(experts_name)) {
    return fields.bad_value(experts_name, "the number of routed experts, or null for none");
  }
  ASSIGN_OR_RETURN(config.num_routed_experts, fields.integer_or(experts_name, 0, kMaxExperts, 0));
  if (config.num_routed_experts > 0) {
    ASSIGN_OR_RETURN(config.moe_intermediate_size, fields.integer("moe_intermediate_size", 1, kMaxDimension));
    ASSIGN_OR_RETURN(config.experts_per_token, fields.integer("num_experts_per_tok", 1, config.num_routed_experts));
    // Written null means none, as in the published class of V2; left out means the class's default.
    ASSIGN_OR_RETURN(config.num_shared_experts,
                     fields.integer_or("n_shared_experts", 0, 1024,
                                       fields.is_written("n_shared_experts") ? 0 : defaults.num_shared_experts));
    RETURN_IF_ERROR(read_router(fields, defaults, config));
  } else {
    for (std::string_view name : {"moe_intermediate_size", "num_experts_per_tok", "n_shared_experts", "scoring_func",
                                  "n_group", "topk_group", "topk_method", "norm_topk_prob", "routed_scaling_factor"}) {
      fields.mark_known(name);
    }
  }
  return read_moe_layers(fields, defaults, config);
}

Status read_quantization(ConfigFields& fields, ModelConfig& config) {
  constexpr int64_t kMaxBlock = 1 << 16;
  ASSIGN_OR_RETURN(const json::object* object, fields.object_or_null("quantization_config"));
  if (object == nullptr) return {};
  ConfigFields quantization(*object, fmt::format("{}: 'quantization_config'", fields.where()));
  if (!quantization.has("quant_method")) return quantization.bad_value("quant_method", "'fp8'");
  ASSIGN_OR_RETURN(config.quantization.method, quantization.choice_or("quant_method", {"fp8"}, "fp8"));
  RETURN_IF_ERROR(quantization.choice_or("fmt", {"e4m3"}, "e4m3"));
  RETURN_IF_ERROR(quantization.choice_or("activation_scheme", {"dynamic"}, "dynamic"));
  ASSIGN_OR_RETURN(const std::string scale_format, quantization.choice_or("scale_fmt", {"ue8m0", "float"}, "float"));
  config.quantization.ue8m0_scales = scale_format == "ue8m0";

  const json::value* block = quantization.find("weight_block_size");
  int32_t sizes[2] = {0, 0};
  bool valid = block != nullptr && block->is_array() && block->get_array().size() == 2;
  for (size_t i = 0; valid && i < 2; ++i) {
    const json::value& size = block->get_array()[i];
    valid = size.is_int64() && size.get_int64() >= 1 && size.get_int64() <= kMaxBlock;
    if (valid) sizes[i] = static_cast<int32_t>(size.get_int64());
  }
  if (!valid) {
    return quantization.bad_value("weight_block_size", "two integers, rows and columns of a block, e.g. [128, 128]",
                                  ErrorCode::kUnsupported);
  }
  config.quantization.block_rows = sizes[0];
  config.quantization.block_cols = sizes[1];
  // Which tensors are quantised is read from the checkpoint itself, not from these lists.
  for (std::string_view name : {"modules_to_not_convert", "ignored_layers", "dequantize", "_pre_quantization_dtype"}) {
    quantization.mark_known(name);
  }
  const std::vector<std::string> unknown = quantization.unknown();
  if (!unknown.empty()) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{}: '{}' is not known to Lantern; remove it if the weights do not need it",
                             quantization.where(), fmt::join(unknown, "', '")));
  }
  return {};
}

}  // namespace lantern
