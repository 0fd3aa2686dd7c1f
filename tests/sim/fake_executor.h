// An executor without arithmetic. A token is a hash of the text before it and the request's seed, so that each output
// is known in advance; a cache entry is a hash of the text up to its position, so that a row which would read another
// sequence's entry, a stale one, or one that was never written is found out by name.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/executor.h"

namespace lantern {

using TextHash = uint64_t;
constexpr TextHash kUnwritten = 0;
TextHash empty_text(std::string_view salt);
TextHash append(TextHash text, int32_t token);
// The token that follows `text`; 0 to vocab - 1.
int32_t next_token(TextHash text, uint64_t seed, int32_t vocab);
// What is given as the log-probability of `token` behind `text`.
float fake_logprob(TextHash text, int32_t token);

// A hook of which everything is known: it allows some two of three tokens, by a hash of the output and the token.
class FakeConstraint final : public TokenConstraint {
 public:
  enum class Answer : uint8_t { kSome, kNone, kError, kException };
  // By the hash of the output alone.
  static Answer answer_to(std::span<const int32_t> output);

  explicit FakeConstraint(int32_t vocab) : vocab_(vocab) {}
  Status allow(int32_t choice, std::span<const int32_t> output, std::span<uint32_t> mask) override;
  // The first thing that went against the hook's contract.
  const std::optional<std::string>& fault() const { return fault_; }

 private:
  int32_t vocab_;
  std::map<int32_t, std::vector<int32_t>> seen_;  // by choice
  std::optional<std::string> fault_;
};
// next_token(), or the first allowed one behind it, around the end of the vocabulary.
int32_t next_allowed_token(TextHash text, uint64_t seed, int32_t vocab, std::span<const int32_t> output);

class FakeExecutor final : public Executor {
 public:
  struct Options {
    int32_t vocab = 24;
    double acceptance = 0.6;  // of each draft
    double not_finite = 0;    // rows whose logits break
    bool late = true;         // steps run when they are waited for, as late as possible; else when they are submitted
    uint64_t seed = 0;
  };
  FakeExecutor(const EngineSettings& settings, const Options& options);

  Status submit(const StepBatch& batch) override;
  bool ready() const override { return !in_flight_.empty(); }
  Status wait(StepResults& results) override;

  // Of all steps that were submitted since the last call, in order.
  std::vector<StepShape> take_shapes() { return std::exchange(shapes_, {}); }
  void refuse_next() { refuse_next_ = true; }
  // The first thing that went against the contract.
  const std::optional<std::string>& fault() const { return fault_; }
  int64_t drafts_accepted() const { return drafts_accepted_; }
  int64_t tokens_run_again() const { return tokens_run_again_; }
  int64_t tokens_scored() const { return tokens_scored_; }
  int64_t blocks_copied() const { return blocks_copied_; }
  // For telling states apart: slots and steps in flight.
  std::string describe() const;

 private:
  struct Slot {
    std::vector<int32_t> table = {};      // as of the last step that ran
    std::vector<int32_t> submitted = {};  // as of the last step that was submitted
    std::vector<TextHash> text = {};      // of the tokens that ran: text[p] is the hash up to position p
    TextHash root = 0;
    int32_t last_token = -1;
    std::vector<int32_t> drafts = {};
    std::vector<int32_t> prompt = {};
    uint64_t seed = 0;
    int32_t max_len = 0;
  };
  struct Init {
    int32_t slot;
    int32_t max_len;
    uint64_t seed;
    TextHash root;
    std::vector<TextHash> text = {};
    std::vector<int32_t> prompt = {};
  };
  struct Step {
    StepBatch batch;
    std::vector<Init> inits = {};
    std::vector<int32_t> tokens = {};
    std::vector<int32_t> num_tokens = {};
    std::vector<RowStatus> status = {};
    std::vector<float> logprobs = {};  // as tokens
    std::vector<float> scores = {};
    std::vector<int32_t> traced = {};  // the one key of each row: the position of its own token
    bool done = false;
  };

  void run(Step& step);
  void run_row(Step& step, size_t r);
  void score_prompt(Step& step, const StepRow& row, std::span<const int32_t> prompt);
  int32_t first_position(const StepRow& row, const Step& step) const;
  void check_shape(const StepBatch& batch);
  void check_new_blocks(const StepBatch& batch);
  TextHash* entry(Slot& slot, int32_t position);
  TextHash text_before(const Slot& slot, int32_t position) const {
    return position == 0 ? slot.root : slot.text[static_cast<size_t>(position) - 1];
  }
  bool chance(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }
  template <class... Args>
  void complain(fmt::format_string<Args...> format, Args&&... args) {
    if (!fault_) fault_ = fmt::format(format, std::forward<Args>(args)...);
  }

  EngineSettings settings_;
  Options options_;
  std::mt19937_64 random_;
  std::vector<TextHash> cache_;  // [num_blocks][block_size]
  std::vector<Slot> slots_;
  std::deque<Step> in_flight_;
  std::vector<StepShape> shapes_;
  bool refuse_next_ = false;
  std::optional<std::string> fault_;
  int64_t drafts_accepted_ = 0;
  int64_t tokens_run_again_ = 0;
  int64_t blocks_copied_ = 0;
  int64_t tokens_scored_ = 0;
};

// What the executor makes of a prompt, with this vocabulary.
std::vector<int32_t> expected_tokens(const std::vector<int32_t>& prompt, int32_t count, uint64_t seed, int32_t vocab);

}  // namespace lantern
