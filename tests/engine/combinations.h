// What may be combined in an engine, as data: the rows that tests run, and the page that says so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/graph_mode.h"

namespace lantern {

struct Combination {
  int32_t drafts;  // for each step, by the MTP layer
  int32_t chunk;   // tokens of prompts in a step
  bool fp8_weights;
  bool fp8_cache;
  GraphMode graphs;
  bool prefix_caching;  // with the absorbed form: what was cached by decodes then serves prompts
  int32_t batch;        // requests that come at once
  int32_t steps_in_flight;
};
std::string to_string(const Combination& c);

// Any two values of different columns meet in one row at least.
std::span<const Combination> pairwise_combinations();
// Every value of each column with every other.
std::vector<Combination> all_combinations();

// docs/features.md.
std::string features_page();

}  // namespace lantern
