#include "engine/sampler.h"

#include <algorithm>

#include "base/check.h"
#include "engine/make_buffer.h"

namespace lantern {

Result<std::unique_ptr<Sampler>> Sampler::create(Device& device, const SamplerLimits& limits) {
  CHECK(limits.max_slots >= 1 && limits.max_requests >= 1 && limits.max_query_len >= 1 && limits.max_model_len >= 1 &&
            limits.vocab >= 1 && limits.rows_at_once >= 1 && limits.max_logprobs >= -1 &&
            limits.max_logprobs <= kMaxLogprobs,
        "a sampler of {} slots, {} requests of {} rows, {} tokens, a vocabulary of {}, {} rows at once and {} logprobs",
        limits.max_slots, limits.max_requests, limits.max_query_len, limits.max_model_len, limits.vocab,
        limits.rows_at_once, limits.max_logprobs);
  std::unique_ptr<Sampler> sampler(new Sampler(limits));
  RETURN_IF_ERROR(sampler->allocate(device));
  return sampler;
}

Status Sampler::allocate(Device& device) {
  const int64_t slots = limits_.max_slots;
  const int64_t rows = limits_.max_rows();
  RETURN_IF_ERROR(make_buffer(device, "sampling rules of slots", slots, rules_));
  RETURN_IF_ERROR(make_buffer(device, "texts of slots", slots * limits_.max_model_len, history_));
  RETURN_IF_ERROR(make_buffer(device, "text lengths of slots", slots, history_len_));
  RETURN_IF_ERROR(make_buffer(device, "prompt lengths of slots", slots, prompt_len_));
  staged_rules_.resize(static_cast<size_t>(slots));
  staged_lengths_.resize(static_cast<size_t>(2 * slots));
  if (device.kind() != DeviceKind::kCpu) staged_history_.resize(static_cast<size_t>(slots * limits_.max_model_len));

  RETURN_IF_ERROR(make_buffer(device, "slots of sampled rows", rows, row_slots_));
  RETURN_IF_ERROR(make_buffer(device, "drafts before sampled rows", rows, drafts_before_));
  RETURN_IF_ERROR(make_buffer(device, "logprobs of sampled rows", rows, num_logprobs_));
  RETURN_IF_ERROR(make_buffer(device, "status of sampled rows", rows, row_status_));
  RETURN_IF_ERROR(make_buffer(device, "samples", rows, samples_));
  RETURN_IF_ERROR(make_buffer(device, "output positions", rows, output_positions_));
  RETURN_IF_ERROR(make_buffer(device, "sampling settings of rows", rows, row_settings_));
  RETURN_IF_ERROR(make_buffer(device, "processed logits", int64_t{limits_.rows_at_once} * limits_.vocab, processed_));
  RETURN_IF_ERROR(make_buffer(device, "sampler scratch",
                              std::max(process_logits_scratch_bytes(limits_.rows_at_once, limits_.vocab),
                                       sample_scratch_bytes(limits_.rows_at_once, limits_.vocab)),
                              scratch_));
  const int64_t listed = limits_.max_logprobs < 0 ? 0 : rows;
  RETURN_IF_ERROR(make_buffer(device, "logprobs", listed, logprobs_));
  RETURN_IF_ERROR(make_buffer(device, "ranks of samples", listed, ranks_));
  RETURN_IF_ERROR(make_buffer(device, "most likely tokens", listed * std::max(limits_.max_logprobs, 0), top_tokens_));
  RETURN_IF_ERROR(make_buffer(device, "their logprobs", listed * std::max(limits_.max_logprobs, 0), top_logprobs_));
  return {};
}

void Sampler::start_slot(Stream& stream, int32_t slot, const SlotStart& start) {
  const auto length = static_cast<int32_t>(start.tokens.size());
  CHECK(slot >= 0 && slot < limits_.max_slots, "slot {} of {}", slot, limits_.max_slots);
  CHECK(start.tokens.size() <= static_cast<size_t>(limits_.max_model_len) && start.prompt_len <= length &&
            start.prompt_len >= 0,
        "a slot of {} tokens begins with {}, {} of them a prompt", limits_.max_model_len, length, start.prompt_len);
  CHECK(start.num_logprobs <= limits_.max_logprobs, "{} logprobs where {} can be listed", start.num_logprobs,
        limits_.max_logprobs);
  const auto s = static_cast<size_t>(slot);
  SlotRules& rules = staged_rules_[s];
  fill_slot_rules(rules, start.sampling, start.rules, start.num_logprobs);
  stream.copy_to_device(rules_->fixed().data() + slot, &rules, sizeof(rules));

  const int64_t begin = int64_t{slot} * limits_.max_model_len;
  const int32_t* tokens = start.tokens.data();
  if (!staged_history_.empty()) {
    tokens = staged_history_.data() + begin;
    std::ranges::copy(start.tokens, staged_history_.data() + begin);
  }
  if (length > 0) stream.copy_to_device(history_->fixed().data() + begin, tokens, start.tokens.size_bytes());
  int32_t* lengths = staged_lengths_.data() + 2 * s;
  lengths[0] = length;
  lengths[1] = start.prompt_len;
  stream.copy_to_device(history_len_->fixed().data() + slot, lengths, sizeof(int32_t));
  stream.copy_to_device(prompt_len_->fixed().data() + slot, lengths + 1, sizeof(int32_t));
}

SamplerSlots Sampler::slots() const {
  return {.rules = Fixed<const SlotRules>(rules_->fixed()),
          .history = history_->fixed(),
          .history_len = history_len_->fixed(),
          .prompt_len = Fixed<const int32_t>(prompt_len_->fixed()),
          .num_slots = limits_.max_slots,
          .max_model_len = limits_.max_model_len,
          .vocab = limits_.vocab};
}

SamplerSlots Sampler::slots_of_step() const {
  SamplerSlots slots = this->slots();
  if (limits_.max_query_len > 1) {
    slots.draft_tokens = step_.draft_tokens;
    slots.num_drafts = step_.num_drafts;
    slots.max_drafts = limits_.max_query_len - 1;
  }
  return slots;
}

void Sampler::begin(Stream& stream, const Step& step) {
  CHECK(step.rows <= limits_.max_rows() && step.requests.max_requests <= limits_.max_requests,
        "{} rows of {} requests; the sampler has {} and {}", step.rows, step.requests.max_requests, limits_.max_rows(),
        limits_.max_requests);
  CHECK(!step.logprobs || limits_.max_logprobs >= 0, "logprobs of a sampler without them");
  step_ = step;
  expand_sample_rows(stream, {.slots = slots_of_step(),
                              .requests = step.requests,
                              .rows = {.slots = row_slots_->fixed(),
                                       .drafts_before = drafts_before_->fixed(),
                                       .output_positions = output_positions_->fixed(),
                                       .settings = row_settings_->fixed(),
                                       .num_logprobs = num_logprobs_->fixed()},
                              .max_rows = step.rows});
}

void Sampler::sample(Stream& stream, const Fixed<const float>& logits, int32_t begin, int32_t rows,
                     const AllowedTokens& allowed) {
  CHECK(rows >= 0 && rows <= limits_.rows_at_once && begin >= 0 && begin <= step_.rows - rows,
        "rows {} to {} of {}, {} at a time", begin, begin + rows, step_.rows, limits_.rows_at_once);
  const Fixed<const int32_t> row_slots(row_slots_->fixed().sub(begin, rows));
  ProcessLogitsParams process{.slots = slots_of_step(),
                              .logits = logits,
                              .processed = processed_->fixed(),
                              .status = row_status_->fixed().sub(begin, rows),
                              .row_slots = row_slots,
                              .drafts_before = Fixed<const int32_t>(drafts_before_->fixed().sub(begin, rows)),
                              .rows = rows,
                              .scratch = scratch_->fixed(),
                              .scratch_bytes = scratch_->capacity()};
  if (allowed.masks) {
    process.allowed_tokens = allowed.masks;
    process.row_allowed_masks = allowed.row_masks.sub(begin, rows);
  }
  process_logits(stream, process);
  lantern::sample(stream, {.logits = Fixed<const float>(processed_->fixed()),
                           .settings = Fixed<const SamplingSettings>(row_settings_->fixed().sub(begin, rows)),
                           .output_positions = Fixed<const int64_t>(output_positions_->fixed().sub(begin, rows)),
                           .row_slots = row_slots,
                           .tokens = samples_->fixed().sub(begin, rows),
                           .rows = rows,
                           .vocab = limits_.vocab,
                           .scratch = scratch_->fixed(),
                           .scratch_bytes = scratch_->capacity()});
  if (!step_.logprobs) return;
  const int64_t k = limits_.max_logprobs;
  lantern::logprobs(stream, {.logits = logits,
                             .tokens = Fixed<const int32_t>(samples_->fixed().sub(begin, rows)),
                             .counts = Fixed<const int32_t>(num_logprobs_->fixed().sub(begin, rows)),
                             .logprobs = logprobs_->fixed().sub(begin, rows),
                             .ranks = ranks_->fixed().sub(begin, rows),
                             .top_tokens = top_tokens_->fixed().sub(begin * k, rows * k),
                             .top_logprobs = top_logprobs_->fixed().sub(begin * k, rows * k),
                             .rows = rows,
                             .vocab = limits_.vocab,
                             .k = limits_.max_logprobs});
}

void Sampler::copy_logprobs_to_host(Stream& stream, Logprobs& to, int32_t rows) const {
  const auto count = static_cast<size_t>(rows);
  const size_t listed = count * static_cast<size_t>(limits_.max_logprobs);
  if (count == 0) return;
  stream.copy_to_host(to.logprobs.data(), logprobs_->fixed().data(), count * sizeof(float));
  stream.copy_to_host(to.ranks.data(), ranks_->fixed().data(), count * sizeof(int32_t));
  if (listed == 0) return;
  stream.copy_to_host(to.top_tokens.data(), top_tokens_->fixed().data(), listed * sizeof(int32_t));
  stream.copy_to_host(to.top_logprobs.data(), top_logprobs_->fixed().data(), listed * sizeof(float));
}

void Sampler::verify(Stream& stream, const Fixed<int32_t>& tokens, const Fixed<int32_t>& num_tokens,
                     const Fixed<int32_t>& status, double synthetic_acceptance) {
  verify_drafts(stream, {.slots = slots_of_step(),
                         .requests = step_.requests,
                         .samples = samples(),
                         .row_status = Fixed<const int32_t>(row_status_->fixed()),
                         .tokens = tokens,
                         .num_tokens = num_tokens,
                         .status = status,
                         .max_query_len = limits_.max_query_len,
                         .synthetic_acceptance = synthetic_acceptance});
}

void Sampler::draft_ngrams(Stream& stream, DevPtr<const int32_t> wanted, const Fixed<int32_t>& draft_tokens,
                           const Fixed<int32_t>& num_drafts, int32_t min_ngram, int32_t max_ngram) {
  ngram_drafts(stream, {.slots = slots_of_step(),
                        .requests = step_.requests,
                        .wanted = wanted,
                        .draft_tokens = draft_tokens,
                        .num_drafts = num_drafts,
                        .min_ngram = min_ngram,
                        .max_ngram = max_ngram});
}

}  // namespace lantern
