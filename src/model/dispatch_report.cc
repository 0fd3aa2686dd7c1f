#include "model/dispatch_report.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "attention/cuda_choice.h"
#include "attention/host_choice.h"
#include "attention/mla_splits.h"
#include "base/check.h"
#include "device/device_traits.h"
#include "model/kv_up_projection.h"
#include "ops/cuda_choice.h"
#include "ops/cuda_scratch.h"
#include "ops/host_choice.h"

namespace lantern {
namespace {

std::string text_of(std::string_view name, const QuantizedMatrix& w) {
  std::string text = fmt::format("{}, {} {} x {}", name, to_string(w.dtype), w.rows, w.cols);
  if (w.block_rows > 0) text += fmt::format(" with scales for {} x {}", w.block_rows, w.block_cols);
  return text;
}

using Consider = std::function<std::vector<Considered>(int64_t rows)>;

// Goes through a model's launches, in the order of a step.
class Walk {
 public:
  Walk(const Model& model, DeviceKind kind, const DeviceTraits& traits)
      : model_(model),
        c_(model.config()),
        options_(model.options()),
        traits_(traits),
        cuda_(kind == DeviceKind::kCuda),
        step_rows_(std::min<int64_t>(options_.limits.max_tokens, kCudaRowsPerPass)) {
    // The absorbed form has decodes' tokens and, on CUDA, some of a prompt's at a time.
    absorbed_rows_ = options_.limits.max_tokens;
    if (options_.mla_form == MlaForm::kAuto) {
      const int64_t of_prompt = cuda_ ? kMlaPrefillTokens : 1;
      absorbed_rows_ = std::min(absorbed_rows_, std::max(options_.limits.max_sample_rows(), of_prompt));
    }
  }

  std::vector<DispatchChoice> run() {
    const ModelWeights& w = model_.weights();
    for (size_t id = 0; id < w.layers.size(); ++id) layer(static_cast<int32_t>(id), w.layers[id]);
    layer_ = kNoLayer;
    linear("lm_head", w.lm_head, LinearInput::kRounded, options_.sample_rows);
    if (w.mtp.empty()) return std::move(report_);
    layer_ = c_.num_layers;
    linear("eh_proj", w.mtp.front().eh_proj);
    layer(c_.num_layers, w.mtp.front().layer);
    linear("shared_head", w.mtp.front().head, LinearInput::kRounded, options_.sample_rows);
    return std::move(report_);
  }

 private:
  static constexpr int32_t kNoLayer = -1;

  void layer(int32_t id, const LayerWeights& w) {
    layer_ = id;
    attention(id, w.attention);
    if (!w.dense.gate.empty()) mlp(w.is_moe ? "shared experts" : "mlp", w.dense);
    if (!w.is_moe) return;
    linear("router", w.router, LinearInput::kExact);
    experts(w.first_expert);
  }

  void attention(int32_t id, const AttentionWeights& w) {
    if (c_.q_lora_rank > 0) {
      linear("q_a_proj", w.q_a_proj);
      linear("q_b_proj", w.q_b_proj);
    } else {
      linear("q_proj", w.q_proj);
    }
    linear("kv_a_proj", w.kv_a_proj);
    if (c_.computes_selection(id)) {
      linear("indexer.wq_b", w.indexer.wq_b);
      linear("indexer.wk", w.indexer.wk);
      linear("indexer.weights_proj", w.indexer.weights_proj, LinearInput::kExact);
      if (cuda_ && options_.index_mode == IndexSelectParams::Mode::kScore) index_scores(id);
    }
    cuda_ ? cuda_attention(id, w) : host_attention(id, w);
    linear("o_proj", w.o_proj);
  }

  void cuda_attention(int32_t id, const AttentionWeights& w) {
    const KvUpProjection kv_b = kv_up_projection(w.kv_b_proj, c_.num_heads, c_.qk_nope_head_dim, c_.v_head_dim);
    const LatentCacheView cache = model_.cache().latent(id);
    const std::string weight = text_of("kv_b_proj", w.kv_b_proj), of = cache_text(cache);
    add(weight, absorbed_rows_, [&](int64_t rows) {
      return consider(cuda::kAbsorbQueryKernels, cuda::AbsorbQueryDesc{.kv_b = kv_b, .tokens = rows}, traits_);
    });
    add(of, absorbed_rows_, [&](int64_t rows) {
      const auto tokens = static_cast<int32_t>(rows);
      return consider(cuda::kMlaDecodeKernels,
                      cuda::MlaDecodeDesc{.cache = cache, .heads = c_.num_heads, .tokens = tokens}, traits_);
    });
    add(weight, absorbed_rows_, [&](int64_t rows) {
      return consider(cuda::kProjectValueKernels, cuda::ProjectValueDesc{.kv_b = kv_b, .tokens = rows}, traits_);
    });
    if (options_.mla_form == MlaForm::kAbsorbed) return;
    put(of, options_.limits.max_tokens,
        consider(cuda::kMlaPrefillKernels, cuda::MlaPrefillDesc{.cache = cache}, traits_));
  }

  void host_attention(int32_t id, const AttentionWeights& w) {
    if (options_.mla_form == MlaForm::kAbsorbed) return;
    const LatentCacheView cache = model_.cache().latent(id);
    put(cache_text(cache), options_.limits.max_tokens,
        consider(kHostPrefillKernels, HostPrefillDesc{cache.layout}, traits_));
    linear("kv_b_proj", w.kv_b_proj, LinearInput::kRounded, mla_prefill_key_tile());
  }

  std::string cache_text(const LatentCacheView& cache) const {
    return fmt::format("{} cache of {} + {} values, {} heads", to_string(cache.layout), cache.kv_lora_rank,
                       cache.rope_dim, c_.num_heads);
  }

  void index_scores(int32_t id) {
    const KvCache& cache = model_.cache();
    const cuda::IndexScoreDesc desc{.layout = cache.layouts().index,
                                    .heads = c_.index_heads,
                                    .dim = c_.index_head_dim,
                                    .block_size = cache.block_size(),
                                    .block_bytes = cache.index_block_bytes(),
                                    .cache_aligned = reinterpret_cast<uintptr_t>(cache.index_view(id).get()) % 16 == 0};
    put(fmt::format("{} index keys of {} values, {} heads", to_string(desc.layout), desc.dim, desc.heads),
        options_.limits.max_tokens, consider(cuda::kIndexScoreKernels, desc, traits_));
  }

  void mlp(std::string_view name, const ExpertWeights& w) {
    if (!cuda_) return gated(name, w);
    add(text_of(name, w.gate), step_rows_, [&](int64_t rows) {
      return consider(cuda::kMlpKernels, cuda::MlpDesc{.weights = w, .tokens = rows}, traits_);
    });
  }
  void experts(const ExpertWeights& w) {
    if (!cuda_) return gated("experts", w);
    add(text_of(fmt::format("{} experts", c_.num_routed_experts), w.gate), step_rows_, [&](int64_t rows) {
      return consider(cuda::kMoeKernels,
                      cuda::MoeDesc{.first_expert = w,
                                    .num_experts = c_.num_routed_experts,
                                    .experts_per_token = c_.experts_per_token,
                                    .tokens = rows},
                      traits_);
    });
  }
  // On the host an MLP is three products.
  void gated(std::string_view name, const ExpertWeights& w) {
    linear(fmt::format("{}: gate", name), w.gate);
    linear(fmt::format("{}: up", name), w.up);
    linear(fmt::format("{}: down", name), w.down);
  }

  void linear(std::string_view name, const QuantizedMatrix& w, LinearInput input = LinearInput::kRounded) {
    linear(name, w, input, step_rows_);
  }
  void linear(std::string_view name, const QuantizedMatrix& w, LinearInput input, int64_t most_rows) {
    if (!cuda_) return put(text_of(name, w), most_rows, consider_linear_host(w, input));
    add(text_of(name, w), most_rows, [&](int64_t rows) {
      return consider(cuda::kLinearKernels,
                      cuda::LinearDesc{.weight = w, .input = input, .rows = rows, .x_aligned = w.cols % 4 == 0},
                      traits_);
    });
  }

  // An entry for each run of rows with one outcome.
  void add(const std::string& subject, int64_t most_rows, const Consider& of_rows) {
    std::vector<Considered> before = of_rows(1);
    int64_t first = 1;
    for (int64_t rows = 2; rows <= most_rows; ++rows) {
      std::vector<Considered> list = of_rows(rows);
      if (list == before) continue;
      put(subject, first, rows - 1, std::exchange(before, std::move(list)));
      first = rows;
    }
    put(subject, first, most_rows, std::move(before));
  }
  // Of a choice that no number of rows changes.
  void put(const std::string& subject, int64_t most_rows, std::vector<Considered> list) {
    put(subject, 1, most_rows, std::move(list));
  }
  // The same outcome in several layers is one entry.
  void put(const std::string& subject, int64_t first, int64_t last, std::vector<Considered> list) {
    const auto same = std::ranges::find_if(report_, [&](const DispatchChoice& c) {
      return c.subject == subject && c.first_rows == first && c.last_rows == last && c.list == list;
    });
    DispatchChoice& choice =
        same != report_.end()
            ? *same
            : report_.emplace_back(DispatchChoice{
                  .subject = subject, .layers = {}, .first_rows = first, .last_rows = last, .list = std::move(list)});
    if (layer_ != kNoLayer) choice.layers.push_back(layer_);
  }

  const Model& model_;
  const ModelConfig& c_;
  const ModelOptions& options_;
  DeviceTraits traits_;
  bool cuda_;
  int64_t step_rows_;
  int64_t absorbed_rows_ = 1;
  int32_t layer_ = kNoLayer;
  std::vector<DispatchChoice> report_;
};

bool matches(const Considered& entry, const std::string& pattern) {
  return fnmatch(pattern.c_str(), entry.name, 0) == 0;
}
bool is_wanted(const Considered& entry, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(entry, pattern); });
}

std::vector<std::string> split(std::string_view patterns) {
  std::vector<std::string> all;
  for (size_t begin = 0; begin <= patterns.size(); begin += all.back().size() + 1) {
    all.emplace_back(patterns.substr(begin, patterns.find(',', begin) - begin));
  }
  return all;
}

// "router, bf16 8 x 256, layers 1-4, 7"
std::string where(const DispatchChoice& choice) {
  const std::vector<int32_t>& layers = choice.layers;
  std::string text = choice.subject;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", i == 0 ? (layers.size() == 1 ? ", layer " : ", layers ") : ", ", layers[i]);
    if (end > i + 1) text += fmt::format("-{}", layers[end - 1]);
    i = end;
  }
  return text;
}

// Every entry of the report's lists, once.
std::vector<Considered> all_entries(const std::vector<DispatchChoice>& report) {
  std::vector<Considered> all;
  for (const DispatchChoice& choice : report) {
    for (const Considered& entry : choice.list) {
      const auto same = [&](const Considered& other) { return other.name == entry.name; };
      if (std::ranges::none_of(all, same)) all.push_back(entry);
    }
  }
  return all;
}

}  // namespace

std::string_view DispatchChoice::op() const {
  const std::string_view name = list.front().name;
  return name.substr(0, name.find('.'));
}

const Considered& DispatchChoice::chosen() const {
  const auto entry = std::ranges::find_if(list, [](const Considered& c) { return !c.refusal; });
  CHECK(entry != list.end(), "no implementation of {} takes {}", op(), subject);
  return *entry;
}

std::vector<DispatchChoice> report_dispatch(const Model& model) {
  return report_dispatch(model, model.device().kind(), traits_of(model.device()));
}

std::vector<DispatchChoice> report_dispatch(const Model& model, DeviceKind kind, const DeviceTraits& traits) {
  return Walk(model, kind, traits).run();
}

std::string dispatch_text(const std::vector<DispatchChoice>& report) {
  std::string text;
  const DispatchChoice* before = nullptr;
  for (const DispatchChoice& choice : report) {
    if (before == nullptr || before->op() != choice.op() || where(*before) != where(choice)) {
      text += fmt::format("{}: {}\n", choice.op(), where(choice));
    }
    before = &choice;
    text += fmt::format("  rows {}-{}: {}\n", choice.first_rows, choice.last_rows, choice.chosen().name);
    for (const Considered& entry : choice.list) {
      if (!entry.refusal) break;
      text += fmt::format("    not {}: {}\n", entry.name, entry.refusal.reason);
    }
  }
  return text;
}

Status require_implementations(const std::vector<DispatchChoice>& report, std::string_view patterns) {
  const std::vector<std::string> wanted = split(patterns);
  const std::vector<Considered> entries = all_entries(report);
  for (const std::string& pattern : wanted) {
    if (std::ranges::any_of(entries, [&](const Considered& entry) { return matches(entry, pattern); })) continue;
    std::string names;
    for (const Considered& entry : entries) names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
    return Error(ErrorCode::kNotFound, fmt::format("no implementation is called '{}'; of this model on this device "
                                                   "there are: {}",
                                                   pattern, names));
  }
  for (const DispatchChoice& choice : report) {
    const Considered& chosen = choice.chosen();
    if (is_wanted(chosen, wanted)) continue;
    // Of several the last, which asks for least.
    const auto missed = std::ranges::find_if(choice.list.rbegin(), choice.list.rend(), [&](const Considered& entry) {
      return is_wanted(entry, wanted) && !entry.refusal.by_choice;
    });
    if (missed == choice.list.rend()) continue;
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{} of {} runs {} for {} to {} rows, but {} is required: {}; see --explain-dispatch, or "
                             "require less",
                             choice.op(), where(choice), chosen.name, choice.first_rows, choice.last_rows, missed->name,
                             missed->refusal ? missed->refusal.reason : "what comes before it takes all of this"));
  }
  return {};
}

}  // namespace lantern
