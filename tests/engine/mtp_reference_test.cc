// What the engine's MTP passes compute, bit by bit, against the same layer run a token at a time over the finished text
// by the runner of the golden tests, which makes its inputs by hand and is itself checked against PyTorch. Text that
// the model finds hard: drafts are often wrong, so that rejected entries and those of further drafts lie where accepted
// ones belong.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "engine_run.h"
#include "golden/model_run.h"

namespace lantern {
namespace {

using golden::Matrix;
using golden::ModelRun;

constexpr int32_t kSequences = 2;
constexpr int32_t kSteps = 45;

// Hidden states after the head's norm, by position of the hidden state that the pass was fed with.
struct Passes {
  std::vector<int32_t> text;
  std::map<int32_t, std::vector<float>> first;    // over the tokens of a step
  std::map<int32_t, std::vector<float>> chained;  // the second one, at the position behind the last accepted token
};

std::vector<float> row_of(const Model& model, int64_t row) {
  const int64_t width = model.config().hidden_size;
  const float* values = model.activations().hidden.data() + row * width;
  return {values, values + width};
}

// Runs two requests at once, chunks of prompts beside decodes, and stops in the middle of both texts.
std::vector<Passes> run_engine(int32_t drafts, const std::filesystem::path& model) {
  RunOptions options;
  options.model_dir = model;
  options.kv_cache_dtype = "f32";
  options.mla_form = MlaForm::kAbsorbed;
  options.settings.limits.max_query_len = 1 + drafts;
  options.settings.max_steps_in_flight = 1;
  const auto run = EngineRun::create(options);
  for (int32_t i = 0; i < kSequences; ++i) {
    Request request;
    // The first is beyond the 128 keys that the model's indexer takes.
    request.prompt = random_prompt(i == 0 ? 150 : 40, static_cast<uint64_t>(i));
    request.max_tokens = 1000;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.ignore_stop_tokens = true;
    run->submit(std::move(request));
  }
  EngineCore& core = run->core();
  StepBudget budget = Scheduler::full_budget(core.state().settings);
  budget.max_tokens = 40;
  std::vector<Passes> passes(kSequences);
  for (int32_t step = 0; step < kSteps; ++step) {
    EXPECT_EQ(core.begin_step(EngineTime(0), budget), StepStart::kStarted);
    const StepBatch batch = core.in_flight(0).batch();
    std::vector<int32_t> tokens_before;
    tokens_before.reserve(batch.rows.size());
    for (const StepRow& row : batch.rows) tokens_before.push_back(core.state().at(row.sequence).num_tokens());
    EXPECT_TRUE(core.finish_step().ok());
    const bool one_pass = batch.shape.draft_passes <= 1;
    int32_t sampling = 0;
    for (size_t r = 0; r < batch.rows.size(); ++r) {
      const StepRow& row = batch.rows[r];
      const Sequence& sequence = core.state().at(row.sequence);
      Passes& of = passes.at(static_cast<size_t>(sequence.request->sampling.seed));
      const int32_t gained = sequence.num_tokens() - tokens_before[r];
      const int32_t begin = row.prefilling ? row.begin_upper : tokens_before[r] - 1;
      const int32_t accepted = row.prefilling ? row.query_len : gained;
      for (int32_t j = 0; j < accepted && one_pass; ++j) {
        of.first[begin + j] = row_of(run->model(), batch.query_start_loc[r] + j);
      }
      if (!row.samples) continue;
      if (!one_pass) of.chained[begin + accepted] = row_of(run->model(), sampling);
      ++sampling;
    }
  }
  for (const Sequence& sequence : core.state().sequences) {
    if (sequence.phase == SequencePhase::kRunning)
      passes.at(static_cast<size_t>(sequence.request->sampling.seed)).text = sequence.tokens;
  }
  return passes;
}

struct Reference {
  std::vector<Passes> passes{kSequences};
  std::unique_ptr<Device> device = make_host_device(2);
  std::unique_ptr<ModelRun> run;

  // With `chain`, after each position the second pass too, whose entry the next position overwrites.
  Reference(const std::vector<Passes>& engine, const std::filesystem::path& model, bool chain) {
    auto config = load_model_config(model);
    auto weights = load_weights(model, *config, *device);
    run = ModelRun::create(*device, std::move(config).value(), std::move(weights).value(), {}).value();
    std::vector<std::vector<int32_t>> text;
    std::vector<int32_t> lengths;
    for (const Passes& of : engine) {
      text.push_back(of.text);
      lengths.push_back(static_cast<int32_t>(of.text.size()));
    }
    const auto target = run->run(text, make_schedule(golden::Schedule::kTokenByToken, lengths));
    for (int32_t s = 0; s < kSequences; ++s) compute(s, text[static_cast<size_t>(s)], target, chain);
  }

  void compute(int32_t s, const std::vector<int32_t>& text, const std::vector<golden::SequenceCapture>& target,
               bool chain) {
    const auto at = static_cast<size_t>(s);
    std::vector<Matrix> hidden(kSequences);
    std::vector<std::vector<int32_t>> next(kSequences);
    for (int32_t p = 0; p + 1 < static_cast<int32_t>(text.size()); ++p) {
      hidden[at] = target[at].final;
      next[at].assign(text.begin() + 1, text.begin() + p + 2);
      const auto one = run->run_mtp(hidden, next, {{{s, p, 1, true}}});
      passes[at].first[p] = one[at].final.values;
      if (!chain) continue;
      // models/tiny feeds the layer's output before the norm of its head.
      hidden[at].values.resize(static_cast<size_t>((p + 1) * hidden[at].cols));
      hidden[at].append(one[at].layers[0].hidden.row(0), 1);
      const float* logits = one[at].logits.row(0);
      next[at].push_back(static_cast<int32_t>(std::max_element(logits, logits + one[at].logits.cols) - logits));
      // A pass of one token leaves its selection where that of the next one takes it.
      const auto selection =
          run->model().config().mtp_shares_selection ? Model::MtpSelection::kReused : Model::MtpSelection::kComputed;
      passes[at].chained[p + 1] = run->run_mtp(hidden, next, {{{s, p + 1, 1, true}}}, selection)[at].final.values;
    }
  }
};

int64_t expect_equal(const std::map<int32_t, std::vector<float>>& engine,
                     const std::map<int32_t, std::vector<float>>& reference, const char* pass, size_t sequence) {
  int64_t compared = 0;
  for (const auto& [position, values] : engine) {
    const auto expected = reference.find(position);
    if (expected == reference.end()) continue;  // the token behind is not known yet
    ++compared;
    EXPECT_EQ(values, expected->second) << pass << " pass at position " << position << " of sequence " << sequence;
    if (testing::Test::HasFailure()) break;
  }
  return compared;
}

TEST(EngineMtpReference, TheFirstPassIsThatOfTheWholeText) {
  const std::vector<Passes> engine = run_engine(1, tiny_model());
  const Reference reference(engine, tiny_model(), false);
  for (size_t s = 0; s < kSequences; ++s) {
    const int64_t compared = expect_equal(engine[s].first, reference.passes[s].first, "first", s);
    // All positions but the last, whose next token is not known.
    EXPECT_GE(compared, static_cast<int64_t>(engine[s].text.size()) - 1) << "sequence " << s;
  }
}

int64_t second_passes_compared(const std::filesystem::path& model) {
  const std::vector<Passes> engine = run_engine(2, model);
  const Reference reference(engine, model, true);
  int64_t compared = 0;
  for (size_t s = 0; s < kSequences; ++s)
    compared += expect_equal(engine[s].chained, reference.passes[s].chained, "second", s);
  return compared;
}

TEST(EngineMtpReference, TheSecondPassGoesOnFromTheLastAcceptedToken) {
  EXPECT_GT(second_passes_compared(tiny_model()), 40);
}

TEST(EngineMtpReference, TheSecondPassMayTakeTheKeysOfTheFirst) {
  const ChangedModel model("lantern_tiny_shares", {{"index_share_for_mtp_iteration", "true"}});
  EXPECT_GT(second_passes_compared(model.path()), 40);
}

}  // namespace
}  // namespace lantern
