// Heads, latent sizes, rope and the indexer.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <cmath>
#include <limits>
#include <optional>

#include "attention/cache_write.h"
#include "model/config_sections.h"

namespace lantern {
namespace json = boost::json;
namespace {

constexpr int64_t kMaxHeads = 1 << 16;
constexpr int64_t kMaxHeadDim = 1 << 16;

struct RopeSettings {
  std::optional<double> theta;
  RopeScaling scaling;
  bool operator==(const RopeSettings& other) const {
    const auto key = [](const RopeSettings& s) {
      return std::array{s.theta.value_or(0), s.scaling.factor, s.scaling.original_max_position, s.scaling.beta_fast,
                        s.scaling.beta_slow, s.scaling.mscale, s.scaling.mscale_all_dim};
    };
    return key(*this) == key(other);
  }
};

// The object `name` ("rope_scaling" or "rope_parameters"); nothing when absent.
Result<std::optional<RopeSettings>> read_rope_object(ConfigFields& fields, std::string_view name,
                                                     std::vector<std::string>& unknown) {
  ASSIGN_OR_RETURN(const json::object* object, fields.object_or_null(name));
  if (object == nullptr || object->empty()) return std::optional<RopeSettings>();
  ConfigFields rope(*object, fmt::format("{}: '{}'", fields.where(), name));
  RopeSettings settings;
  ASSIGN_OR_RETURN(const std::string_view type_name, rope.spelling({"rope_type", "type"}));
  ASSIGN_OR_RETURN(const std::string type, rope.choice_or(type_name, {"yarn", "default"}, "default"));
  if (rope.has("rope_theta")) {
    ASSIGN_OR_RETURN(settings.theta, rope.number("rope_theta", 1.0, 1e12));
  }
  if (type == "yarn") {
    ASSIGN_OR_RETURN(settings.scaling.factor, rope.number("factor", 1.0, 1e6));
    ASSIGN_OR_RETURN(settings.scaling.original_max_position,
                     rope.number("original_max_position_embeddings", 1.0, std::numeric_limits<int32_t>::max()));
    ASSIGN_OR_RETURN(settings.scaling.beta_fast, rope.number_or("beta_fast", 1e-6, 1e6, 32.0));
    ASSIGN_OR_RETURN(settings.scaling.beta_slow, rope.number_or("beta_slow", 1e-6, 1e6, 1.0));
    ASSIGN_OR_RETURN(settings.scaling.mscale, rope.number_or("mscale", 1e-6, 1e3, 1.0));
    ASSIGN_OR_RETURN(settings.scaling.mscale_all_dim, rope.number_or("mscale_all_dim", 0.0, 1e3, 0.0));
    if (settings.scaling.beta_fast < settings.scaling.beta_slow) {
      return rope.bad_value("beta_fast",
                            fmt::format("a number of at least beta_slow ({:g})", settings.scaling.beta_slow));
    }
    if (rope.has("attention_factor")) {
      return rope.bad_value("attention_factor", "no such field: the factor follows from mscale and mscale_all_dim",
                            ErrorCode::kUnsupported);
    }
    ASSIGN_OR_RETURN(const bool truncate, rope.boolean_or("truncate", true));
    if (!truncate) return rope.bad_value("truncate", "true", ErrorCode::kUnsupported);
  } else if (rope.has("factor")) {
    ASSIGN_OR_RETURN(const double factor, rope.number("factor", 1.0, 1e6));
    if (factor != 1.0) return rope.bad_value("factor", "1, or rope type 'yarn'", ErrorCode::kUnsupported);
  }
  ASSIGN_OR_RETURN(const double partial, rope.number_or("partial_rotary_factor", 0.0, 1.0, 1.0));
  if (partial != 1.0) return rope.bad_value("partial_rotary_factor", "1", ErrorCode::kUnsupported);
  for (std::string_view harmless : {"finetuned", "original_max_position_embeddings"}) rope.mark_known(harmless);
  for (const std::string& field : rope.unknown()) unknown.push_back(fmt::format("{}.{}", name, field));
  return std::optional<RopeSettings>(settings);
}

// indexer_types, or the pattern or schedule that transformers derives it from: one of "full" or "shared" per layer.
Result<std::vector<std::string>> indexer_types(ConfigFields& fields, const ModelConfig& config) {
  ASSIGN_OR_RETURN(std::vector<std::string> types, read_layer_list(fields, "indexer_types", config));
  const json::value* pattern = fields.find("index_topk_pattern");
  ASSIGN_OR_RETURN(const int32_t freq, fields.integer_or("index_topk_freq", 0, kMaxDimension, 1));
  ASSIGN_OR_RETURN(const int32_t offset, fields.integer_or("index_skip_topk_offset", 0, kMaxDimension, 2));
  if (!types.empty()) return types;
  if (pattern != nullptr && pattern->is_string()) {
    for (const char letter : pattern->get_string()) {
      if (letter != 'F' && letter != 'S') {
        return fields.bad_value("index_topk_pattern", "a string of the letters F and S");
      }
      types.emplace_back(letter == 'F' ? "full" : "shared");
    }
    if (std::ssize(types) != config.num_layers && std::ssize(types) != config.total_layers()) {
      return fields.bad_value("index_topk_pattern", fmt::format("{} letters, one a layer", config.num_layers));
    }
    return types;
  }
  if (pattern != nullptr) return read_layer_list(fields, "index_topk_pattern", config);
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const bool full = std::max(layer - offset + 1, 0) % std::max(freq, 1) == 0;
    types.emplace_back(full ? "full" : "shared");
  }
  return types;
}

}  // namespace

Status read_rope(ConfigFields& fields, ModelConfig& config) {
  std::vector<std::string> unknown;
  ASSIGN_OR_RETURN(const std::optional<RopeSettings> scaling, read_rope_object(fields, "rope_scaling", unknown));
  ASSIGN_OR_RETURN(const std::optional<RopeSettings> parameters, read_rope_object(fields, "rope_parameters", unknown));
  if (!unknown.empty()) {
    // What rope objects hold changes the angles, so that an unknown entry is never passed over.
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{}: '{}' is not known to Lantern; remove it if the model does not need it",
                             fields.where(), fmt::join(unknown, "', '")));
  }
  RopeSettings settings = parameters ? *parameters : scaling.value_or(RopeSettings{});
  if (parameters && scaling) {
    RopeSettings old = *scaling;
    if (!old.theta) old.theta = settings.theta;
    if (!(old == settings)) {
      return fields.bad_value("rope_scaling", "the same settings as 'rope_parameters', or only one of the two");
    }
  }
  const bool has_outer_theta = fields.has("rope_theta");
  if (has_outer_theta || !settings.theta) {
    ASSIGN_OR_RETURN(const double theta, fields.number("rope_theta", 1.0, 1e12));
    if (settings.theta && *settings.theta != theta) {
      return fields.bad_value("rope_theta", fmt::format("the {:g} of 'rope_parameters'", *settings.theta));
    }
    settings.theta = theta;
  }
  config.rope_theta = *settings.theta;
  config.rope_scaling = settings.scaling;
  if (config.rope_scaling.factor > 1.0 && config.rope_theta <= 1.0) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: 'rope_theta' is {:g}; yarn expects a number above 1",
                                                          fields.where(), config.rope_theta));
  }
  ASSIGN_OR_RETURN(const bool interleave, fields.boolean_or("rope_interleave", true));
  config.rope_pairing = interleave ? RopePairing::kInterleaved : RopePairing::kHalves;
  return {};
}

Status read_attention(ConfigFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.num_heads, fields.integer("num_attention_heads", 1, kMaxHeads));
  ASSIGN_OR_RETURN(config.kv_lora_rank, fields.integer("kv_lora_rank", 1, kMaxDimension));
  ASSIGN_OR_RETURN(config.qk_nope_head_dim, fields.integer("qk_nope_head_dim", 1, kMaxHeadDim));
  ASSIGN_OR_RETURN(config.qk_rope_head_dim, fields.integer("qk_rope_head_dim", 2, kMaxHeadDim));
  ASSIGN_OR_RETURN(config.v_head_dim, fields.integer("v_head_dim", 1, kMaxHeadDim));
  if (config.qk_rope_head_dim % 2 != 0) {
    return fields.bad_value("qk_rope_head_dim", "an even number: rope rotates pairs");
  }
  // null says "no query compression"; a missing field says nothing and may not be taken for it.
  if (!fields.is_written("q_lora_rank")) return fields.bad_value("q_lora_rank", "an integer, or null for none");
  ASSIGN_OR_RETURN(config.q_lora_rank, fields.integer_or("q_lora_rank", 1, kMaxDimension, 0));
  return {};
}

Status read_indexer(ConfigFields& fields, ModelConfig& config) {
  const ArchitectureDefaults& defaults = architecture_defaults(config.architecture);
  ASSIGN_OR_RETURN(const std::vector<std::string> layer_types, read_layer_list(fields, "layer_types", config));
  const std::string_view wanted = defaults.has_indexer ? "deepseek_sparse_attention" : "full_attention";
  for (const std::string& type : layer_types) {
    if (type != wanted) {
      return fields.bad_value("layer_types", fmt::format("'{}' for every layer", wanted), ErrorCode::kUnsupported);
    }
  }
  config.selection.assign(static_cast<size_t>(config.total_layers()), SelectionSource{});
  if (!defaults.has_indexer) {
    if (fields.has("index_topk")) {
      return fields.bad_value("index_topk", fmt::format("no such field: {} has no indexer", defaults.class_name),
                              ErrorCode::kUnsupported);
    }
    return {};
  }
  ASSIGN_OR_RETURN(config.index_heads, fields.integer("index_n_heads", 1, kMaxHeads));
  ASSIGN_OR_RETURN(config.index_head_dim, fields.integer("index_head_dim", 2, kMaxIndexDim));
  ASSIGN_OR_RETURN(config.index_topk, fields.integer("index_topk", 1, std::numeric_limits<int32_t>::max()));
  if (config.index_head_dim < config.qk_rope_head_dim) {
    return fields.bad_value("index_head_dim", fmt::format("at least qk_rope_head_dim ({}): the indexer's first values "
                                                          "are rotated",
                                                          config.qk_rope_head_dim));
  }
  if (config.q_lora_rank == 0) {
    return fields.bad_value(
        "q_lora_rank", fmt::format("an integer: the indexer of {} reads the compressed query", defaults.class_name));
  }
  ASSIGN_OR_RETURN(const bool interleave, fields.boolean_or("indexer_rope_interleave",
                                                            defaults.index_rope_pairing == RopePairing::kInterleaved));
  config.index_rope_pairing = interleave ? RopePairing::kInterleaved : RopePairing::kHalves;
  ASSIGN_OR_RETURN(config.mtp_shares_selection, fields.boolean_or("index_share_for_mtp_iteration", false));

  ASSIGN_OR_RETURN(const std::vector<std::string> types, indexer_types(fields, config));
  int32_t last_full = -1;
  for (int32_t layer = 0; layer < config.total_layers(); ++layer) {
    // The MTP layer runs after the others, in steps of its own: it cannot take a choice from them.
    const std::string type = layer < std::ssize(types) ? types[static_cast<size_t>(layer)] : "full";
    if (type == "full") {
      last_full = layer;
      config.selection[static_cast<size_t>(layer)] = {SelectionKind::kCompute, -1};
    } else if (type != "shared") {
      return Error(ErrorCode::kUnsupported, fmt::format("{}: indexer type '{}' of layer {} is not known; expected "
                                                        "'full' or 'shared'",
                                                        fields.where(), type, layer));
    } else if (last_full < 0 || layer >= config.num_layers) {
      return Error(
          ErrorCode::kUnsupported,
          fmt::format("{}: the indexer of layer {} is 'shared', but {}; expected 'full'", fields.where(), layer,
                      last_full < 0 ? "no layer before it computes a selection"
                                    : "the MTP layer cannot share with the layers before it"));
    } else {
      config.selection[static_cast<size_t>(layer)] = {SelectionKind::kReuse, last_full};
    }
  }
  return {};
}

}  // namespace lantern
