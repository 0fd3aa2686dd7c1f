#include "engine/speculative_run.h"

#include <algorithm>
#include <utility>

namespace lantern {
namespace {

double seconds_between(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

Result<std::unique_ptr<SpeculativeRun>> SpeculativeRun::create(Device& device, Model& model,
                                                               const ModelExecutorOptions& options) {
  EngineSettings settings;
  settings.limits = model.options().limits;
  settings.prefix_caching = false;  // the session's other work overwrites the caches
  settings.max_steps_in_flight = 1;
  settings.adaptive_drafts = false;
  settings.max_logprobs = -1;
  ASSIGN_OR_RETURN(settings, EngineSettings::checked(settings));
  std::unique_ptr<SpeculativeRun> run(new SpeculativeRun);
  ASSIGN_OR_RETURN(run->executor_, make_model_executor(device, model, settings, options, &run->graphs_));
  run->core_ = std::make_unique<EngineCore>(settings, HashKey::from_seed(0), *run->executor_, run.get());
  run->eos_ = model.config().eos_token_ids;
  return run;
}

SpeculativeRun::~SpeculativeRun() = default;

Result<GenerateResult> SpeculativeRun::generate(const GenerateRequest& request, const Session::OnToken& on_token,
                                                const Session::OnProgress& on_prefill) {
  auto whole = std::make_shared<Request>();
  whole->prompt = request.prompt;
  whole->max_tokens = request.max_tokens;
  whole->sampling = request.sampling;
  if (!request.ignore_eos) whole->stop_token_ids = eos_;
  whole->stop_token_ids.insert(whole->stop_token_ids.end(), request.stop_token_ids.begin(),
                               request.stop_token_ids.end());
  whole->min_tokens = request.min_tokens;
  whole->logit_bias = request.logit_bias;
  whole->bad_words = request.bad_words;
  on_token_ = &on_token;
  result_ = {};
  ended_ = false;
  failure_.clear();
  start_ = first_token_ = Clock::now();
  ASSIGN_OR_RETURN(const RequestId id, core_->submit(whole, EngineTime(0)));
  while (core_->begin_step(EngineTime(0)) == StepStart::kStarted) {
    const StepRow row = core_->in_flight(0).batch().rows.front();
    RETURN_IF_ERROR(core_->finish_step());
    if (!row.prefilling || ended_) continue;
    if (on_prefill && !on_prefill(row.seq_len_upper())) {
      result_.tokens.clear();
      result_.finish_reason = FinishReason::kCancelled;
      core_->cancel(id);
    }
  }
  if (!ended_) return core_->last_error().error();
  if (!failure_.empty()) return Error(ErrorCode::kInvalidArgument, failure_);
  return std::move(result_);
}

OutputSink::Verdict SpeculativeRun::on_tokens(const Sequence& sequence, int32_t count) {
  const auto now = Clock::now();
  const std::span<const int32_t> tokens = std::span(sequence.tokens).last(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    const int32_t token = tokens[static_cast<size_t>(i)];
    if (sequence.num_outputs() == count && i == 0) {
      first_token_ = now;
      result_.prefill_seconds = seconds_between(start_, now);
    }
    result_.decode_seconds = seconds_between(first_token_, now);
    const std::vector<int32_t>& stops = sequence.request->stop_token_ids;
    if (std::ranges::find(stops, token) != stops.end()) {
      result_.finish_reason = FinishReason::kStop;
      return {.kept = i + 1, .stop = true};
    }
    result_.tokens.push_back(token);
    const Session::Continue answer = *on_token_ ? (*on_token_)(token) : Session::Continue::kYes;
    if (answer == Session::Continue::kYes) continue;
    result_.finish_reason = answer == Session::Continue::kStop ? FinishReason::kStop : FinishReason::kCancelled;
    return {.kept = i + 1, .stop = true};
  }
  return {.kept = count, .stop = false};
}

void SpeculativeRun::on_end(const Sequence& sequence) {
  ended_ = true;
  if (sequence.end_reason == EndReason::kFailed) failure_ = sequence.failure;
}

}  // namespace lantern
