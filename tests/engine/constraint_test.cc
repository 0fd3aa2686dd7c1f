// Constrained requests on the shipped model: their text keeps to what their automaton allows, whatever else runs and
// whatever happens to them, and the others' text is what it is without them.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "engine/load_engine.h"
#include "engine/token_constraint.h"
#include "engine_run.h"

namespace lantern {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(tiny_model()).value();
  return tokenizer;
}

// A language by its prefixes.
struct Language {
  std::function<bool(std::string_view)> begins;  // some text of the language begins so
  std::function<bool(std::string_view)> holds;   // the language has the text
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Language digits() {
  const auto all = [](std::string_view text) { return std::ranges::all_of(text, is_digit); };
  return {all, [all](std::string_view text) { return !text.empty() && all(text); }};
}
Language choice_of(const std::vector<std::string>& list) {
  return {[list](std::string_view text) {
            return std::ranges::any_of(list, [&](const std::string& item) { return item.starts_with(text); });
          },
          [list](std::string_view text) { return std::ranges::find(list, text) != list.end(); }};
}
// {"name": "letters", "count": digits} with up to 12 letters and 4 digits.
Language json_shape() {
  const auto parse = [](std::string_view text) -> int {  // -1: none, 0: a beginning, 1: whole
    size_t at = 0;
    const auto literal = [&](std::string_view word) {
      const std::string_view rest = text.substr(at);
      if (rest.size() < word.size()) return word.starts_with(rest) ? 0 : -1;
      if (!rest.starts_with(word)) return -1;
      at += word.size();
      return 1;
    };
    const auto run = [&](size_t most, auto&& kind) {
      size_t count = 0;
      while (at < text.size() && count < most && kind(text[at])) ++at, ++count;
      return at == text.size() ? 0 : count > 0 ? 1 : -1;
    };
    if (const int state = literal(R"({"name": ")"); state != 1) return state;
    if (const int state = run(12, [](char c) { return c >= 'a' && c <= 'z'; }); state != 1) return state;
    if (const int state = literal(R"(", "count": )"); state != 1) return state;
    if (const int state = run(4, is_digit); state != 1) return state;
    if (const int state = literal("}"); state != 1) return state;
    return at == text.size() ? 1 : -1;
  };
  return {[parse](std::string_view text) { return parse(text) >= 0; },
          [parse](std::string_view text) { return parse(text) == 1; }};
}

// Allows the tokens whose bytes go on within the language, and the end where it is reached.
class LanguageConstraint final : public TokenConstraint {
 public:
  explicit LanguageConstraint(Language language) : language_(std::move(language)) {
    end_ = load_model_config(tiny_model()).value().eos_token_ids.at(0);
  }
  Status allow(int32_t choice, std::span<const int32_t> output, std::span<uint32_t> mask) override {
    std::vector<int32_t>& seen = seen_[choice];
    EXPECT_TRUE(std::ranges::equal(seen, output.first(std::min(seen.size(), output.size()))) &&
                output.size() >= seen.size())
        << "the output only grows";
    seen.assign(output.begin(), output.end());
    ++calls_;
    std::string text;
    for (const int32_t token : output) text += tokenizer().token_bytes(token);
    for (int32_t token = 0; token < tokenizer().vocab_size(); ++token) {
      const std::string_view bytes = tokenizer().token_bytes(token);
      const bool fits = !tokenizer().is_added(token) && !bytes.empty() && language_.begins(text + std::string(bytes));
      if (fits || (token == end_ && language_.holds(text))) mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    }
    return {};
  }
  bool holds(const RunOutput& output) const {
    std::string text;
    for (const int32_t token : output.tokens) text += token == end_ ? "" : tokenizer().token_bytes(token);
    return output.reason == EndReason::kStop ? language_.holds(text) : language_.begins(text);
  }
  int64_t calls() const { return calls_; }

 private:
  Language language_;
  int32_t end_ = -1;
  std::map<int32_t, std::vector<int32_t>> seen_;
  int64_t calls_ = 0;
};

class FailingConstraint final : public TokenConstraint {
 public:
  FailingConstraint(size_t after, std::function<Status()> how) : after_(after), how_(std::move(how)) {}
  Status allow(int32_t, std::span<const int32_t> output, std::span<uint32_t> mask) override {
    if (output.size() >= after_) return how_();
    std::ranges::fill(mask, ~0u);
    return {};
  }

 private:
  size_t after_;
  std::function<Status()> how_;
};

std::vector<Language> languages() {
  return {digits(), choice_of({"yes", "no", "maybe not", "maybe", "nothing"}), json_shape()};
}

// Every third request is constrained, in turn by each language.
struct Mixed {
  std::vector<Request> requests;
  std::vector<std::shared_ptr<LanguageConstraint>> constraints;  // null: none
};
Mixed mixed_with_constraints(int32_t count, int32_t max_tokens, int32_t longest_prompt) {
  Mixed mixed;
  mixed.requests = mixed_requests(count, max_tokens, longest_prompt);
  mixed.constraints.resize(mixed.requests.size());
  const std::vector<Language> all = languages();
  for (size_t i = 0; i < mixed.requests.size(); i += 3) {
    Request& request = mixed.requests[i];
    mixed.constraints[i] = std::make_shared<LanguageConstraint>(all[i / 3 % all.size()]);
    request.constraint = mixed.constraints[i];
    request.bad_words.clear();
    request.logit_bias.clear();
    request.min_tokens = 0;
    request.max_tokens = 40;
  }
  return mixed;
}

void expect_held(const EngineRun& run, const Mixed& mixed, const RunOptions& options, const std::string& what) {
  std::vector<Request> free;
  for (size_t i = 0; i < mixed.requests.size(); ++i) {
    if (mixed.constraints[i] == nullptr) free.push_back(mixed.requests[i]);
  }
  const std::vector<RunOutput> alone = outputs_alone(options, free);
  size_t next = 0;
  for (size_t i = 0; i < mixed.requests.size(); ++i) {
    const RunOutput& output = run.output(static_cast<int32_t>(i));
    if (mixed.constraints[i] == nullptr) {
      EXPECT_EQ(output, alone[next++]) << what << ", request " << i;
    } else {
      EXPECT_TRUE(mixed.constraints[i]->holds(output))
          << what << ", request " << i << ": '" << tokenizer().decode(output.tokens) << "' ("
          << to_string(output.reason) << ")";
      EXPECT_TRUE(output.reason == EndReason::kStop || output.reason == EndReason::kLength) << what << ", " << i;
      EXPECT_GE(mixed.constraints[i]->calls(), static_cast<int64_t>(output.tokens.size()));
    }
  }
}

RunOptions absorbed(int32_t drafts, int32_t steps_in_flight) {
  RunOptions options;
  options.mla_form = MlaForm::kAbsorbed;
  options.settings.limits.max_query_len = 1 + drafts;
  options.settings.max_steps_in_flight = steps_in_flight;
  return options;
}

TEST(EngineConstraint, TextsKeepToTheirLanguageBesideOthers) {
  std::vector<std::vector<RunOutput>> constrained;
  for (const auto& [drafts, steps, chunk] : {std::tuple(0, 1, 0), std::tuple(2, 2, 0), std::tuple(3, 2, 7)}) {
    const RunOptions options = absorbed(drafts, steps);
    const Mixed mixed = mixed_with_constraints(18, 24, 150);
    const auto run = EngineRun::create(options);
    for (const Request& request : mixed.requests) run->submit(request);
    run->run(chunk);
    EXPECT_EQ(run->stats().drafts_accepted[0] > 0, drafts > 0) << "the others draft";
    expect_held(*run, mixed, options, fmt::format("{} drafts, {} steps in flight", drafts, steps));
    constrained.emplace_back();
    for (size_t i = 0; i < mixed.requests.size(); i += 3)
      constrained.back().push_back(run->output(static_cast<int32_t>(i)));
  }
  EXPECT_EQ(constrained[0], constrained[1]);
  EXPECT_EQ(constrained[0], constrained[2]);
}

// Greedy: of what is allowed the likeliest, which the log-probabilities tell.
TEST(EngineConstraint, TheLikeliestOfWhatIsAllowed) {
  const RunOptions options = absorbed(1, 2);
  Mixed mixed = mixed_with_constraints(9, 24, 100);
  const auto run = EngineRun::create(options);
  for (Request& request : mixed.requests) {
    request.logprobs = 20;
    if (request.constraint != nullptr) request.sampling = {.temperature = 0};
    run->submit(request);
  }
  run->run();
  int32_t compared = 0;
  int32_t not_first = 0;
  for (size_t i = 0; i < mixed.requests.size(); i += 3) {
    const std::vector<int32_t>& output = run->output(static_cast<int32_t>(i)).tokens;
    const Logprobs& rows = run->logprobs(static_cast<int32_t>(i));
    LanguageConstraint again(languages()[i / 3 % 3]);
    std::vector<uint32_t> mask(static_cast<size_t>(mask_words(2048)));
    for (size_t t = 0; t < output.size(); ++t) {
      ASSERT_TRUE(ask_constraint(again, 0, std::span(output).first(t), mask).ok());
      const auto top = std::span(rows.top_tokens).subspan(t * 20, 20);
      const auto first = std::ranges::find_if(
          top, [&](int32_t token) { return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1u) != 0; });
      if (first == top.end()) continue;
      EXPECT_EQ(output[t], *first) << "request " << i << ", token " << t;
      ++compared;
      not_first += first != top.begin() ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 10);
  EXPECT_GT(not_first, 3) << "or nothing was forbidden";
}

TEST(EngineConstraint, ChoicesAndPreemptions) {
  for (const bool prefix_caching : {false, true}) {
    RunOptions options = absorbed(2, 2);
    options.settings.limits.block_size = 16;
    options.settings.limits.max_blocks_per_request = 128;
    options.settings.limits.num_blocks = 36;
    options.settings.prefix_caching = prefix_caching;
    const Mixed mixed = mixed_with_constraints(18, 64, 120);
    const auto run = EngineRun::create(options);
    for (const Request& request : mixed.requests) run->submit(request);
    run->run();
    EXPECT_GT(run->stats().preemptions, 3);
    expect_held(*run, mixed, options, prefix_caching ? "preempted, prefix cache" : "preempted");
  }
  Request request = mixed_requests(2, 24, 100).back();
  request.n = 4;
  request.max_tokens = 40;
  request.sampling = {.temperature = 3.0f, .seed = 5};
  const auto constraint = std::make_shared<LanguageConstraint>(json_shape());
  request.constraint = constraint;
  const auto run = EngineRun::create(absorbed(2, 2));
  const int32_t number = run->submit(request);
  run->run();
  for (int32_t choice = 0; choice < 4; ++choice) {
    EXPECT_TRUE(constraint->holds(run->output(number, choice)))
        << tokenizer().decode(run->output(number, choice).tokens);
  }
  EXPECT_NE(run->output(number, 0).tokens, run->output(number, 1).tokens);
}

TEST(EngineConstraint, AHookThatFailsFailsItsRequestAlone) {
  EngineOptions options;
  options.model_dir = tiny_model();
  options.device = "cpu";
  options.threads = 2;
  options.max_num_seqs = 8;
  options.num_draft_tokens = 1;
  options.kv_cache_bytes = int64_t{64} << 20;
  const LoadedEngine loaded = load_engine(options).value();
  const auto request_of = [](std::shared_ptr<TokenConstraint> constraint) {
    EngineRequest request;
    request.request.prompt = {0, 50, 60, 70};
    request.request.max_tokens = 12;
    request.request.sampling.temperature = 0;
    request.request.constraint = std::move(constraint);
    request.ignore_eos = true;
    return request;
  };
  struct Read {
    std::vector<int32_t> tokens;
    Output last;
  };
  const auto read = [](TokenStream& stream) {
    Read all;
    while (stream.next(all.last)) all.tokens.insert(all.tokens.end(), all.last.tokens.begin(), all.last.tokens.end());
    return all;
  };
  TokenStream plain = loaded.engine->submit(request_of(nullptr)).value();
  const Read expected = read(plain);
  const std::string none = "no token may follow: the request's mask, logit_bias, bad_words and min_tokens forbid all";
  const std::vector<std::pair<std::function<Status()>, std::string>> ways = {
      {[]() -> Status { return Error(ErrorCode::kCorrupt, "the grammar has a hole"); },
       "what says which tokens are allowed has failed: the grammar has a hole"},
      {[]() -> Status { throw std::runtime_error("out of states"); },
       "what says which tokens are allowed has failed: out of states"},
      {[]() -> Status { throw 5; },  // NOLINT(hicpp-exception-baseclass): what a hook should not do
       "what says which tokens are allowed has failed: it threw something that is no exception"},
      {[] { return Status(); }, none}};
  for (const size_t after : {size_t{0}, size_t{1}, size_t{7}}) {
    std::vector<TokenStream> streams;
    for (const auto& [how, error] : ways) {
      streams.push_back(loaded.engine->submit(request_of(std::make_shared<FailingConstraint>(after, how))).value());
      streams.push_back(loaded.engine->submit(request_of(nullptr)).value());
    }
    for (size_t i = 0; i < ways.size(); ++i) {
      const Read failed = read(streams[2 * i]);
      EXPECT_EQ(failed.last.end_reason, EndReason::kFailed);
      EXPECT_EQ(failed.last.error, ways[i].second);
      EXPECT_EQ(failed.tokens,
                std::vector<int32_t>(expected.tokens.begin(), expected.tokens.begin() + static_cast<ptrdiff_t>(after)));
      EXPECT_EQ(read(streams[2 * i + 1]).tokens, expected.tokens);
    }
  }

  // Stop strings end a constrained text like any other.
  EngineRequest stopped = request_of(std::make_shared<LanguageConstraint>(digits()));
  stopped.request.max_tokens = 60;
  TokenStream whole = loaded.engine->submit(stopped).value();
  std::string text;
  Output output;
  while (whole.next(output)) text += output.text;
  ASSERT_GT(text.size(), 8u);
  stopped.request.constraint = std::make_shared<LanguageConstraint>(digits());
  stopped.stop = {text.substr(4, 3)};
  TokenStream cut = loaded.engine->submit(stopped).value();
  std::string cut_text;
  while (cut.next(output)) cut_text += output.text;
  EXPECT_EQ(cut_text, text.substr(0, text.find(stopped.stop[0])));
  EXPECT_EQ(output.end_reason, EndReason::kStop);
}

}  // namespace
}  // namespace lantern
