#include "engine_run.h"

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "base/check.h"
#include "cli/eval_task.h"
#include "engine/invariants.h"
#include "text/tokenizer.h"

namespace lantern {
namespace {

template <class T>
T value_of(Result<T> result) {
  CHECK(result.ok(), "{}", result.error().message());
  return std::move(result).value();
}
void must(const Status& status) { CHECK(status.ok(), "{}", status.error().message()); }

}  // namespace

std::string test_device() {
  const char* name = std::getenv("LANTERN_TEST_DEVICE");
  return name == nullptr ? "cpu" : name;
}

std::filesystem::path tiny_model() { return std::filesystem::path(LANTERN_SOURCE_DIR) / "models/tiny"; }

ChangedModel::ChangedModel(const std::string& name, const std::map<std::string, std::string>& fields)
    : path_(std::filesystem::temp_directory_path() / fmt::format("{}_{}", name, getpid())) {
  std::filesystem::create_directory(path_);
  for (const auto& entry : std::filesystem::directory_iterator(tiny_model())) {
    if (entry.path().filename() != "config.json")
      std::filesystem::create_symlink(entry.path(), path_ / entry.path().filename());
  }
  std::stringstream text;
  text << std::ifstream(tiny_model() / "config.json").rdbuf();
  boost::json::value config = boost::json::parse(text.str());
  for (const auto& [field, value] : fields) config.as_object()[field] = boost::json::parse(value);
  std::ofstream(path_ / "config.json") << config;
}

ChangedModel::~ChangedModel() { std::filesystem::remove_all(path_); }

EngineSettings RunOptions::small_settings() {
  EngineSettings settings;
  settings.limits.max_tokens = 512;
  settings.limits.max_requests = 64;
  settings.limits.block_size = 64;
  settings.limits.max_model_len = 2048;
  settings.limits.max_blocks_per_request = 32;
  settings.limits.num_blocks = 1 + 64 * 32;
  settings.vocab_size = 2048;
  settings.prefix_caching = false;
  settings.adaptive_drafts = false;
  return settings;
}

std::unique_ptr<EngineRun> EngineRun::create(const RunOptions& options) {
  std::unique_ptr<EngineRun> run(new EngineRun);
  run->device_ = value_of(make_device(test_device(), options.threads));
  ModelConfig config = value_of(load_model_config(options.model_dir));
  auto weights = value_of(load_weights(options.model_dir, config, *run->device_));
  const EngineSettings settings = value_of(EngineSettings::checked(options.settings));
  ModelOptions model_options =
      model_options_for(settings, value_of(parse_kv_cache_dtype(options.kv_cache_dtype, config)));
  model_options.mla_form = options.mla_form;
  run->model_ = value_of(Model::create(*run->device_, std::move(config), std::move(weights), model_options));
  run->executor_ =
      value_of(make_model_executor(*run->device_, *run->model_, settings, options.executor, &run->graphs_));
  run->device_->seal();
  run->core_ = std::make_unique<EngineCore>(settings, HashKey{}, *run->executor_, run.get());
  return run;
}

// What still lives ends as cancelled, and is told of.
EngineRun::~EngineRun() { core_.reset(); }

int32_t EngineRun::submit(Request request) {
  const int32_t choices = request.n;
  const RequestId id = value_of(core_->submit(std::make_shared<const Request>(std::move(request)), EngineTime(steps_)));
  const auto number = static_cast<int32_t>(ids_.size());
  ids_.push_back(id);
  live_[id] = {number, choices};
  return number;
}

StepBudget EngineRun::budget(int32_t prompt_tokens) const {
  const EngineState& state = core_->state();
  StepBudget budget = Scheduler::full_budget(state.settings);
  if (prompt_tokens <= 0) return budget;
  int32_t decodes = 0;
  for (const SequenceId id : state.running) {
    if (state.at(id).prompt_submitted()) decodes += 1 + std::min(state.at(id).drafts_ready, budget.max_drafts);
  }
  budget.max_tokens = std::min(budget.max_tokens, decodes + prompt_tokens);
  return budget;
}

bool EngineRun::step(int32_t prompt_tokens) {
  const Violation violation = find_violation(*core_);
  CHECK(!violation.has_value(), "{}", *violation);
  switch (core_->begin_step(EngineTime(steps_), budget(prompt_tokens))) {
    case StepStart::kStarted: ++steps_; break;
    case StepStart::kWaiting: must(core_->finish_step()); break;
    case StepStart::kIdle: {
      const Violation leak = find_leak(core_->state());
      CHECK(!leak.has_value(), "{}", *leak);
      return false;
    }
    default: CHECK(false, "{}", core_->last_error().error().message());
  }
  return true;
}

OutputSink::Verdict EngineRun::on_tokens(const Sequence&, int32_t count) { return {.kept = count, .stop = false}; }

void EngineRun::on_logprobs(const Sequence& sequence, const LogprobRows& rows) {
  Logprobs& to = logprobs_[{live_.at(sequence.request_id).number, sequence.choice}];
  to.width = sequence.request->logprobs;
  to.append(rows);
}

void EngineRun::on_prompt_logprobs(const Sequence& sequence, const LogprobRows& rows) {
  Logprobs& to = prompt_logprobs_[live_.at(sequence.request_id).number];
  to.width = sequence.request->prompt_logprobs;
  to.append(rows);
}

void EngineRun::on_selections(const Sequence& sequence, int32_t count, std::span<const int32_t> records) {
  const auto words = static_cast<size_t>(core_->state().settings.traced_record_words());
  SelectionTrace& to = selections_[{live_.at(sequence.request_id).number, sequence.choice}];
  if (records.empty()) return to.add_without_room(static_cast<size_t>(count));
  CHECK(records.size() == static_cast<size_t>(count) * words, "{} words for {} tokens", records.size(), count);
  for (; !records.empty(); records = records.subspan(words)) {
    to.add(records.subspan(1, static_cast<size_t>(records.front())));
  }
}

void EngineRun::on_end(const Sequence& sequence) {
  const auto live = live_.find(sequence.request_id);
  RunOutput& output = outputs_[{live->second.number, sequence.choice}];
  output.tokens.assign(sequence.tokens.begin() + sequence.prompt_len, sequence.tokens.end());
  output.reason = sequence.end_reason;
  if (--live->second.choices == 0) live_.erase(live);
}

std::vector<RunOutput> outputs_alone(const RunOptions& options, const std::vector<Request>& requests) {
  SessionOptions session_options;
  session_options.model_dir = options.model_dir;
  session_options.device = test_device();
  session_options.threads = options.threads;
  session_options.kv_cache_dtype = options.kv_cache_dtype;
  session_options.mla_form = options.mla_form;
  session_options.max_model_len = options.settings.limits.max_model_len;
  const auto session = value_of(Session::load(session_options));
  std::vector<RunOutput> outputs;
  for (const Request& request : requests) {
    GenerateRequest alone;
    alone.prompt = request.prompt;
    alone.max_tokens = request.max_tokens;
    alone.sampling = request.sampling;
    alone.logit_bias = request.logit_bias;
    alone.bad_words = request.bad_words;
    alone.min_tokens = request.min_tokens;
    // A session ends at the model's own end token and leaves it out; requests carry it as a stop token.
    alone.ignore_eos = request.stop_token_ids.empty();
    CHECK(alone.ignore_eos || request.stop_token_ids == session->config().eos_token_ids,
          "a session knows no stop tokens but the model's own");
    GenerateResult result = value_of(session->generate(alone));
    RunOutput& output = outputs.emplace_back(RunOutput{std::move(result.tokens), EndReason::kLength});
    if (result.finish_reason != FinishReason::kStop) continue;
    CHECK(request.stop_token_ids.size() == 1, "which of several stop tokens was met is not known");
    output.reason = EndReason::kStop;
    output.tokens.push_back(request.stop_token_ids.front());
  }
  return outputs;
}

std::vector<int32_t> random_prompt(int32_t length, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(length));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 2000);
  return tokens;
}

std::vector<Request> mixed_requests(int32_t count, int32_t max_tokens, int32_t longest_prompt) {
  const auto tokenizer = value_of(Tokenizer::load(tiny_model()));
  const ModelConfig config = value_of(load_model_config(tiny_model()));
  std::vector<std::vector<cli::EvalItem>> sets;
  for (const char* name : {"arithmetic", "copysort", "recall", "toolcall"}) {
    sets.push_back(value_of(cli::load_eval_task(tiny_model() / "eval" / (std::string(name) + ".jsonl"))));
  }
  // Greedy, then draws of all kinds.
  const std::array<SamplingSettings, 5> settings{{{.temperature = 0.0f},
                                                  {.temperature = 0.7f, .top_p = 0.9f},
                                                  {.temperature = 1.0f, .top_k = 20},
                                                  {.temperature = 1.3f, .min_p = 0.02f},
                                                  {.temperature = 0.0f}}};
  std::vector<Request> requests;
  std::mt19937_64 random(7);
  for (size_t i = 0; requests.size() < static_cast<size_t>(count); ++i) {
    const auto& set = sets[i % sets.size()];
    Request request;
    request.prompt = value_of(tokenizer.encode(set[i / sets.size() % set.size()].prompt));
    if (request.prompt.size() > static_cast<size_t>(longest_prompt)) {
      request.prompt.resize(static_cast<size_t>(longest_prompt));
    }
    // Every sixth prompt is of a few tokens, where drafts and prompts are alike in length.
    if (i % 6 == 5) request.prompt.resize(1 + i / 6 % 8);
    request.max_tokens = 1 + static_cast<int32_t>(random() % static_cast<uint64_t>(max_tokens));
    request.sampling = settings[i % settings.size()];
    request.sampling.seed = random();
    request.stop_token_ids = config.eos_token_ids;
    // Every fifth has rules that look at the text before it, drafts included.
    if (i % 5 == 2) {
      request.sampling.repetition_penalty = 1.2f;
      request.sampling.presence_penalty = 0.4f;
      request.sampling.frequency_penalty = 0.3f;
      request.min_tokens = std::min(request.max_tokens, 6);
      request.logit_bias = {{static_cast<int32_t>(100 + i), 4.0f}, {static_cast<int32_t>(200 + i), -50.0f}};
      request.bad_words = {{static_cast<int32_t>(100 + i), static_cast<int32_t>(100 + i)}};
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Request> task_requests(int32_t count) {
  const auto tokenizer = value_of(Tokenizer::load(tiny_model()));
  const ModelConfig config = value_of(load_model_config(tiny_model()));
  std::vector<Request> requests;
  for (const char* name : {"arithmetic", "copysort", "toolcall"}) {
    const auto set = value_of(cli::load_eval_task(tiny_model() / "eval" / (std::string(name) + ".jsonl")));
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      Request request;
      request.prompt = value_of(tokenizer.encode(set[i].prompt));
      request.max_tokens = set[i].max_tokens;
      request.sampling.temperature = 0.0f;
      request.stop_token_ids = config.eos_token_ids;
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

std::vector<std::byte> cache_bytes(const Model& model) {
  const KvCache& cache = model.cache();
  const ModelConfig& config = model.config();
  std::vector<std::byte> bytes;
  const auto add = [&](const std::byte* begin, int64_t count) { bytes.insert(bytes.end(), begin, begin + count); };
  const int64_t rows = int64_t{cache.num_blocks()} * cache.block_size();
  for (int32_t layer = 0; layer < config.num_layers + config.num_mtp_layers; ++layer) {
    add(cache.latent_data(layer).get(), rows * cache.latent_row_bytes());
    if (const std::byte* index = cache.index_data(layer).get()) {
      add(index, int64_t{cache.num_blocks()} * cache.index_block_bytes());
    }
  }
  return bytes;
}

std::string differences(const EngineRun& run, const std::vector<RunOutput>& expected) {
  size_t count = 0;
  std::string first;
  for (size_t i = 0; i < expected.size(); ++i) {
    const RunOutput& output = run.output(static_cast<int32_t>(i));
    if (output == expected[i]) continue;
    if (count++ > 0) continue;
    const auto at = std::ranges::mismatch(output.tokens, expected[i].tokens).in1 - output.tokens.begin();
    first = fmt::format("request {} from output {} on: {} ({}) instead of {} ({})", i, at, output.tokens,
                        to_string(output.reason), expected[i].tokens, to_string(expected[i].reason));
  }
  return count == 0 ? "" : fmt::format("{} of {} outputs differ; {}", count, expected.size(), first);
}

}  // namespace lantern
