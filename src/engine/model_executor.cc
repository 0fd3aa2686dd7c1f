#include "engine/model_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "attention/plan/step_inputs.h"
#include "attention/plan/step_plan_buffers.h"
#include "base/check.h"
#include "engine/mtp_drafter.h"
#include "engine/prompt_scorer.h"
#include "engine/sampler.h"
#include "engine/slot_state.h"
#include "engine/step_kernels.h"
#include "engine/step_upload.h"

namespace lantern {
namespace {

// Rows of logits that exist at a time: float32 logits of every row of a large batch would take gigabytes.
constexpr int64_t kMostLogitsRows = 64;

class ModelExecutor final : public Executor {
 public:
  ModelExecutor(Device& device, Model& model, const EngineSettings& settings, const ModelExecutorOptions& options)
      : device_(device), model_(model), settings_(settings), options_(options), stream_(device) {
    if (options_.drafter == Drafter::kAuto) options_.drafter = model.has_mtp() ? Drafter::kMtp : Drafter::kNgram;
  }

  Status create();

  Status submit(const StepBatch& batch) override;
  bool ready() const override { return num_in_flight_ > 0; }
  Status wait(StepResults& results) override;

 private:
  static constexpr int32_t kMaxSteps = 2;

  // The launch shape of a step.
  struct Shape {
    BucketShape bucket;
    int32_t decode_tokens = 0;
    int32_t sample_rows = 0;   // rows of logits
    int32_t num_sampling = 0;  // rows of the step that sample
    int32_t draft_passes = 0;
    bool drafter_runs = true;
    bool logprobs = false;   // of the samples
    int32_t num_scored = 0;  // tokens of prompts whose logits are scored
  };
  // Host memory of a step in flight.
  struct InFlight {
    explicit InFlight(const EngineSettings& settings);
    StepUpload upload;
    std::vector<int32_t> outcome;  // as StepOutcome lies on the device
    int32_t num_rows = 0;
    std::vector<int32_t> sample_begin;  // by row: its first row of logits
    Logprobs logprobs;                  // [max_sample_rows], by row of logits
    Logprobs scores;                    // [max_tokens]
    bool has_logprobs = false;
    int32_t num_scored = 0;
  };

  void start_slot(const SlotInit& init);
  static void note_logprobs(const StepBatch& batch, const Shape& shape, InFlight& step);
  static void take_logprobs(const InFlight& step, StepResults& results);
  static Shape launch_shape(const StepBatch& batch);
  // Everything from step inputs to the outcome.
  void run(const Shape& shape);
  void sample_rows(const Shape& shape);

  Device& device_;
  Model& model_;
  EngineSettings settings_;
  ModelExecutorOptions options_;
  Stream stream_;

  StepInputs inputs_;
  StepPlanBuffers plan_;
  SlotState slots_;
  std::unique_ptr<PersistentBuffer<int32_t>> upload_;
  plan::IntArena arena_;
  std::unique_ptr<Sampler> sampler_;
  PromptScorer scorer_;
  Fixed<int32_t> token_ids_, sample_token_rows_, sample_start_loc_, request_slots_, wanted_drafts_;
  plan::IntArena outcome_arena_;
  Fixed<int32_t> outcome_tokens_, outcome_num_tokens_, outcome_status_;
  StepOutcome outcome_;
  int64_t num_tokens_at_ = 0, status_at_ = 0, faults_at_ = 0;  // words of the outcome
  std::unique_ptr<MtpDrafter> mtp_drafter_;                    // null: no drafts, or n-grams

  std::vector<InFlight> steps_;  // [kMaxSteps]
  int32_t oldest_ = 0;
  int32_t num_in_flight_ = 0;
};

ModelExecutor::InFlight::InFlight(const EngineSettings& settings) : upload(settings) {
  sample_begin.resize(static_cast<size_t>(settings.limits.max_requests));
  if (settings.max_logprobs < 0) return;
  logprobs.width = scores.width = settings.max_logprobs;
  logprobs.resize(static_cast<size_t>(settings.limits.max_sample_rows()));
  scores.resize(static_cast<size_t>(settings.limits.max_tokens));
}

Status ModelExecutor::create() {
  const StepLimits& limits = settings_.limits;
  const int64_t requests = limits.max_requests;
  const int64_t rows = limits.max_sample_rows();
  StepPlanConfig config;
  config.limits = limits;
  config.groups = {StepPlanConfig::group_of(limits)};
  RETURN_IF_ERROR(inputs_.create(device_, config));
  RETURN_IF_ERROR(plan_.create(device_, config));
  RETURN_IF_ERROR(slots_.create(device_, limits));
  ASSIGN_OR_RETURN(upload_, PersistentBuffer<int32_t>::create(device_, "step upload", StepUpload::capacity(settings_)));
  RETURN_IF_ERROR(arena_.create(device_, "step rows", [&](plan::IntArena& arena) {
    token_ids_ = arena.take(limits.max_tokens);
    sample_token_rows_ = arena.take(rows);
    sample_start_loc_ = arena.take(requests + 1);
    request_slots_ = arena.take(requests);
    wanted_drafts_ = arena.take(requests);
  }));
  RETURN_IF_ERROR(outcome_arena_.create(device_, "step outcome", [&](plan::IntArena& arena) {
    outcome_.max_query_len = limits.max_query_len;
    const Fixed<int32_t> tokens = arena.take(rows), num_tokens = arena.take(requests), status = arena.take(requests);
    const Fixed<int32_t> faults = arena.take(1);
    outcome_.tokens = outcome_tokens_ = tokens;
    outcome_.num_tokens = outcome_num_tokens_ = num_tokens;
    outcome_.status = outcome_status_ = status;
    outcome_.faults = faults;
    num_tokens_at_ = num_tokens.data() - tokens.data();
    status_at_ = status.data() - tokens.data();
    faults_at_ = faults.data() - tokens.data();
  }));
  SamplerLimits sampling;
  sampling.max_slots = sampling.max_requests = limits.max_requests;
  sampling.max_query_len = limits.max_query_len;
  sampling.max_model_len = limits.max_model_len;
  sampling.vocab = model_.config().vocab_size;
  sampling.rows_at_once = model_.options().sample_rows;
  sampling.max_logprobs = settings_.max_logprobs;
  ASSIGN_OR_RETURN(sampler_, Sampler::create(device_, sampling));
  RETURN_IF_ERROR(scorer_.create(device_, limits.max_tokens, settings_.max_logprobs));
  if (settings_.max_drafts() > 0 && options_.drafter == Drafter::kMtp) {
    ASSIGN_OR_RETURN(mtp_drafter_, MtpDrafter::create(device_, model_, settings_));
  }

  steps_.reserve(kMaxSteps);
  for (int32_t i = 0; i < kMaxSteps; ++i) {
    steps_.emplace_back(settings_).outcome.resize(static_cast<size_t>(outcome_arena_.all().size()));
  }
  return {};
}

Status ModelExecutor::submit(const StepBatch& batch) {
  CHECK(num_in_flight_ < kMaxSteps, "{} steps are in flight", num_in_flight_);
  InFlight& step = steps_[static_cast<size_t>((oldest_ + num_in_flight_) % kMaxSteps)];
  ++num_in_flight_;
  step.num_rows = static_cast<int32_t>(batch.rows.size());
  step.upload.pack(batch);
  const std::span<const int32_t> words = step.upload.words();
  stream_.copy_to_device(upload_->fixed().data(), words.data(), words.size_bytes());

  for (const SlotInit& init : batch.slot_inits) start_slot(init);
  const UploadHeader& header = step.upload.header();
  const Fixed<const int32_t> upload(upload_->fixed());
  apply_slot_changes(stream_, {.upload = upload, .slots = slots_.arrays()});
  if (header.copies.count > 0) {
    model_.cache().copy_blocks(stream_, upload.sub(header.copies.begin, 2 * int64_t{header.copies.count}),
                               header.copies.count);
  }
  const Shape shape = launch_shape(batch);
  run(shape);
  stream_.copy_to_host(step.outcome.data(), outcome_arena_.all().data(), step.outcome.size() * sizeof(int32_t));
  note_logprobs(batch, shape, step);
  if (shape.logprobs) sampler_->copy_logprobs_to_host(stream_, step.logprobs, shape.sample_rows);
  scorer_.copy_to_host(stream_, step.scores, shape.num_scored);
  return {};
}

// Where the log-probabilities of the step's rows will lie.
void ModelExecutor::note_logprobs(const StepBatch& batch, const Shape& shape, InFlight& step) {
  step.has_logprobs = shape.logprobs;
  step.num_scored = shape.num_scored;
  int32_t used = 0;
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const StepRow& row = batch.rows[r];
    step.sample_begin[r] = used;
    if (row.samples) used += row.prefilling ? 1 : row.query_len;
  }
}

void ModelExecutor::take_logprobs(const InFlight& step, StepResults& results) {
  if (step.has_logprobs) {
    for (int32_t r = 0; r < step.num_rows; ++r) {
      const auto first = static_cast<size_t>(step.sample_begin[static_cast<size_t>(r)]);
      const auto count = static_cast<size_t>(results.num_tokens[static_cast<size_t>(r)]);
      results.logprobs.copy_in(static_cast<size_t>(r) * static_cast<size_t>(results.max_query_len),
                               step.logprobs.rows(first, count));
    }
  }
  if (step.num_scored > 0) {
    results.prompt_logprobs.copy_in(0, step.scores.rows(0, static_cast<size_t>(step.num_scored)));
  }
}

void ModelExecutor::start_slot(const SlotInit& init) {
  const Request& request = *init.sequence->request;
  SlotStart start{.sampling = request.sampling,
                  .rules = request.token_rules(),
                  .tokens = init.sequence->tokens,
                  .prompt_len = init.sequence->prompt_len};
  start.num_logprobs = request.logprobs;
  start.sampling.seed = init.sequence->seed();
  if (request.ignore_stop_tokens) start.rules.stop_token_ids = {};
  sampler_->start_slot(stream_, init.slot, start);
}

ModelExecutor::Shape ModelExecutor::launch_shape(const StepBatch& batch) {
  const BucketKey& bucket = batch.shape.bucket;
  int32_t sample_rows = 0;
  for (const StepRow& row : batch.rows) {
    if (row.samples) sample_rows += row.prefilling ? 1 : row.query_len;
  }
  return {.bucket = {.tokens = bucket.tokens, .requests = bucket.requests, .query_width = bucket.query_width},
          .decode_tokens = bucket.kind == StepKind::kDecode ? bucket.tokens : batch.num_decode_tokens,
          .sample_rows = sample_rows,
          .num_sampling = batch.shape.sampling_rows,
          .draft_passes = batch.shape.draft_passes,
          .drafter_runs = batch.shape.drafter_runs,
          .logprobs = batch.logprobs,
          .num_scored = batch.num_scored};
}

void ModelExecutor::run(const Shape& shape) {
  const Fixed<const int32_t> upload(upload_->fixed());
  const int32_t block_size = settings_.limits.block_size;
  build_step_inputs(stream_, {.upload = upload,
                              .slots = slots_.arrays(),
                              .inputs = inputs_.writable(0),
                              .token_ids = token_ids_,
                              .tokens = shape.bucket.tokens,
                              .block_size = block_size});
  const StepPlanParams plan = plan_.params(inputs_, shape.bucket);
  plan_step(stream_, plan);
  mask_unwritten(stream_, {.upload = upload, .slot_mapping = plan.groups[0].slot_mapping});
  const StepView view = plan_.view(inputs_, shape.bucket, shape.decode_tokens);
  model_.forward(stream_, view, Fixed<const int32_t>(token_ids_), options_.observer);
  scorer_.run(stream_, model_, sampler_->slots(), upload, slots_.arrays(), shape.num_scored);
  sample_rows(shape);
  advance_slots(stream_, {.upload = upload,
                          .slots = slots_.arrays(),
                          .plan_counts = plan_.counts(),
                          .outcome = outcome_,
                          .wanted_drafts = wanted_drafts_});
  if (mtp_drafter_ != nullptr) {
    mtp_drafter_->run(stream_, {.upload = upload,
                                .slots = slots_.arrays(),
                                .inputs = inputs_.writable(0),
                                .view = view,
                                .token_ids = Fixed<const int32_t>(token_ids_),
                                .outcome = outcome_,
                                .wanted_drafts = Fixed<const int32_t>(wanted_drafts_),
                                .num_sampling = shape.num_sampling,
                                .draft_passes = shape.draft_passes,
                                .runs = shape.drafter_runs});
  } else if (shape.draft_passes > 0) {
    sampler_->draft_ngrams(stream_, Fixed<const int32_t>(wanted_drafts_), slots_.drafts(), slots_.num_drafts(),
                           options_.min_ngram, options_.max_ngram);
  }
}

void ModelExecutor::sample_rows(const Shape& shape) {
  prepare_samples(stream_, {.upload = Fixed<const int32_t>(upload_->fixed()),
                            .token_rows = sample_token_rows_,
                            .sample_start_loc = sample_start_loc_,
                            .request_slots = request_slots_,
                            .rows = shape.sample_rows});
  sampler_->begin(stream_, {.requests = {.num_requests = inputs_.num_requests(),
                                         .sample_start_loc = Fixed<const int32_t>(sample_start_loc_),
                                         .slots = Fixed<const int32_t>(request_slots_),
                                         .max_requests = shape.bucket.requests},
                            .draft_tokens = Fixed<const int32_t>(slots_.drafts()),
                            .num_drafts = Fixed<const int32_t>(slots_.num_drafts()),
                            .rows = shape.sample_rows,
                            .logprobs = shape.logprobs});
  const int32_t most = model_.options().sample_rows;
  for (int32_t begin = 0; begin < shape.sample_rows; begin += most) {
    const int32_t rows = std::min(most, shape.sample_rows - begin);
    model_.logits(stream_, Fixed<const int32_t>(sample_token_rows_.sub(begin, rows)), rows);
    sampler_->sample(stream_, Fixed<const float>(model_.activations().logits), begin, rows);
  }
  sampler_->verify(stream_, outcome_tokens_, outcome_num_tokens_, outcome_status_, options_.synthetic_acceptance);
}

Status ModelExecutor::wait(StepResults& results) {
  CHECK(num_in_flight_ > 0, "no step is in flight");
  stream_.synchronize();
  const InFlight& step = steps_[static_cast<size_t>(oldest_)];
  const auto outcome = std::span<const int32_t>(step.outcome);
  // What the host sent contradicts itself: a broken invariant.
  const int32_t faults = outcome[static_cast<size_t>(faults_at_)];
  CHECK(faults == 0, "the step plan found {} faults in a step of {} rows", faults, step.num_rows);
  const auto rows = static_cast<size_t>(step.num_rows);
  std::ranges::copy(outcome.first(rows * static_cast<size_t>(outcome_.max_query_len)), results.tokens.begin());
  std::ranges::copy(outcome.subspan(static_cast<size_t>(num_tokens_at_), rows), results.num_tokens.begin());
  std::ranges::transform(outcome.subspan(static_cast<size_t>(status_at_), rows), results.status.begin(),
                         [](int32_t status) { return static_cast<RowStatus>(status); });
  take_logprobs(step, results);
  oldest_ = (oldest_ + 1) % kMaxSteps;
  --num_in_flight_;
  return {};
}

}  // namespace

Result<Drafter> parse_drafter(std::string_view name) {
  if (name == "auto") return Drafter::kAuto;
  if (name == "mtp") return Drafter::kMtp;
  if (name == "ngram") return Drafter::kNgram;
  return Error(ErrorCode::kInvalidArgument, fmt::format("drafter '{}' is not known; use auto, mtp or ngram", name));
}

ModelOptions model_options_for(const EngineSettings& settings, const KvCacheLayouts& layouts) {
  ModelOptions options;
  options.layouts = layouts;
  options.limits = settings.limits;
  options.sample_rows = static_cast<int32_t>(std::min(settings.limits.max_sample_rows(), kMostLogitsRows));
  return options;
}

Result<std::unique_ptr<Executor>> make_model_executor(Device& device, Model& model, const EngineSettings& settings,
                                                      const ModelExecutorOptions& options) {
  const StepLimits& own = model.options().limits;
  const StepLimits& limits = settings.limits;
  if (own.max_tokens < limits.max_tokens || own.max_requests < limits.max_requests ||
      own.num_blocks < limits.num_blocks || own.block_size != limits.block_size ||
      own.max_model_len < limits.max_model_len) {
    return Error(ErrorCode::kInvalidArgument,
                 "the engine's limits are not those that the model was made with; make both from the same settings");
  }
  if (options.drafter == Drafter::kMtp && settings.max_drafts() > 0 && !model.has_mtp()) {
    return Error(ErrorCode::kUnsupported,
                 "drafter mtp: the checkpoint holds no multi-token-prediction layer that could draft; use ngram or "
                 "auto, or no draft tokens");
  }
  if (options.min_ngram < 1 || options.max_ngram < options.min_ngram) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("n-grams of {} to {} tokens cannot be looked for; give 1 or more", options.min_ngram,
                             options.max_ngram));
  }
  if (!(options.synthetic_acceptance <= 1)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("synthetic_acceptance is {}; it is a chance from 0 to 1", options.synthetic_acceptance));
  }
  auto executor = std::make_unique<ModelExecutor>(device, model, settings, options);
  RETURN_IF_ERROR(executor->create());
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace lantern
