// A session: one model, one sequence at a time. The front end of `generate`, `chat`, `score`, `eval` and `bench`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "engine/graph_mode.h"
#include "model/model.h"
#include "ops/sampling.h"

namespace lantern {

struct SessionOptions {
  std::filesystem::path model_dir = {};
  std::string device = "auto";          // cpu, cuda, auto
  int32_t threads = 0;                  // 0: every usable core
  std::string kv_cache_dtype = "auto";  // auto, bf16, fp8, f32
  int32_t max_model_len = 0;            // 0: the model's own context, at most kDefaultMaxModelLen
  int32_t prefill_chunk = 512;          // prompt tokens per step
  bool strict_config = false;
  std::string indexer = "model";  // model, or recent: the control experiment that takes the last index_topk keys
  bool index_hadamard = false;
  MlaForm mla_form = MlaForm::kAuto;
  int32_t draft_tokens = 0;          // for each step of generate(); outputs are the same
  std::string drafter = "auto";      // auto, mtp, ngram: see Drafter
  double synthetic_acceptance = -1;  // see ModelExecutorOptions
  std::string graphs = "none";       // whether steps of generate() replay graphs: see parse_graph_mode()
};
inline constexpr int32_t kMaxDraftTokens = 8;
inline constexpr int32_t kDefaultMaxModelLen = 32768;

struct GenerateRequest {
  std::vector<int32_t> prompt;  // token ids, special tokens included
  int32_t max_tokens = 256;
  SamplingSettings sampling;
  bool ignore_eos = false;
  std::vector<LogitBias> logit_bias;            // each token at most once
  std::vector<std::vector<int32_t>> bad_words;  // token sequences that the text must not contain
  std::vector<int32_t> stop_token_ids;          // end the text beside the model's end-of-sequence tokens
  int32_t min_tokens = 0;                       // no token that ends the text is drawn before so many
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled };
std::string_view to_string(FinishReason reason);  // "stop", "length", "cancelled"

struct GenerateResult {
  std::vector<int32_t> tokens;  // without the token that ended the text
  FinishReason finish_reason = FinishReason::kLength;
  double prefill_seconds = 0;
  double decode_seconds = 0;  // from the first token to the last
};

struct TokenScore {
  float logprob = 0;                // natural logarithm
  std::vector<int32_t> top_tokens;  // most likely first
  std::vector<float> top_logprobs;
};

// One decode step repeated at a fixed context length, and a prompt of `prefill_tokens`, on any weights.
struct StepBenchOptions {
  int32_t context = 1024;
  int32_t repetitions = 20;
  int32_t prefill_tokens = 512;  // 0: no prefill measurement
  uint64_t seed = 0;
  std::function<void()> before_each_decode;  // not timed: what a machine with other work on it is measured beside
};
struct StepBenchResult {
  double decode_seconds_median = 0;   // of one token
  double prefill_seconds_median = 0;  // of all prefill_tokens
  int64_t weight_bytes_per_token = 0;
  int64_t kv_bytes_per_token_step = 0;  // cache bytes one decode step reads
};

// How drafts fared, by their place in a draft: those that were checked (all before them were right) and those accepted.
struct DraftCounts {
  std::vector<int64_t> checked, accepted;  // [draft_tokens]
};

// Steps of generate() so far that were replayed, and the graphs that they could be replayed from.
struct GraphCounts {
  GraphMode mode = GraphMode::kNone;
  int32_t num_graphs = 0;
  int64_t steps_replayed = 0;
};

class StepBuffers;
class SpeculativeRun;

class Session {
 public:
  ~Session();
  // Errors: everything that can be wrong with a checkpoint or an option, and out_of_memory with numbers.
  static Result<std::unique_ptr<Session>> load(const SessionOptions& options);
  // The shapes of a public model (builtin_config_names()) cut to `layers` layers (0: all) with random weights.
  static Result<std::unique_ptr<Session>> load_dummy(const std::string& name, int32_t layers, DummyFormat format,
                                                     uint64_t seed, const SessionOptions& options);

  // Any configuration and weights, for tests and tools; options.model_dir and options.device are not read.
  static Result<std::unique_ptr<Session>> create(std::unique_ptr<Device> device, ModelConfig config,
                                                 std::unique_ptr<WeightStore> weights, const SessionOptions& options);

  const ModelConfig& config() const { return model_->config(); }
  Model& model() { return *model_; }
  Device& device() { return *device_; }
  int32_t max_model_len() const { return max_model_len_; }

  // What the callback for each new token answers.
  enum class Continue : uint8_t { kYes, kStop, kCancel };  // kStop: a stop string was met; kCancel: the user left
  using OnToken = std::function<Continue(int32_t token)>;
  // Gets the number of given tokens done so far after each step of `prefill_chunk`; false: the user left.
  using OnProgress = std::function<bool(int64_t tokens_done)>;

  // When `on_prefill` answers false, the result is cancelled and has no tokens. Errors: an empty prompt, a prompt that
  // leaves no room in the context, a token id outside the vocabulary, settings out of range; logits that are no
  // numbers; a position at which the request's own rules leave no token.
  Result<GenerateResult> generate(const GenerateRequest& request, const OnToken& on_token = {},
                                  const OnProgress& on_prefill = {});

  // Log-probability of tokens[i] given tokens[0..i) for i >= 1, with the `top_k` most likely alternatives.
  // When `on_progress` answers false, the scores of the tokens done. Errors: fewer than two tokens, more than the
  // context holds, ids outside the vocabulary.
  Result<std::vector<TokenScore>> score(std::span<const int32_t> tokens, int32_t top_k,
                                        const OnProgress& on_progress = {});

  // Of all that was generated so far.
  DraftCounts draft_counts() const;
  GraphCounts graph_counts() const;

  // Errors: a context or a prompt that the session cannot hold.
  Result<StepBenchResult> bench_step(const StepBenchOptions& options);

 private:
  Session();
  Status check_tokens(std::span<const int32_t> tokens) const;
  // Runs tokens[begin, end) of the one sequence as a prefill chunk or, with `decode`, as a decode step.
  void step(std::span<const int32_t> tokens, int32_t begin, bool decode);
  void logits_of_rows(int32_t first_row, int32_t count);

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<StepBuffers> buffers_;
  std::unique_ptr<SpeculativeRun> speculative_;  // null where there are neither drafts nor graphs
  int32_t max_model_len_ = 0;
};

// The device of that name; auto is cuda where this build and machine have it, else cpu. Errors: an unknown name; cuda
// in a build or on a machine without it.
Result<std::unique_ptr<Device>> make_device(const std::string& name, int32_t threads);

}  // namespace lantern
