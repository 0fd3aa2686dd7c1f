// What the engine says that sparse attention read for a token is what a layer's indexer chose: as a run of the model
// outside of the engine tells it, which knows nothing of batches, slots and drafts, and as scores recomputed in float64
// have it.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/selection_tracer.h"
#include "engine_run.h"
#include "golden/model_run.h"
#include "model/kv_cache.h"

namespace lantern {
namespace {

constexpr int32_t kTopK = 128;  // of models/tiny
constexpr int32_t kLastLayer = 4;

RunOptions traced(int32_t drafts, int32_t max_traced_rows = 64) {
  RunOptions options;
  options.mla_form = MlaForm::kAbsorbed;  // so that a position's result does not depend on how it ran
  options.settings.limits.max_query_len = 1 + drafts;
  options.settings.limits.index_topk = kTopK;
  options.settings.max_traced_rows = max_traced_rows;
  return options;
}

// Every other one has a context that its tokens cannot read whole; most are traced.
std::vector<Request> traced_requests(int32_t count, int32_t max_tokens) {
  std::vector<Request> requests = mixed_requests(count, max_tokens, 100);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 2 == 0) {
      const std::vector<int32_t> before = random_prompt(30 + static_cast<int32_t>(i) * 5 % 80, i);
      requests[i].prompt.insert(requests[i].prompt.begin(), before.begin(), before.end());
    }
    requests[i].trace_selections = i % 5 != 3;
  }
  return requests;
}

// Positions by token.
std::vector<std::vector<int32_t>> positions_of(const SelectionTrace& trace) {
  std::vector<std::vector<int32_t>> all;
  auto run = trace.runs.begin();
  for (const int32_t count : trace.num_runs) {
    std::vector<int32_t>& positions = all.emplace_back();
    for (int32_t i = 0; i < count; ++i, ++run) {
      for (int32_t p = run->begin; p < run->end; ++p) positions.push_back(p);
    }
  }
  EXPECT_TRUE(run == trace.runs.end());
  return all;
}

// The choices for each position of a text, outside of the engine: in one step, blocks in another order.
class Reference {
 public:
  explicit Reference(const char* kv_cache_dtype = "bf16") {
    device_ = make_device(test_device(), 2).value();
    ModelConfig config = load_model_config(tiny_model()).value();
    auto weights = load_weights(tiny_model(), config, *device_).value();
    golden::RunOptions options;
    options.layouts = parse_kv_cache_dtype(kv_cache_dtype, config).value();
    run_ = golden::ModelRun::create(*device_, std::move(config), std::move(weights), options).value();
  }
  std::vector<std::vector<int32_t>> selected(const std::vector<int32_t>& text, int32_t layer) {
    const golden::Step step{{.sequence = 0, .begin = 0, .count = static_cast<int32_t>(text.size()), .absorbed = true}};
    return run_->run({text}, {step}).front().layers.at(static_cast<size_t>(layer)).selected;
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<golden::ModelRun> run_;
};

// What differs, with what is known to have no room left out; empty where nothing does.
std::string difference(const EngineRun& run, int32_t number, int32_t choice, const std::vector<int32_t>& prompt,
                       Reference& reference, int32_t layer, int64_t* without_room = nullptr) {
  const std::vector<int32_t>& output = run.output(number, choice).tokens;
  const SelectionTrace& trace = run.selections(number, choice);
  if (trace.size() != output.size()) return fmt::format("{} tokens and {} selections", output.size(), trace.size());
  std::vector<int32_t> text = prompt;
  text.insert(text.end(), output.begin(), output.end());
  const std::vector<std::vector<int32_t>> expected = reference.selected(text, layer);
  const std::vector<std::vector<int32_t>> seen = positions_of(trace);
  for (size_t i = 0; i < seen.size(); ++i) {
    if (without_room != nullptr && trace.num_runs[i] == SelectionTrace::kNoRoom) {
      ++*without_room;
    } else if (seen[i] != expected[prompt.size() - 1 + i]) {
      return fmt::format("token {} of {} behind a prompt of {}", i, seen.size(), prompt.size());
    }
  }
  return "";
}

void expect_as_chosen(const EngineRun& run, const std::vector<Request>& requests, Reference& reference, int32_t layer,
                      const std::string& what) {
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!requests[i].trace_selections) continue;
    EXPECT_EQ(difference(run, static_cast<int32_t>(i), 0, requests[i].prompt, reference, layer), "")
        << what << ", request " << i;
  }
}

TEST(EngineSelections, AsChosenForEveryDraftLengthChunkAndGraph) {
  const std::vector<Request> requests = traced_requests(16, 24);
  Reference reference;
  struct Case {
    int32_t drafts, prompt_tokens;
    GraphMode graphs;
    bool prefix_caching;
    int32_t steps_in_flight;
  };
  for (const Case& c : {Case{0, 512, GraphMode::kNone, false, 1}, Case{0, 7, GraphMode::kVerify, true, 2},
                        Case{1, 64, GraphMode::kFull, true, 2}, Case{2, 33, GraphMode::kNone, false, 2},
                        Case{3, 7, GraphMode::kVerify, false, 1}, Case{3, 512, GraphMode::kFull, true, 2}}) {
    RunOptions options = traced(c.drafts);
    options.settings.prefix_caching = c.prefix_caching;
    options.settings.max_steps_in_flight = c.steps_in_flight;
    options.executor.graphs = c.graphs;
    const auto run = EngineRun::create(options);
    for (const Request& request : requests) run->submit(request);
    run->run(c.prompt_tokens);
    EXPECT_EQ(run->stats().drafts_accepted[0] > 0, c.drafts > 0);
    expect_as_chosen(*run, requests, reference, kLastLayer,
                     fmt::format("{} drafts, chunks of {}, graphs {}", c.drafts, c.prompt_tokens, to_string(c.graphs)));
  }
}

TEST(EngineSelections, OfTheLayerThatIsAskedFor) {
  const std::vector<Request> requests = traced_requests(6, 12);
  Reference reference;
  for (const int32_t layer : {0, 2}) {
    RunOptions options = traced(2);
    options.executor.traced_layer = layer;
    const auto run = EngineRun::create(options);
    for (const Request& request : requests) run->submit(request);
    run->run();
    expect_as_chosen(*run, requests, reference, layer, fmt::format("layer {}", layer));
  }
  const ModelConfig config = load_model_config(tiny_model()).value();
  EXPECT_EQ(choose_traced_layer(config, -1).value(), kLastLayer);
  EXPECT_EQ(choose_traced_layer(config, 5).error().message(),
            "traced_layer is 5, and that layer of 5 makes no choice of its own; the last that does is 4");
}

TEST(EngineSelections, PreemptedSequencesTellThemOnce) {
  RunOptions options = traced(2);
  options.settings.limits.block_size = 16;
  options.settings.limits.max_blocks_per_request = 128;
  options.settings.limits.num_blocks = 16;
  const std::vector<Request> requests = traced_requests(20, 40);
  Reference reference;
  const auto run = EngineRun::create(options);
  for (const Request& request : requests) run->submit(request);
  run->run(48);
  EXPECT_GT(run->stats().preemptions, 0);
  expect_as_chosen(*run, requests, reference, kLastLayer, "few blocks");
}

TEST(EngineSelections, EveryChoiceHasItsOwn) {
  Request request = traced_requests(1, 24).front();
  request.n = 4;
  request.max_tokens = 24;
  request.sampling.temperature = 1.0f;
  Reference reference;
  const auto run = EngineRun::create(traced(3));
  const int32_t number = run->submit(request);
  run->run();
  for (int32_t choice = 0; choice < 4; ++choice)
    EXPECT_EQ(difference(*run, number, choice, request.prompt, reference, kLastLayer), "") << "choice " << choice;
}

// Rows beyond the buffer are told as such, and nothing else changes.
TEST(EngineSelections, WhatAStepHasNoRoomForIsSaid) {
  std::vector<Request> requests = traced_requests(12, 16);
  for (Request& request : requests) request.trace_selections = true;
  Reference reference;
  const auto few = EngineRun::create(traced(1, 5)), none = EngineRun::create(traced(1, 0));
  int64_t tokens = 0, without_room = 0;
  for (Request request : requests) {
    few->submit(request);
    request.trace_selections = false;
    none->submit(request);
  }
  few->run();
  none->run();
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto number = static_cast<int32_t>(i);
    EXPECT_EQ(difference(*few, number, 0, requests[i].prompt, reference, kLastLayer, &without_room), "") << i;
    EXPECT_EQ(few->output(number), none->output(number)) << i;
    tokens += static_cast<int64_t>(few->output(number).tokens.size());
  }
  EXPECT_EQ(few->steps(), none->steps());
  EXPECT_GT(without_room, 10);
  EXPECT_LT(without_room, tokens - 10);
}

// The layer's queries and keys of the prompt's step still lie in the workspace when its token has come. With caches in
// float32 they are what was scored: sum_h w_h relu(q_h . k_s), here in float64.
TEST(EngineSelections, AreTheKeysOfTheHighestScores) {
  RunOptions options = traced(0);
  options.kv_cache_dtype = "f32";
  options.settings.max_steps_in_flight = 1;
  const auto run = EngineRun::create(options);
  const ModelConfig& config = run->model().config();
  const auto heads = static_cast<size_t>(config.index_heads), dim = static_cast<size_t>(config.index_head_dim);
  const auto fetch = [&](const Fixed<float>& from, size_t begin, size_t count) {
    std::vector<float> values(count);
    run->device().copy_to_host(values.data(), from.data() + begin, count * sizeof(float));
    return values;
  };
  for (const int32_t length : {129, 200, 333, 512}) {
    Request request;
    request.prompt = random_prompt(length, static_cast<uint64_t>(length));
    request.max_tokens = 1;
    request.trace_selections = true;
    const int32_t number = run->submit(request);
    run->run();
    const std::vector<int32_t> selected = positions_of(run->selections(number)).at(0);
    const Activations& a = run->model().activations();
    const auto keys = static_cast<size_t>(length), last = keys - 1;
    const std::vector<float> q = fetch(a.index_q, last * heads * dim, heads * dim);
    const std::vector<float> w = fetch(a.index_weights, last * heads, heads), k = fetch(a.index_k, 0, keys * dim);
    std::vector<double> scores(keys);
    double largest = 0;
    for (size_t s = 0; s < keys; ++s) {
      for (size_t h = 0; h < heads; ++h) {
        const double dot = std::inner_product(q.begin() + static_cast<ptrdiff_t>(h * dim),
                                              q.begin() + static_cast<ptrdiff_t>((h + 1) * dim),
                                              k.begin() + static_cast<ptrdiff_t>(s * dim), 0.0);
        scores[s] += static_cast<double>(w[h]) * std::max(dot, 0.0);
      }
      largest = std::max(largest, std::abs(scores[s]));
    }
    ASSERT_EQ(selected.size(), static_cast<size_t>(kTopK));
    ASSERT_TRUE(std::ranges::is_sorted(selected, std::less_equal())) << length;
    double lowest_in = largest, highest_out = -largest;
    for (size_t s = 0; s < keys; ++s) {
      const bool in = std::ranges::binary_search(selected, static_cast<int32_t>(s));
      (in ? lowest_in : highest_out) = in ? std::min(lowest_in, scores[s]) : std::max(highest_out, scores[s]);
    }
    // Float sums of 128 products are right to about 1e-5 of the largest.
    EXPECT_GE(lowest_in, highest_out - 2e-5 * largest) << "a prompt of " << length;
  }
}

TEST(EngineSelections, SettingsAndRequestsThatMakeNoSense) {
  const auto refusal = [](const RunOptions& options) {
    const Result<EngineSettings> checked = EngineSettings::checked(options.settings);
    return checked.ok() ? std::string("accepted") : checked.error().message();
  };
  EXPECT_EQ(refusal(traced(3)), "accepted");
  EXPECT_EQ(refusal(traced(3, 3)),
            "max_traced_rows is 3, and one sequence with its drafts has 4 in a step; set it to at least as many, or to "
            "0 to trace none");
  RunOptions dense = traced(3);
  dense.settings.limits.index_topk = 0;
  EXPECT_EQ(refusal(dense),
            "max_traced_rows is 64, and where nothing is selected nothing can be traced; set it to 0 or "
            "limits.index_topk to what the model selects");
  Request request;
  request.prompt = {1, 2};
  request.trace_selections = true;
  EXPECT_EQ(check_request(request, traced(0, 0).settings).error().message(),
            "trace_selections was asked for, and this engine keeps no selections; raise max_traced_rows, with a model "
            "that has sparse attention");
}

}  // namespace
}  // namespace lantern
