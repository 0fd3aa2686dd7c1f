#include "fake_executor.h"

#include <algorithm>
#include <stdexcept>

namespace lantern {
namespace {

// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

TextHash empty_text(std::string_view salt) {
  TextHash text = 0x9e3779b97f4a7c15u;
  for (const char c : salt) text = mix(text + static_cast<unsigned char>(c) + 1);
  return text;
}
TextHash append(TextHash text, int32_t token) { return mix(text * 3 + static_cast<uint64_t>(token) + 1) | 1; }
int32_t next_token(TextHash text, uint64_t seed, int32_t vocab) {
  return static_cast<int32_t>(mix(text ^ mix(seed + 0x1234567)) % static_cast<uint64_t>(vocab));
}

float fake_logprob(TextHash text, int32_t token) {
  return -static_cast<float>(mix(text * 5 + static_cast<uint64_t>(token)) % 4096) / 64;
}

namespace {

uint64_t hash_of(std::span<const int32_t> output) {
  uint64_t hash = 0x2545f4914f6cdd1du;
  for (const int32_t token : output) hash = mix(hash * 3 + static_cast<uint64_t>(token) + 1);
  return hash;
}
bool allows(uint64_t output_hash, int32_t token) {
  return mix(output_hash + static_cast<uint64_t>(token) * 977) % 3 != 0;
}

}  // namespace

FakeConstraint::Answer FakeConstraint::answer_to(std::span<const int32_t> output) {
  switch (hash_of(output) % 97) {
    case 5: return Answer::kNone;
    case 6: return Answer::kError;
    case 7: return Answer::kException;
    default: return Answer::kSome;
  }
}

Status FakeConstraint::allow(int32_t choice, std::span<const int32_t> output, std::span<uint32_t> mask) {
  std::vector<int32_t>& seen = seen_[choice];
  if (output.size() < seen.size() || !std::ranges::equal(seen, output.first(seen.size())))
    fault_ = fmt::format("P8: the output of choice {} is not what it was", choice);
  if (std::ranges::any_of(mask, [](uint32_t word) { return word != 0; })) fault_ = "P8: a mask is not empty";
  seen.assign(output.begin(), output.end());
  switch (answer_to(output)) {
    case Answer::kNone: return {};
    case Answer::kError: return Error(ErrorCode::kCorrupt, "told to fail");
    case Answer::kException: throw std::runtime_error("told to throw");
    case Answer::kSome: break;
  }
  const uint64_t hash = hash_of(output);
  for (int32_t token = 0; token < vocab_; ++token) {
    if (allows(hash, token)) mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }
  return {};
}

int32_t next_allowed_token(TextHash text, uint64_t seed, int32_t vocab, std::span<const int32_t> output) {
  const int32_t first = next_token(text, seed, vocab);
  const uint64_t hash = hash_of(output);
  for (int32_t i = 0; i < vocab; ++i) {
    if (allows(hash, (first + i) % vocab)) return (first + i) % vocab;
  }
  return -1;
}

FakeExecutor::FakeExecutor(const EngineSettings& settings, const Options& options)
    : settings_(settings),
      options_(options),
      random_(options.seed),
      cache_(static_cast<size_t>(settings.limits.num_blocks) * static_cast<size_t>(settings.limits.block_size),
             kUnwritten),
      slots_(static_cast<size_t>(dummy_slot(settings.limits)) + 1) {}

Status FakeExecutor::submit(const StepBatch& batch) {
  if (refuse_next_) {
    refuse_next_ = false;
    return Error(ErrorCode::kIo, "told to refuse");
  }
  if (static_cast<int32_t>(in_flight_.size()) >= settings_.max_steps_in_flight) complain("too many steps in flight");
  check_shape(batch);
  shapes_.push_back(batch.shape);
  if (batch.rows.front().sequence < 0) {
    in_flight_.emplace_back(Step{.batch = batch, .num_tokens = {0}, .status = {RowStatus::kOk}, .done = true});
    return {};
  }
  check_new_blocks(batch);
  Step& step = in_flight_.emplace_back(Step{.batch = batch});
  for (const SlotInit& init : batch.slot_inits) {
    Init& copy = step.inits.emplace_back(Init{.slot = init.slot,
                                              .max_len = init.max_len,
                                              .seed = init.sequence->seed(),
                                              .root = empty_text(init.sequence->request->cache_salt)});
    copy.prompt.assign(init.sequence->tokens.begin(), init.sequence->tokens.begin() + init.sequence->prompt_len);
    TextHash text = copy.root;
    for (int32_t p = 0; p < init.seq_len; ++p) {
      copy.text.push_back(text = append(text, init.sequence->tokens[static_cast<size_t>(p)]));
    }
    slots_[static_cast<size_t>(init.slot)].submitted.clear();
  }
  for (const BlockTableEntry& entry : batch.table_entries) {
    auto& table = slots_[static_cast<size_t>(entry.slot)].submitted;
    if (table.size() <= static_cast<size_t>(entry.index))
      table.resize(static_cast<size_t>(entry.index) + 1, kNullBlock);
    table[static_cast<size_t>(entry.index)] = entry.block;
  }
  if (!options_.late) run(step);
  return {};
}

// The launches must have room for the rows, and the dummy must be what it is by construction.
void FakeExecutor::check_shape(const StepBatch& batch) {
  const auto rows = static_cast<int32_t>(batch.rows.size());
  const BucketKey& bucket = batch.shape.bucket;
  int32_t sampling = 0;
  int32_t wanted = 0;
  int32_t traced = 0;
  for (const StepRow& row : batch.rows) {
    sampling += row.samples ? 1 : 0;
    wanted = std::max(wanted, row.next_drafts);
    if (row.first_traced >= 0 && row.first_traced != traced)
      complain("a row's selections begin at {} where {} are taken", row.first_traced, traced);
    traced += row.first_traced >= 0 ? row.num_samples() : 0;
    if (row.prefilling && bucket.kind != StepKind::kMixed) complain("a prefill in a {}", to_string(bucket));
    if (!row.prefilling && row.query_len > bucket.query_width)
      complain("a decode of {} tokens in a {}", row.query_len, to_string(bucket));
  }
  if (batch.num_tokens > bucket.tokens || rows > bucket.requests || sampling > batch.shape.sampling_rows ||
      wanted > batch.shape.draft_passes) {
    complain("{} rows of {} tokens, {} of which sample and want {} drafts, in a {} with {} and {}", rows,
             batch.num_tokens, sampling, wanted, to_string(bucket), batch.shape.sampling_rows,
             batch.shape.draft_passes);
  }
  if (traced != batch.num_traced || traced > settings_.max_traced_rows)
    complain("{} rows are traced, the step says {}, and there is room for {}", traced, batch.num_traced,
             settings_.max_traced_rows);
  if (bucket.tokens > settings_.limits.max_tokens || bucket.requests > settings_.limits.max_requests ||
      batch.shape.draft_passes > settings_.max_drafts()) {
    complain("a {} with {} drafts is beyond the limits", to_string(bucket), batch.shape.draft_passes);
  }
  if (batch.rows.front().sequence >= 0) return;
  const StepRow& dummy = batch.rows.front();
  if (rows != 1 || dummy.slot != dummy_slot(settings_.limits) || dummy.prefilling || dummy.samples ||
      dummy.query_len != settings_.limits.max_query_len || !batch.slot_inits.empty() || !batch.copies.empty() ||
      !batch.table_entries.empty() || !batch.prompt_tokens.empty()) {
    complain("step {} is no dummy: {} rows, slot {}, {} tokens", batch.step, rows, dummy.slot, dummy.query_len);
  }
}

// The first position that a row of a step in flight may write.
int32_t FakeExecutor::first_position(const StepRow& row, const Step& step) const {
  if (row.prefilling) return row.begin_upper + row.num_unwritten;
  for (const Step& earlier : in_flight_) {
    if (&earlier == &step) break;
    for (const StepRow& other : earlier.batch.rows) {
      if (other.slot == row.slot && other.prefilling) return other.seq_len_upper();
    }
  }
  return static_cast<int32_t>(slots_[static_cast<size_t>(row.slot)].text.size());
}

// A block that goes to another slot must not be one that a step in flight may still write.
void FakeExecutor::check_new_blocks(const StepBatch& batch) {
  for (const Step& step : in_flight_) {
    for (const StepRow& row : step.batch.rows) {
      const Slot& slot = slots_[static_cast<size_t>(row.slot)];
      const int32_t size = settings_.limits.block_size;
      const int32_t written_from = first_position(row, step);
      const auto first = static_cast<size_t>((written_from + size - 1) / size);
      for (size_t i = first; i < slot.submitted.size(); ++i) {
        for (const BlockTableEntry& entry : batch.table_entries) {
          if (entry.slot != row.slot && entry.block == slot.submitted[i]) {
            complain("block {} goes to slot {} while step {} may write it for slot {}", entry.block, entry.slot,
                     step.batch.step, row.slot);
          }
        }
      }
    }
    for (const SlotInit& init : batch.slot_inits) {
      for (const StepRow& row : step.batch.rows) {
        if (row.slot == init.slot) complain("slot {} begins anew while step {} runs it", init.slot, step.batch.step);
      }
    }
  }
}

TextHash* FakeExecutor::entry(Slot& slot, int32_t position) {
  const int32_t size = settings_.limits.block_size;
  const auto index = static_cast<size_t>(position / size);
  const BlockId block = index < slot.table.size() ? slot.table[index] : kNullBlock;
  if (block == kNullBlock) return nullptr;
  return &cache_[static_cast<size_t>(block) * static_cast<size_t>(size) + static_cast<size_t>(position % size)];
}

Status FakeExecutor::wait(StepResults& results) {
  Step& step = in_flight_.front();
  if (!step.done) run(step);
  std::ranges::copy(step.tokens, results.tokens.begin());
  std::ranges::copy(step.num_tokens, results.num_tokens.begin());
  std::ranges::copy(step.status, results.status.begin());
  if (step.batch.logprobs) std::ranges::copy(step.logprobs, results.logprobs.logprobs.begin());
  std::ranges::copy(step.scores, results.prompt_logprobs.logprobs.begin());
  for (size_t i = 0; i < step.traced.size(); ++i) {
    const size_t at = i * static_cast<size_t>(results.traced_record_words);
    results.traced[at] = 1;
    results.traced[at + 1] = step.traced[i];
  }
  in_flight_.pop_front();
  return {};
}

void FakeExecutor::run(Step& step) {
  const StepBatch& batch = step.batch;
  step.done = true;
  for (Init& init : step.inits) {
    Slot& slot = slots_[static_cast<size_t>(init.slot)];
    std::vector<int32_t> submitted = std::move(slot.submitted);
    slot = Slot{.submitted = std::move(submitted),
                .text = std::move(init.text),
                .root = init.root,
                .prompt = std::move(init.prompt),
                .seed = init.seed,
                .max_len = init.max_len};
  }
  const auto size = static_cast<ptrdiff_t>(settings_.limits.block_size);
  for (size_t i = 0; i < batch.copies.size(); ++i) {
    const BlockCopy& copy = batch.copies[i];
    for (size_t j = 0; j < batch.copies.size(); ++j) {  // they may run in any order
      if (copy.target == batch.copies[j].source || (i != j && copy.target == batch.copies[j].target)) {
        complain("copies of one step depend on each other at block {}", copy.target);
      }
    }
    std::copy_n(cache_.begin() + copy.source * size, size, cache_.begin() + copy.target * size);
    ++blocks_copied_;
  }
  for (const BlockTableEntry& entry : batch.table_entries) {
    auto& table = slots_[static_cast<size_t>(entry.slot)].table;
    if (table.size() <= static_cast<size_t>(entry.index))
      table.resize(static_cast<size_t>(entry.index) + 1, kNullBlock);
    table[static_cast<size_t>(entry.index)] = entry.block;
  }
  step.logprobs.assign(static_cast<size_t>(settings_.limits.max_sample_rows()), 1.0f);
  step.traced.assign(static_cast<size_t>(batch.num_traced), -1);
  step.tokens.assign(static_cast<size_t>(settings_.limits.max_sample_rows()), -1);
  step.num_tokens.assign(batch.rows.size(), 0);
  step.status.assign(batch.rows.size(), RowStatus::kOk);
  for (size_t r = 0; r < batch.rows.size(); ++r) run_row(step, r);
}

void FakeExecutor::score_prompt(Step& step, const StepRow& row, std::span<const int32_t> prompt) {
  const std::vector<TextHash>& text = slots_[static_cast<size_t>(row.slot)].text;
  for (int32_t p = row.begin_upper + row.score_from; p < row.begin_upper + row.score_from + row.num_scored; ++p) {
    const auto at = static_cast<size_t>(p);
    if (p >= row.seq_len_upper() || at + 1 >= prompt.size()) {
      complain("step {}: position {} of slot {} is to be scored, and has no token behind it", step.batch.step, p,
               row.slot);
      return;
    }
    step.scores.push_back(fake_logprob(text[at], prompt[at + 1]));
    ++tokens_scored_;
  }
}

void FakeExecutor::run_row(Step& step, size_t r) {
  const StepBatch& batch = step.batch;
  const StepRow& row = batch.rows[r];
  Slot& slot = slots_[static_cast<size_t>(row.slot)];
  const auto begin = static_cast<int32_t>(slot.text.size());
  if (row.samples) step.num_tokens[r] = 1;  // so that a row that cannot go on below has results all the same
  if (row.prefilling ? begin != row.begin_upper : begin > row.begin_upper) {
    complain("slot {} has run {} tokens and its row begins at {}", row.slot, begin, row.begin_upper);
    return;
  }
  for (int32_t p = 0; p < begin; ++p) {
    const TextHash* read = entry(slot, p);
    if (read == nullptr || *read != slot.text[static_cast<size_t>(p)]) {
      complain("step {}: slot {} reads {} at position {} of {}", batch.step, row.slot,
               read == nullptr ? "no block" : "another text's entry", p, begin);
      return;
    }
  }

  // Runs one token more: writes its entry, or finds it written.
  const auto run_token = [&](int32_t position, int32_t token, TextHash before, bool unwritten) {
    const TextHash text = append(before, token);
    TextHash* const cell = entry(slot, position);
    if (cell == nullptr) {
      complain("step {}: slot {} has no block for position {}", batch.step, row.slot, position);
    } else if (unwritten) {
      ++tokens_run_again_;
      if (*cell != text)
        complain("step {}: slot {} runs position {} again, which is not there", batch.step, row.slot, position);
    } else {
      *cell = text;
    }
    return text;
  };
  // The first token from `token` on that the row's mask allows; -1: none.
  const auto masked = [&](int32_t token) {
    if (row.mask < 0) return token;
    const auto words = static_cast<size_t>(batch.mask_words);
    const auto mask = std::span(batch.masks).subspan(static_cast<size_t>(row.mask) * words, words);
    for (int32_t i = 0; i < options_.vocab; ++i) {
      const int32_t other = (token + i) % options_.vocab;
      if ((mask[static_cast<size_t>(other) / 32] >> (other % 32) & 1u) != 0) return other;
    }
    return -1;
  };
  int32_t produced = 0;
  const auto produce = [&](int32_t token) {
    if (token < 0) {
      step.status[r] = RowStatus::kNoToken;
      return;
    }
    const size_t at = r * static_cast<size_t>(settings_.limits.max_query_len) + static_cast<size_t>(produced++);
    step.tokens[at] = token;
    if (batch.logprobs) step.logprobs[at] = fake_logprob(slot.text.back(), token);
    if (row.first_traced >= 0) {
      step.traced.at(static_cast<size_t>(row.first_traced + produced) - 1) = static_cast<int32_t>(slot.text.size()) - 1;
    }
    slot.last_token = token;
  };

  if (row.prefilling) {
    const auto first = static_cast<size_t>(batch.query_start_loc[r] - batch.num_decode_tokens);
    for (int32_t j = 0; j < row.query_len; ++j) {
      slot.text.push_back(run_token(begin + j, batch.prompt_tokens[first + static_cast<size_t>(j)],
                                    text_before(slot, begin + j), j < row.num_unwritten));
    }
    score_prompt(step, row, slot.prompt);
    if (row.samples) produce(masked(next_token(slot.text.back(), slot.seed, options_.vocab)));
  } else {
    if (row.num_drafts() > static_cast<int32_t>(slot.drafts.size())) complain("slot {} has too few drafts", row.slot);
    TextHash text = text_before(slot, begin);
    std::vector<TextHash> texts;
    for (int32_t j = 0; j < row.query_len; ++j) {
      const int32_t token = j == 0 ? slot.last_token : slot.drafts[static_cast<size_t>(j) - 1];
      texts.push_back(text = run_token(begin + j, token, text, false));
    }
    slot.text.push_back(texts[0]);
    for (int32_t j = 0;; ++j) {
      const int32_t token = masked(next_token(slot.text.back(), slot.seed, options_.vocab));
      produce(token);
      if (token < 0) break;
      if (j >= row.num_drafts() || slot.drafts[static_cast<size_t>(j)] != token) break;
      slot.text.push_back(texts[static_cast<size_t>(j) + 1]);
      ++drafts_accepted_;
    }
  }
  step.num_tokens[r] = produced;
  if (produced > 0 && chance(options_.not_finite)) step.status[r] = RowStatus::kNotFinite;

  if (!row.samples || step.status[r] == RowStatus::kNoToken) return;
  // The drafter leaves entries of its own behind, right or wrong, where the table has blocks.
  slot.drafts.clear();
  TextHash text = append(slot.text.back(), slot.last_token);
  for (int32_t i = 0; i < batch.shape.draft_passes; ++i) {
    int32_t token = next_token(text, slot.seed, options_.vocab);
    if (!chance(options_.acceptance)) token = (token + 1) % options_.vocab;
    slot.drafts.push_back(token);
    const int32_t position = static_cast<int32_t>(slot.text.size()) + i;
    if (position < slot.max_len) {
      if (TextHash* const cell = entry(slot, position)) *cell = 2;  // no text has an even hash
    }
    text = append(text, token);
  }
}

std::string FakeExecutor::describe() const {
  std::string text;
  for (const Slot& slot : slots_)
    text += fmt::format("[{} {} {}]", slot.text.size(), slot.last_token, slot.drafts.size());
  for (const Step& step : in_flight_) text += fmt::format("<{} {}>", step.batch.num_tokens, step.batch.num_decodes);
  return text;
}

std::vector<int32_t> expected_tokens(const std::vector<int32_t>& prompt, int32_t count, uint64_t seed, int32_t vocab) {
  TextHash text = empty_text("");
  for (const int32_t token : prompt) text = append(text, token);
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(next_token(text, seed, vocab));
    text = append(text, tokens.back());
  }
  return tokens;
}

}  // namespace lantern
