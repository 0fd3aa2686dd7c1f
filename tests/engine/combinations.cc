#include "combinations.h"

#include <fmt/format.h>

#include <string_view>

namespace lantern {
namespace {

constexpr int32_t kDrafts[] = {0, 1, 2, 3};
constexpr int32_t kChunks[] = {512, 64, 7, 1};
constexpr GraphMode kGraphs[] = {GraphMode::kNone, GraphMode::kPiecewise, GraphMode::kFull,
                                 GraphMode::kFullAndPiecewise, GraphMode::kVerify};
constexpr int32_t kBatches[] = {1, 64};
constexpr int32_t kStepsInFlight[] = {1, 2};

// drafts, chunk, fp8_weights, fp8_cache, graphs, prefix_caching, batch, steps_in_flight
constexpr Combination kPairwise[] = {
#include "combinations.inc"
};

constexpr std::string_view kPage = R"(# What goes together

Any of these may be combined with any other; what a request is answered does not depend on them, token for token,
greedy and seeded:

- the number of draft tokens (`--draft-tokens`) and the number of a step's prompt tokens (chunked prefill,
  `--max-num-batched-tokens`);
- graphs (`--graphs none`, `piecewise`, `full`, `full_and_piecewise`, `verify`);
- what else is in the batch, and whether the next step is planned while one runs;
- the prefix cache, where a position is computed alike in prompts and in answers (`--mla-form absorbed`). In the form
  that is faster for prompts, a hit may change the last bits of a logit, and so, rarely, a token.

All of these run on the CPU. Pieces of steps (`piecewise`, `full_and_piecewise`) are captured on a GPU by the same code,
but have not run on one yet: there the default stays `full`.

The types of weights and caches (`lantern quantize`, `--kv-cache-dtype`) do change answers; the rest holds for each of
them. Tests run the rows below with models/tiny and compare every request with the same request alone in a session of
one sequence; prompts, and what is left of prompts, of exactly 1 + drafts tokens are among them. Any two values of
different columns meet in one row at least, and tests with the label `slow` run all {} combinations.

| drafts | prompt tokens a step | weights | caches | graphs | prefix cache | requests at once | steps in flight |
|---|---|---|---|---|---|---|---|
)";

constexpr std::string_view kEnd = R"(
The table is `tests/engine/combinations.inc`; this page is written from it (`ctest -R EngineFeatures` says how).
)";

const char* dtype(bool fp8) { return fp8 ? "fp8" : "bf16"; }
const char* on_off(bool on) { return on ? "on" : "off"; }

}  // namespace

std::string to_string(const Combination& c) {
  return fmt::format(
      "{} drafts, {} prompt tokens a step, {} weights, {} caches, graphs {}, prefix cache {}, {} at once, {} steps in "
      "flight",
      c.drafts, c.chunk, dtype(c.fp8_weights), dtype(c.fp8_cache), to_string(c.graphs), on_off(c.prefix_caching),
      c.batch, c.steps_in_flight);
}

std::span<const Combination> pairwise_combinations() { return kPairwise; }

std::vector<Combination> all_combinations() {
  std::vector<Combination> all;
  for (const int32_t drafts : kDrafts) {
    for (const int32_t chunk : kChunks) {
      for (int32_t switches = 0; switches < 8; ++switches) {
        for (const GraphMode graphs : kGraphs) {
          for (const int32_t batch : kBatches) {
            for (const int32_t steps : kStepsInFlight) {
              all.push_back({.drafts = drafts,
                             .chunk = chunk,
                             .fp8_weights = (switches & 1) != 0,
                             .fp8_cache = (switches & 2) != 0,
                             .graphs = graphs,
                             .prefix_caching = (switches & 4) != 0,
                             .batch = batch,
                             .steps_in_flight = steps});
            }
          }
        }
      }
    }
  }
  return all;
}

std::string features_page() {
  std::string page = fmt::format(kPage, all_combinations().size());
  for (const Combination& c : pairwise_combinations()) {
    page += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", c.drafts, c.chunk, dtype(c.fp8_weights),
                        dtype(c.fp8_cache), to_string(c.graphs), on_off(c.prefix_caching), c.batch, c.steps_in_flight);
  }
  return page + std::string(kEnd);
}

}  // namespace lantern
