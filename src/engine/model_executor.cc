#include "engine/model_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "attention/plan/step_inputs.h"
#include "attention/plan/step_plan_buffers.h"
#include "base/check.h"
#include "device/pinned_buffer.h"
#include "device/stream_event.h"
#include "engine/launch_shape.h"
#include "engine/mtp_drafter.h"
#include "engine/prompt_scorer.h"
#include "engine/sampler.h"
#include "engine/selection_tracer.h"
#include "engine/slot_state.h"
#include "engine/step_kernels.h"
#include "engine/step_upload.h"
#include "engine/step_verifier.h"
#include "ops/moe.h"

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
  GraphReport graph_report() const;

  Status submit(const StepBatch& batch) override;
  bool ready() const override { return num_in_flight_ > 0 && steps_[static_cast<size_t>(oldest_)].complete->passed(); }
  Status wait(StepResults& results) override;

 private:
  static constexpr int32_t kMaxSteps = 2;

  // Host memory of a step in flight.
  struct InFlight {
    explicit InFlight(const EngineSettings& settings);
    StepUpload upload;
    std::unique_ptr<PinnedBuffer<int32_t>> sent;     // the upload's words
    std::unique_ptr<PinnedBuffer<int32_t>> outcome;  // as StepOutcome lies on the device
    std::unique_ptr<StreamEvent> complete;           // when the host has all of it
    std::unique_ptr<PinnedBuffer<int32_t>> traced;   // as StepResults::traced; null where nothing is traced
    int32_t num_traced = 0;
    int32_t num_rows = 0;
    bool replayed = false;
    std::vector<int32_t> sample_begin;  // by row: its first row of logits
    Logprobs logprobs;                  // [max_sample_rows], by row of logits
    Logprobs scores;                    // [max_tokens]
    bool has_logprobs = false;
    int32_t num_scored = 0;
  };

  void start_slot(const SlotInit& init);
  static void note_logprobs(const StepBatch& batch, const LaunchShape& shape, InFlight& step);
  static void take_logprobs(const InFlight& step, StepResults& results);
  Status capture_graphs();
  // Eagerly and in each other way that there is, from the same state.
  void run_all_ways(const StepBatch& batch, const LaunchShape& shape);
  std::vector<NamedMemory> outputs_of_step(const StepBatch& batch, const LaunchShape& shape) const;
  void poison() const;

  // All launches of a step but those that only the host knows of: slots that begin, and copies.
  void run(const LaunchShape& shape, int32_t draft_passes);
  // Everything from step inputs to the outcome; the layers by `pieces`, where it is given.
  void run_step(const LaunchShape& shape, PieceRunner* pieces = nullptr);
  // The pass that fills the MTP layer's cache.
  void fill_drafter(const LaunchShape& shape, PieceRunner* pieces = nullptr);
  void run_layers(const StepView& view, PieceRunner* pieces);
  void sample_rows(const LaunchShape& shape);
  MtpDrafter::Step mtp_step() const;

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
  std::unique_ptr<SelectionTracer> tracer_;            // null: nobody may trace selections
  std::unique_ptr<PersistentBuffer<uint32_t>> masks_;  // [requests, mask_words]; null where nobody may constrain tokens
  Fixed<int32_t> row_masks_;                           // [rows of logits]
  Fixed<int32_t> token_ids_, sample_token_rows_, sample_start_loc_, num_sample_rows_, request_slots_, wanted_drafts_;
  plan::IntArena outcome_arena_;
  Fixed<int32_t> outcome_tokens_, outcome_num_tokens_, outcome_status_;
  StepOutcome outcome_;
  Fixed<int32_t> distinct_experts_, seen_experts_;
  int64_t num_tokens_at_ = 0, status_at_ = 0, faults_at_ = 0, experts_at_ = 0;  // words of the outcome
  std::unique_ptr<MtpDrafter> mtp_drafter_;                                     // null: no drafts, or n-grams
  std::unique_ptr<StepGraphs> graphs_;                                          // null: every step runs eagerly

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
    num_sample_rows_ = arena.take(1);
    request_slots_ = arena.take(requests);
    wanted_drafts_ = arena.take(requests);
    seen_experts_ = arena.take(options_.count_experts ? model_.config().num_routed_experts : 0);
    row_masks_ = arena.take(settings_.vocab_size > 0 ? rows : 0);
  }));
  RETURN_IF_ERROR(outcome_arena_.create(device_, "step outcome", [&](plan::IntArena& arena) {
    outcome_.max_query_len = limits.max_query_len;
    const Fixed<int32_t> tokens = arena.take(rows), num_tokens = arena.take(requests), status = arena.take(requests);
    const Fixed<int32_t> faults = arena.take(1);
    distinct_experts_ = arena.take(1);
    outcome_.tokens = outcome_tokens_ = tokens;
    outcome_.num_tokens = outcome_num_tokens_ = num_tokens;
    outcome_.status = outcome_status_ = status;
    outcome_.faults = faults;
    num_tokens_at_ = num_tokens.data() - tokens.data();
    status_at_ = status.data() - tokens.data();
    faults_at_ = faults.data() - tokens.data();
    experts_at_ = distinct_experts_.data() - tokens.data();
  }));
  SamplerLimits sampling;
  sampling.max_slots = sampling.max_requests = limits.max_requests;
  sampling.max_query_len = limits.max_query_len;
  sampling.max_model_len = limits.max_model_len;
  sampling.vocab = model_.config().vocab_size;
  sampling.rows_at_once = model_.options().sample_rows;
  sampling.max_logprobs = settings_.max_logprobs;
  ASSIGN_OR_RETURN(sampler_, Sampler::create(device_, sampling));
  if (settings_.vocab_size > 0) {
    ASSIGN_OR_RETURN(masks_, PersistentBuffer<uint32_t>::create(device_, "masks of allowed tokens",
                                                                requests * mask_words(settings_.vocab_size)));
  }
  RETURN_IF_ERROR(scorer_.create(device_, limits.max_tokens, settings_.max_logprobs));
  if (settings_.max_traced_rows > 0) {
    ASSIGN_OR_RETURN(const int32_t layer, choose_traced_layer(model_.config(), options_.traced_layer));
    ASSIGN_OR_RETURN(tracer_, SelectionTracer::create(device_, settings_, layer));
  }
  if (settings_.max_drafts() > 0 && options_.drafter == Drafter::kMtp) {
    ASSIGN_OR_RETURN(mtp_drafter_, MtpDrafter::create(device_, model_, settings_));
  }

  steps_.reserve(kMaxSteps);
  for (int32_t i = 0; i < kMaxSteps; ++i) {
    InFlight& step = steps_.emplace_back(settings_);
    ASSIGN_OR_RETURN(step.sent, PinnedBuffer<int32_t>::create(device_, "step upload", StepUpload::capacity(settings_)));
    ASSIGN_OR_RETURN(step.outcome, PinnedBuffer<int32_t>::create(device_, "step outcome", outcome_arena_.all().size()));
    if (tracer_ != nullptr) {
      ASSIGN_OR_RETURN(step.traced,
                       PinnedBuffer<int32_t>::create(device_, "traced selections", settings_.traced_words()));
    }
    step.complete = StreamEvent::make(stream_);
  }
  return options_.graphs == GraphMode::kNone ? Status() : capture_graphs();
}

// The upload is all zeros yet: it says that there are no rows.
Status ModelExecutor::capture_graphs() {
  StepGraphs::Bodies bodies{.step = [this](const LaunchShape& shape, PieceRunner* pieces) { run_step(shape, pieces); },
                            .fill = nullptr,
                            .drafts = nullptr};
  if (mtp_drafter_ != nullptr) {
    bodies.fill = [this](const LaunchShape& shape, PieceRunner* pieces) { fill_drafter(shape, pieces); };
    bodies.drafts = [this](int32_t rows, int32_t passes) { mtp_drafter_->draft(stream_, mtp_step(), rows, passes); };
  }
  ASSIGN_OR_RETURN(
      graphs_, StepGraphs::capture(stream_, settings_.limits, options_.graphs, settings_.max_logprobs >= 0, bodies));
  if (options_.graphs == GraphMode::kVerify) stream_.set_poison_before_replay(true);
  return {};
}

GraphReport ModelExecutor::graph_report() const {
  GraphReport report = graphs_ == nullptr ? GraphReport() : graphs_->report();
  report.mode = options_.graphs;
  return report;
}

Status ModelExecutor::submit(const StepBatch& batch) {
  CHECK(num_in_flight_ < kMaxSteps, "{} steps are in flight", num_in_flight_);
  InFlight& step = steps_[static_cast<size_t>((oldest_ + num_in_flight_) % kMaxSteps)];
  ++num_in_flight_;
  step.num_rows = static_cast<int32_t>(batch.rows.size());
  step.upload.pack(batch);
  const std::span<const int32_t> words = step.upload.words();
  std::ranges::copy(words, step.sent->values().begin());
  stream_.copy_to_device(upload_->fixed().data(), step.sent->values().data(), words.size_bytes());

  for (const SlotInit& init : batch.slot_inits) start_slot(init);
  const UploadHeader& header = step.upload.header();
  const Fixed<const int32_t> upload(upload_->fixed());
  apply_slot_changes(stream_, {.upload = upload, .slots = slots_.arrays()});
  if (header.copies.count > 0) {
    model_.cache().copy_blocks(stream_, upload.sub(header.copies.begin, 2 * int64_t{header.copies.count}),
                               header.copies.count);
  }
  if (batch.num_masks > 0) {
    stream_.copy_to_device(
        masks_->fixed().data(), batch.masks.data(),
        sizeof(uint32_t) * static_cast<size_t>(batch.num_masks) * static_cast<size_t>(batch.mask_words));
  }
  const LaunchShape shape = launch_shape(batch);
  const StepWay way = graphs_ == nullptr ? StepWay::kEager : graphs_->way_of(shape);
  step.replayed = way != StepWay::kEager;
  if (!step.replayed) {
    run(shape, batch.shape.draft_passes);
  } else if (options_.graphs == GraphMode::kVerify) {
    run_all_ways(batch, shape);
  } else {
    graphs_->replay(stream_, shape, batch.shape.draft_passes, way);
  }
  const std::span<int32_t> outcome = step.outcome->values();
  stream_.copy_to_host(outcome.data(), outcome_arena_.all().data(), outcome.size_bytes());
  note_logprobs(batch, shape, step);
  if (shape.logprobs) sampler_->copy_logprobs_to_host(stream_, step.logprobs, shape.sample_rows);
  scorer_.copy_to_host(stream_, step.scores, shape.num_scored);
  step.num_traced = batch.num_traced;
  if (tracer_ != nullptr) tracer_->copy_to_host(stream_, step.traced->values(), batch.num_traced);
  step.complete->record();
  return {};
}

// Where the log-probabilities of the step's rows will lie.
void ModelExecutor::note_logprobs(const StepBatch& batch, const LaunchShape& shape, InFlight& step) {
  step.has_logprobs = shape.logprobs;
  step.num_scored = shape.num_scored;
  int32_t used = 0;
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const StepRow& row = batch.rows[r];
    step.sample_begin[r] = used;
    used += row.num_samples();
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

void ModelExecutor::run_all_ways(const StepBatch& batch, const LaunchShape& shape) {
  stream_.synchronize();
  const std::vector<NamedMemory> state =
      memory_of_step(device_, batch, settings_.limits, slots_, *sampler_, model_.cache());
  const std::vector<NamedMemory> outputs = outputs_of_step(batch, shape);
  const MemorySnapshot before(device_, state);
  poison();
  run(shape, batch.shape.draft_passes);
  stream_.synchronize();
  const MemorySnapshot eager_state(device_, state), eager_outputs(device_, outputs);
  for (const StepWay way : {StepWay::kPieces, StepWay::kWhole}) {
    if (!graphs_->holds(shape, way)) continue;
    before.restore(device_);
    poison();
    graphs_->replay(stream_, shape, batch.shape.draft_passes, way);
    stream_.synchronize();
    std::string difference = MemorySnapshot(device_, outputs).difference(eager_outputs);
    if (difference.empty()) difference = MemorySnapshot(device_, state).difference(eager_state);
    CHECK(difference.empty(), "graphs=verify: a replay {} in the {} is not what the step is when it runs eagerly: {}",
          way == StepWay::kPieces ? "in pieces" : "of the whole", to_string(graphs_->launched(shape, way).bucket),
          difference);
  }
}

// What a step leaves behind for real rows, beside its state.
std::vector<NamedMemory> ModelExecutor::outputs_of_step(const StepBatch& batch, const LaunchShape& shape) const {
  const auto part = [](const char* name, const auto& view) {
    return NamedMemory{name, view.data(), static_cast<size_t>(view.size()) * sizeof(*view.data())};
  };
  const auto rows = static_cast<int64_t>(batch.rows.size());
  std::vector<NamedMemory> outputs{
      part("the new tokens", outcome_tokens_.sub(0, rows * outcome_.max_query_len)),
      part("their number", outcome_num_tokens_.sub(0, rows)), part("the status of rows", outcome_status_.sub(0, rows)),
      part("the drafts wanted", wanted_drafts_.sub(0, rows)), part("the number of experts", distinct_experts_)};
  if (batch.num_traced > 0) outputs.push_back(part("the traced selections", tracer_->records(batch.num_traced)));
  const Activations& a = model_.activations();
  const bool drafted = mtp_drafter_ != nullptr && batch.shape.draft_passes > 0;
  if (!drafted) {  // else they are those of the drafter's further passes
    outputs.push_back(
        part("the hidden states", a.hidden.sub(0, int64_t{batch.num_tokens} * model_.config().hidden_size)));
  }
  // The last logits, where there is room for those of all rows at once.
  int32_t most_rows = batch.shape.sampling_rows;
  for (const StepWay way : {StepWay::kEager, StepWay::kPieces, StepWay::kWhole}) {
    if (graphs_->holds(shape, way)) most_rows = std::max(most_rows, graphs_->launched(shape, way).sample_rows);
  }
  if (most_rows > model_.options().sample_rows) return outputs;
  int64_t logits_rows = 0;
  for (const StepRow& row : batch.rows) {
    if (row.samples) logits_rows += drafted || row.prefilling ? 1 : row.query_len;
  }
  outputs.push_back(part("the logits", a.logits.sub(0, logits_rows * model_.config().vocab_size)));
  return outputs;
}

// All that a step makes anew for itself.
void ModelExecutor::poison() const {
  inputs_.poison(device_);
  plan_.poison(device_);
  arena_.fill(device_, kPlanPoison);
  outcome_arena_.fill(device_, kPlanPoison);
  if (tracer_ != nullptr) tracer_->poison(device_);
  if (mtp_drafter_ != nullptr) mtp_drafter_->poison(device_);
}

void ModelExecutor::run(const LaunchShape& shape, int32_t draft_passes) {
  run_step(shape);
  if (mtp_drafter_ == nullptr) return;
  fill_drafter(shape);
  if (shape.drafter_runs) mtp_drafter_->draft(stream_, mtp_step(), shape.draft_rows, draft_passes);
}

void ModelExecutor::run_layers(const StepView& view, PieceRunner* pieces) {
  const DevPtr<const int32_t> token_ids = Fixed<const int32_t>(token_ids_);
  StepObserver observer;
  if (tracer_ != nullptr) {
    observer.after_selection = [this](int32_t layer, const Activations& activations) {
      tracer_->run(stream_, layer, Fixed<const int32_t>(upload_->fixed()), activations);
    };
  }
  if (!options_.count_experts) return model_.forward(stream_, view, token_ids, &observer, pieces);
  const ModelConfig& config = model_.config();
  const std::vector<LayerWeights>& layers = model_.weights().layers;
  const auto first = std::ranges::find_if(layers, &LayerWeights::is_moe) - layers.begin();
  observer.after_router = [&](int32_t layer, const Activations& activations) {
    count_experts(stream_, {.expert_ids = Fixed<const int32_t>(activations.expert_ids),
                            .seen = seen_experts_,
                            .total = distinct_experts_,
                            .tokens = view.tokens,
                            .experts = config.num_routed_experts,
                            .experts_per_token = config.experts_per_token,
                            .first = layer == first});
  };
  model_.forward(stream_, view, token_ids, &observer, pieces);
}

void ModelExecutor::run_step(const LaunchShape& shape, PieceRunner* pieces) {
  const Fixed<const int32_t> upload(upload_->fixed());
  const int32_t block_size = settings_.limits.block_size;
  build_step_inputs(stream_, {.upload = upload,
                              .slots = slots_.arrays(),
                              .inputs = inputs_.writable(0),
                              .token_ids = token_ids_,
                              .tokens = shape.bucket.tokens,
                              .block_size = block_size});
  const StepPlanParams plan = plan_.params(inputs_, shape.plan());
  plan_step(stream_, plan);
  mask_unwritten(stream_, {.upload = upload, .slot_mapping = plan.groups[0].slot_mapping});
  const StepView view = plan_.view(inputs_, shape.plan(), shape.decode_tokens);
  run_layers(view, pieces);
  scorer_.run(stream_, model_, sampler_->slots(), upload, slots_.arrays(), shape.num_scored);
  sample_rows(shape);
  advance_slots(stream_, {.upload = upload,
                          .slots = slots_.arrays(),
                          .plan_counts = plan_.counts(),
                          .outcome = outcome_,
                          .wanted_drafts = wanted_drafts_});
  if (mtp_drafter_ == nullptr && settings_.max_drafts() > 0) {
    sampler_->draft_ngrams(stream_, Fixed<const int32_t>(wanted_drafts_), slots_.drafts(), slots_.num_drafts(),
                           options_.min_ngram, options_.max_ngram);
  }
}

void ModelExecutor::fill_drafter(const LaunchShape& shape, PieceRunner* pieces) {
  const StepView view = plan_.view(inputs_, shape.plan(), shape.decode_tokens);
  mtp_drafter_->fill(stream_, mtp_step(), view, shape.draft_rows, shape.drafter_runs, pieces);
}

MtpDrafter::Step ModelExecutor::mtp_step() const {
  const Fixed<const int32_t> upload(upload_->fixed());
  return {.upload = upload,
          .slots = slots_.arrays(),
          .inputs = inputs_.writable(0),
          .block_table = inputs_.block_table(0),
          .token_ids = Fixed<const int32_t>(token_ids_),
          .outcome = outcome_,
          .wanted_drafts = Fixed<const int32_t>(wanted_drafts_),
          .num_sampling = upload.sub(StepUpload::kNumSamplingWord, 1)};
}

void ModelExecutor::sample_rows(const LaunchShape& shape) {
  PrepareSamplesParams prepare{.upload = Fixed<const int32_t>(upload_->fixed()),
                               .token_rows = sample_token_rows_,
                               .sample_start_loc = sample_start_loc_,
                               .request_slots = request_slots_,
                               .num_rows = num_sample_rows_,
                               .rows = shape.sample_rows};
  AllowedTokens allowed;
  if (masks_ != nullptr) {
    prepare.row_masks = row_masks_;
    allowed = {.masks = Fixed<const uint32_t>(masks_->fixed()), .row_masks = Fixed<const int32_t>(row_masks_)};
  }
  prepare_samples(stream_, prepare);
  sampler_->begin(stream_, {.requests = {.num_requests = inputs_.num_requests(),
                                         .sample_start_loc = Fixed<const int32_t>(sample_start_loc_),
                                         .slots = Fixed<const int32_t>(request_slots_),
                                         .max_requests = shape.bucket.requests},
                            .draft_tokens = Fixed<const int32_t>(slots_.drafts()),
                            .num_drafts = Fixed<const int32_t>(slots_.num_drafts()),
                            .rows = shape.sample_rows,
                            .logprobs = shape.logprobs});
  const RowCount real_rows{.count = Fixed<const int32_t>(num_sample_rows_)};
  const int32_t most = model_.options().sample_rows;
  for (int32_t begin = 0; begin < shape.sample_rows; begin += most) {
    const int32_t rows = std::min(most, shape.sample_rows - begin);
    model_.logits(stream_, Fixed<const int32_t>(sample_token_rows_.sub(begin, rows)), rows, real_rows.from(begin));
    sampler_->sample(stream_, Fixed<const float>(model_.activations().logits), begin, rows, allowed);
  }
  sampler_->verify(stream_, outcome_tokens_, outcome_num_tokens_, outcome_status_, options_.synthetic_acceptance);
}

Status ModelExecutor::wait(StepResults& results) {
  CHECK(num_in_flight_ > 0, "no step is in flight");
  const InFlight& step = steps_[static_cast<size_t>(oldest_)];
  step.complete->wait();
  const std::span<const int32_t> outcome = step.outcome->values();
  // What the host sent contradicts itself: a broken invariant.
  const int32_t faults = outcome[static_cast<size_t>(faults_at_)];
  CHECK(faults == 0, "the step plan found {} faults in a step of {} rows", faults, step.num_rows);
  const auto rows = static_cast<size_t>(step.num_rows);
  std::ranges::copy(outcome.first(rows * static_cast<size_t>(outcome_.max_query_len)), results.tokens.begin());
  std::ranges::copy(outcome.subspan(static_cast<size_t>(num_tokens_at_), rows), results.num_tokens.begin());
  std::ranges::transform(outcome.subspan(static_cast<size_t>(status_at_), rows), results.status.begin(),
                         [](int32_t status) { return static_cast<RowStatus>(status); });
  take_logprobs(step, results);
  if (step.num_traced > 0) {
    const auto words = static_cast<size_t>(int64_t{step.num_traced} * settings_.traced_record_words());
    std::ranges::copy(step.traced->values().first(words), results.traced.begin());
  }
  results.replayed = step.replayed;
  results.distinct_experts = options_.count_experts ? outcome[static_cast<size_t>(experts_at_)] : 0;
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
                                                      const ModelExecutorOptions& options, GraphReport* graphs) {
  if (settings.vocab_size != 0 && settings.vocab_size != model.config().vocab_size) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("vocab_size is {}, and the model has {} tokens; set it to that, or to 0",
                             settings.vocab_size, model.config().vocab_size));
  }
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
  if (graphs != nullptr) *graphs = executor->graph_report();
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace lantern
