#include <algorithm>
#include <chrono>
#include <functional>
#include <random>

#include <fmt/core.h>

#include "base/median.h"
#include "engine/session.h"
#include "engine/step_buffers.h"

namespace lantern {
namespace {

template <class Body>
double median_seconds(int32_t repetitions, const std::function<void()>& before_each, Body&& body) {
  body();  // touches everything once
  std::vector<double> seconds;
  for (int32_t i = 0; i < std::max(1, repetitions); ++i) {
    if (before_each) before_each();
    const auto start = std::chrono::steady_clock::now();
    body();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return median(std::move(seconds));
}

}  // namespace

Result<StepBenchResult> Session::bench_step(const StepBenchOptions& options) {
  if (options.context < 1 || options.context >= max_model_len_) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a context of {} tokens is outside [1, {}]; raise max_model_len", options.context,
                             max_model_len_ - 1));
  }
  if (options.prefill_tokens < 0 || options.prefill_tokens > model_->options().limits.max_tokens) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} prefill tokens are outside [0, {}], the largest step; raise prefill_chunk",
                             options.prefill_tokens, model_->options().limits.max_tokens));
  }
  std::mt19937 generator(static_cast<uint32_t>(options.seed));
  std::uniform_int_distribution<int32_t> any_token(0, config().vocab_size - 1);
  const auto random_tokens = [&](int32_t count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens) token = any_token(generator);
    return tokens;
  };

  StepBenchResult result;
  // The caches must hold real values up to the measured context: attention over zeros would be another workload.
  const int32_t chunk = model_->options().limits.max_tokens;
  for (int32_t begin = 0; begin < options.context; begin += chunk) {
    step(random_tokens(std::min(chunk, options.context - begin)), begin, false);
  }
  result.decode_seconds_median = median_seconds(options.repetitions, options.before_each_decode, [&] {
    const std::vector<int32_t> token = random_tokens(1);
    step(token, options.context, true);
    logits_of_rows(0, 1);
  });
  if (options.prefill_tokens > 0) {
    result.prefill_seconds_median = median_seconds(std::min(options.repetitions, 5), {}, [&] {
      step(random_tokens(options.prefill_tokens), 0, false);
      logits_of_rows(0, 1);
    });
  }
  result.weight_bytes_per_token = model_->weights().active_bytes_per_token(config());
  result.kv_bytes_per_token_step = [&] {
    const KvCache& cache = model_->cache();
    int64_t bytes = 0;
    for (int32_t layer = 0; layer < config().num_layers; ++layer) {
      const bool sparse = config().has_indexer() && config().index_topk < options.context + 1;
      const int64_t keys = sparse ? config().index_topk : options.context + 1;
      bytes += keys * cache.latent_row_bytes();
      if (sparse && cache.index_data(layer)) {
        bytes += int64_t{options.context + 1} * cache.index_block_bytes() / cache.block_size();
      }
    }
    return bytes;
  }();
  return result;
}

}  // namespace lantern
