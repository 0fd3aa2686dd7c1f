// Steps that leave the drafter out: what they cost a text (nothing), what they leave in the MTP layer's cache (zeros),
// and how drafts fare afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iostream>

#include "engine_run.h"

namespace lantern {
namespace {

// Drafts pay for up to four sequences, whatever the machine.
RunOptions options_for_few() {
  RunOptions options;
  options.mla_form = MlaForm::kAbsorbed;
  options.settings.limits.max_query_len = 4;
  options.settings.adaptive_drafts = true;
  options.settings.step_cost = {.step = TokenCost::linear(1, 0.2),
                                .draft_layer = TokenCost::linear(0, 0.05),
                                .draft_head = TokenCost::linear(0, 0.05)};
  return options;
}

// Bytes that are no numbers in every block that may be given away.
void poison_mtp_cache(EngineRun& run) {
  const KvCache& cache = run.model().cache();
  const int32_t layer = run.model().config().num_layers;
  const auto block_bytes = static_cast<size_t>(cache.block_size() * cache.latent_row_bytes());
  const auto blocks = static_cast<size_t>(cache.num_blocks() - 1);
  std::memset(cache.latent_data(layer).get() + block_bytes, 0xff, blocks * block_bytes);
  const auto index_bytes = static_cast<size_t>(cache.index_block_bytes());
  std::memset(cache.index_data(layer).get() + index_bytes, 0xff, blocks * index_bytes);
}

int64_t checked(const EngineStats& stats) { return stats.drafts_checked[0]; }

TEST(EngineDrafterRests, ZerosTakeThePlaceOfItsEntries) {
  RunOptions options = options_for_few();
  const auto run = EngineRun::create(options);
  poison_mtp_cache(*run);
  const std::vector<Request> requests = mixed_requests(16, 40, 120);
  for (Request request : requests) {
    request.stop_token_ids.clear();
    request.max_tokens = 300;
    run->submit(std::move(request));
  }
  for (int32_t i = 0; i < 60; ++i) ASSERT_TRUE(run->step());
  while (run->core().steps_in_flight() > 0) ASSERT_TRUE(run->core().finish_step().ok());
  EXPECT_EQ(checked(run->stats()), 0);
  const EngineState& state = run->core().state();
  ASSERT_EQ(state.running.size(), 16u);
  const KvCache& cache = run->model().cache();
  const std::byte* latent = cache.latent_data(run->model().config().num_layers).get();
  const auto row_bytes = static_cast<size_t>(cache.latent_row_bytes());
  int64_t rows = 0;
  for (const SequenceId id : state.running) {
    const Sequence& sequence = state.at(id);
    // The entry of a token that sees n keys lies at place n; that of place 0 is never read.
    for (int32_t place = 1; place < sequence.num_computed; ++place, ++rows) {
      const BlockId block = sequence.blocks[static_cast<size_t>(place / cache.block_size())].id();
      const std::byte* row =
          latent + static_cast<size_t>(block * cache.block_size() + place % cache.block_size()) * row_bytes;
      ASSERT_TRUE(std::all_of(row, row + row_bytes, [](std::byte b) { return b == std::byte{0}; }))
          << "place " << place << " of sequence " << id;
    }
  }
  EXPECT_GT(rows, 16 * 30);
}

// Many, then few: those that are left draft over the gaps in their cache, newcomers as well as ever. The text is that
// of each request alone throughout, from prefixes with gaps too.
TEST(EngineDrafterRests, DraftsComeBackWhenTheLoadFalls) {
  RunOptions options = options_for_few();
  options.settings.prefix_caching = true;
  options.settings.limits.block_size = 16;
  options.settings.limits.max_blocks_per_request = 128;
  const auto run = EngineRun::create(options);
  poison_mtp_cache(*run);
  std::vector<Request> all;
  const auto submit = [&](const Request& request) {
    all.push_back(request);
    run->submit(request);
  };
  const std::vector<Request> tasks = task_requests(8);
  for (const Request& request : tasks) submit(request);
  run->run();
  const EngineStats busy = run->stats();
  std::cout << "24 at a time: " << checked(busy) << " first drafts checked\n";

  // The same again, one at a time: hits bring gaps along.
  for (const Request& request : tasks) {
    submit(request);
    run->run();
  }
  const EngineStats repeated = run->stats();
  EXPECT_GT(repeated.prompt_tokens_cached - busy.prompt_tokens_cached, 300);
  const auto accepted = [](const EngineStats& from, const EngineStats& to) {
    const auto right = static_cast<double>(to.drafts_accepted[0] - from.drafts_accepted[0]);
    const double share = right / static_cast<double>(checked(to) - checked(from));
    std::cout << right << " of " << checked(to) - checked(from) << " first drafts accepted\n";
    return share;
  };
  EXPECT_GT(checked(repeated) - checked(busy), 100);
  accepted(busy, repeated);

  // Newcomers, one at a time.
  std::vector<Request> fresh = task_requests(16);
  for (size_t i = 0; i < fresh.size(); ++i) {
    if (i % 16 < 8) continue;  // those of before
    submit(fresh[i]);
    run->run();
  }
  EXPECT_GE(accepted(repeated, run->stats()), 0.99) << "as in training; see mtp_test.cc";
  EXPECT_EQ(differences(*run, outputs_alone(options, all)), "");
}

}  // namespace
}  // namespace lantern
