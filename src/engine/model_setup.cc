#include "engine/model_setup.h"

#include <fmt/format.h>

#include <vector>

namespace lantern {
namespace {

// `all` has one entry for each layer, the MTP layers last.
template <class T>
void keep_entries(std::vector<T>& all, int32_t kept, int32_t dropped) {
  const auto from = all.begin() + kept;
  all.erase(from, from + dropped);
}

}  // namespace

Status keep_layers(ModelConfig& config, int32_t layers, MtpLayers mtp) {
  if (layers < 0 || layers > config.num_layers) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--layers {} is outside [1, {}], the model's own number", layers, config.num_layers));
  }
  const int32_t kept = layers > 0 ? layers : config.num_layers;
  keep_entries(config.layer_is_moe, kept, config.num_layers - kept);
  keep_entries(config.selection, kept, config.num_layers - kept);
  config.num_layers = kept;
  if (mtp == MtpLayers::kDrop) {
    config.num_left_out_mtp_layers = config.num_mtp_layers;
    config.num_mtp_layers = 0;
    config.layer_is_moe.resize(static_cast<size_t>(kept));
    config.selection.resize(static_cast<size_t>(kept));
  }
  return {};
}

void register_weights_of(const Device& owner, Device& reader) {
  for (const MemoryLedger::Entry& entry : owner.ledger().entries()) {
    reader.register_memory(MemoryClass::kWeights, entry.owner, entry.begin, entry.bytes);
  }
}

}  // namespace lantern
