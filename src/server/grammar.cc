#include "server/grammar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "server/grammar_backend.h"

namespace lantern {
namespace {

using Compiled = Result<std::shared_ptr<const Grammar>>;

// A form on its way; who asked for it may have left.
struct Job {
  OutputForm form;
  bool started = false;
  std::optional<Compiled> result = {};
};

GrammarVocabulary vocabulary_of(const Tokenizer& tokenizer, int32_t vocab_size, const std::vector<int32_t>& end_ids) {
  GrammarVocabulary vocabulary{.tokens = {}, .added = {}, .size = vocab_size, .end_ids = {}};
  const auto count = std::min<int64_t>(tokenizer.vocab_size(), vocab_size);
  for (TokenId id = 0; id < count; ++id) {
    vocabulary.tokens.emplace_back(tokenizer.is_special(id) ? std::string_view() : tokenizer.token_bytes(id));
    vocabulary.added.push_back(tokenizer.is_added(id));
  }
  for (const int32_t id : end_ids) {
    const auto& seen = vocabulary.end_ids;
    if (id >= 0 && id < count && std::ranges::find(seen, id) == seen.end()) vocabulary.end_ids.push_back(id);
  }
  return vocabulary;
}

// Some forms are well-formed and have no text: their requests would fail at the first token.
Compiled with_some_text(Compiled grammar, int32_t vocab_size) {
  if (!grammar.ok()) return grammar;
  ASSIGN_OR_RETURN(const std::unique_ptr<GrammarMatcher> matcher, (*grammar)->start());
  std::vector<uint32_t> mask((static_cast<size_t>(vocab_size) + 31) / 32);
  RETURN_IF_ERROR(matcher->fill(mask));
  if (const int32_t used = vocab_size % 32; used != 0) mask.back() &= (1u << used) - 1;  // the others mean nothing
  if (std::ranges::any_of(mask, [](uint32_t word) { return word != 0; })) return grammar;
  return Error(ErrorCode::kInvalidArgument, "no text has the form of structured output that is asked for");
}

}  // namespace

struct GrammarCompiler::Shared {
  std::unique_ptr<GrammarBackend> backend;
  int32_t vocab_size = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> waiting;
  bool busy = false;
  bool stop = false;
  std::thread thread;  // runs from the first form on

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stop || !waiting.empty(); });
      if (stop) return;
      const std::shared_ptr<Job> job = waiting.front();
      waiting.pop_front();
      job->started = true;
      busy = true;
      lock.unlock();
      Compiled result = with_some_text(backend->compile(job->form), vocab_size);
      lock.lock();
      busy = false;
      job->result = std::move(result);
      changed.notify_all();
    }
  }
};

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, int32_t vocab_size, const std::vector<int32_t>& end_ids,
                                 GrammarLimits limits)
    : limits_(limits), shared_(std::make_shared<Shared>()) {
  GrammarVocabulary vocabulary = vocabulary_of(tokenizer, vocab_size, end_ids);
  end_ids_ = vocabulary.end_ids;
  shared_->vocab_size = vocab_size;
  shared_->backend = make_grammar_backend(std::move(vocabulary), limits_);
}

// A form that is being compiled cannot be stopped. It is waited for once more; then its thread is left to end by
// itself. Static objects that it reads, the library's among them, must be there until then: a process that has left
// such a thread ends without destroying any.
GrammarCompiler::~GrammarCompiler() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  const bool busy = !shared_->changed.wait_for(lock, limits_.compile_time, [&] { return !shared_->busy; });
  lock.unlock();
  if (!shared_->thread.joinable()) return;
  if (busy) {
    const auto end_at_once = [](int status, void*) {
      std::cout.flush();
      std::fflush(nullptr);
      _exit(status);
    };
    CHECK(on_exit(end_at_once, nullptr) == 0, "no memory");
    shared_->thread.detach();
  } else {
    shared_->thread.join();
  }
}

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const OutputForm& form) {
  if (have_grammars()) RETURN_IF_ERROR(check_form(form, limits_));
  const auto job = std::make_shared<Job>(Job{.form = form});
  std::unique_lock lock(shared_->mutex);
  if (shared_->waiting.size() >= limits_.max_waiting) {
    return Error(ErrorCode::kOutOfMemory,
                 fmt::format("{} forms of structured output are waiting to be compiled; try again later",
                             shared_->waiting.size()));
  }
  shared_->waiting.push_back(job);
  if (!shared_->thread.joinable()) shared_->thread = std::thread([shared = shared_] { shared->run(); });
  shared_->changed.notify_all();
  if (shared_->changed.wait_for(lock, limits_.compile_time, [&] { return job->result.has_value(); }))
    return *std::move(job->result);
  const double seconds = std::chrono::duration<double>(limits_.compile_time).count();
  if (job->started) {
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("the form of structured output takes more than {:g} s to compile; make it simpler", seconds));
  }
  std::erase(shared_->waiting, job);
  return Error(ErrorCode::kOutOfMemory,
               fmt::format("another form of structured output has been compiled for {:g} s; try again later", seconds));
}

}  // namespace lantern
