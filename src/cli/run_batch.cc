#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>

#include "base/json_text.h"
#include "base/unix_time.h"
#include "cli/batch_input.h"
#include "cli/batch_results.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/dispatch.h"
#include "cli/engine_access.h"
#include "cli/model_access.h"
#include "server/openai_response.h"

namespace lantern::cli {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr auto kLookForInterrupt = std::chrono::milliseconds(100);
constexpr int32_t kMaxQueued = 1 << 17;  // of one request: 1024 prompts of 128 choices

// One request of the batch, while it runs.
struct Job {
  BatchLine line;
  OpenAiCollector collector;
  std::vector<RequestHandle> handles = {};

  Job(BatchLine&& of, const OpenAiRequest& request, const Tokenizer& tokenizer)
      : line(std::move(of)), collector(request, tokenizer) {}
};

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string result_line(const BatchLine& line, json::value response, json::value error) {
  return json_text(json::object{{"id", line.id},
                                {"custom_id", line.custom_id.empty() ? json::value() : json::value(line.custom_id)},
                                {"response", std::move(response)},
                                {"error", std::move(error)}});
}

json::value response_of(int32_t status, const std::string& body) {
  return json::object{{"status_code", status}, {"request_id", "req_" + random_name()}, {"body", json::parse(body)}};
}

class BatchRun {
 public:
  BatchRun(ServedModel& model, BatchInput& input, BatchResults& results, int32_t most_choices, uint64_t first_seed,
           bool quiet)
      : model_(model),
        input_(input),
        results_(results),
        most_choices_(most_choices),
        first_seed_(first_seed),
        progress_("requests", input.num_lines(), quiet) {}

  struct Totals {
    int64_t answered = 0;
    int64_t errors = 0;
    int64_t done_before = 0;
    int64_t answered_before = 0;  // of those, the ones that are no errors
    int64_t completion_tokens = 0;
  };

  // Until everything is done, or the user leaves: what runs then is dropped.
  Result<Totals> run() {
    bool more = true;
    while (!interrupted()) {
      while (more && !interrupted() && choices_in_flight_ < most_choices_) {
        ASSIGN_OR_RETURN(more, start_next());
      }
      progress_.update(totals_.answered + totals_.errors + totals_.done_before);
      if (!more && jobs_.empty()) break;
      std::unique_lock lock(mutex_);
      something_done_.wait_for(lock, kLookForInterrupt, [&] { return !done_.empty(); });
      const std::vector<Job*> done = std::exchange(done_, {});
      lock.unlock();
      for (Job* job : done) RETURN_IF_ERROR(finish(*job));
    }
    RETURN_IF_ERROR(results_.sync());
    return totals_;
  }

 private:
  // False at the end of the input.
  Result<bool> start_next() {
    std::optional<BatchLine> line = input_.next();
    if (!line) return false;
    if (results_.has_id(line->id) || (!line->custom_id.empty() && results_.has_custom_id(line->custom_id))) {
      ++totals_.done_before;
      totals_.answered_before += results_.has_answer(line->id, line->custom_id) ? 1 : 0;
      return true;
    }
    if (!line->fault.empty()) {
      ++totals_.errors;
      RETURN_IF_ERROR(results_.add(
          result_line(*line, nullptr, json::object{{"code", line->fault_code}, {"message", line->fault}})));
      return true;
    }
    std::variant<OpenAiRequest, OpenAiError> read =
        read_openai_request(line->endpoint, line->body, model_.api, first_seed_ + static_cast<uint64_t>(line->number));
    if (const OpenAiError* error = std::get_if<OpenAiError>(&read)) {
      RETURN_IF_ERROR(add_error(*line, *error));
      return true;
    }
    RETURN_IF_ERROR(start(std::move(*line), std::get<OpenAiRequest>(std::move(read))));
    return true;
  }

  Status start(BatchLine&& line, OpenAiRequest&& request) {
    auto made = std::make_unique<Job>(std::move(line), request, *model_.api.tokenizer);
    Job* const job = made.get();
    std::vector<RequestHandle> handles;
    for (size_t p = 0; p < request.prompts.size(); ++p) {
      choices_in_flight_ += request.prompts[p].request.n;
      job_choices_[job] += request.prompts[p].request.n;
      Result<RequestHandle> handle =
          model_.loaded.engine->submit(std::move(request.prompts[p]), [this, job, p](Output&& output) {
            const std::lock_guard lock(mutex_);
            job->collector.add(p, output);
            if (!job->collector.complete()) return;
            done_.push_back(job);
            something_done_.notify_one();
          });
      if (!handle.ok()) {
        if (model_.loaded.engine->lost()) return handle.error();
        for (const RequestHandle& earlier : handles) earlier.cancel();
        choices_in_flight_ -= job_choices_[job];
        job_choices_.erase(job);
        const Status added = add_error(job->line, openai_error_of(handle.error()));
        given_up_.push_back(std::move(made));  // outputs of the earlier prompts may still come
        return added;
      }
      handles.push_back(std::move(*handle));
    }
    jobs_.emplace(job, std::move(made));
    return {};
  }

  Status finish(Job& job) {
    if (!jobs_.contains(&job)) return {};  // given up
    std::variant<std::string, OpenAiError> body =
        job.collector.body(random_name(), unix_seconds(), model_.api.names[0]);
    if (const OpenAiError* error = std::get_if<OpenAiError>(&body)) {
      // Not the request's fault: it will run again.
      if (const std::optional<Error> lost = model_.loaded.engine->lost()) return *lost;
      RETURN_IF_ERROR(add_error(job.line, *error));
    } else {
      ++totals_.answered;
      totals_.completion_tokens += job.collector.completion_tokens();
      RETURN_IF_ERROR(results_.add(result_line(job.line, response_of(200, std::get<std::string>(body)), nullptr)));
    }
    choices_in_flight_ -= job_choices_[&job];
    job_choices_.erase(&job);
    jobs_.erase(&job);
    return {};
  }

  Status add_error(const BatchLine& line, const OpenAiError& error) {
    ++totals_.errors;
    return results_.add(result_line(line, response_of(error.status, openai_error_body(error)), nullptr));
  }

  ServedModel& model_;
  BatchInput& input_;
  BatchResults& results_;
  int64_t most_choices_;
  uint64_t first_seed_;
  Progress progress_;
  Totals totals_;
  int64_t choices_in_flight_ = 0;
  std::map<const Job*, int64_t> job_choices_;
  std::map<const Job*, std::unique_ptr<Job>> jobs_;
  std::vector<std::unique_ptr<Job>> given_up_;

  std::mutex mutex_;  // of done_, and of the collectors of all jobs that are not done
  std::condition_variable something_done_;
  std::vector<Job*> done_;
};

Status check_files(const std::string& input, const std::string& output) {
  std::error_code ignored;
  if (input != "-" && fs::equivalent(input, output, ignored)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: is both --input and --output; write the results to another file", input));
  }
  return {};
}

}  // namespace

Status check_run_batch(const Values& values) {
  if (values.given("input") && values.given("output")) return {};
  return Error(ErrorCode::kInvalidArgument, "lantern run-batch needs --input FILE and --output FILE");
}

Result<int> run_run_batch(const Values& values) {
  const std::string& input_path = values.text("input");
  const std::string& output_path = values.text("output");
  RETURN_IF_ERROR(check_files(input_path, output_path));
  ASSIGN_OR_RETURN(BatchInput input, BatchInput::open(input_path));
  ASSIGN_OR_RETURN(BatchResults results, BatchResults::open(output_path));
  const size_t before = results.size();
  if (input.num_lines() == 0) {
    if (!values.is_on("quiet")) {
      print_notice(fmt::format("{} has no requests: no model was loaded, and {} has {} results, as before", input_path,
                               output_path, before));
    }
    return static_cast<int>(kSuccess);
  }
  const uint64_t first_seed =
      values.given("seed") ? static_cast<uint64_t>(values.integer("seed")) : std::random_device{}();

  const auto start = std::chrono::steady_clock::now();
  BatchRun::Totals totals;
  {
    // Destroyed last to first: the engine, whose outputs go to the run, before the run.
    ASSIGN_OR_RETURN(ServedModelOptions options, served_model_options(values));
    options.engine.max_queued = kMaxQueued;
    ASSIGN_OR_RETURN(const std::unique_ptr<ServedModel> model, load_interruptibly(options));
    RETURN_IF_ERROR(apply_dispatch_settings(values, *model->loaded.model));
    BatchRun batch(*model, input, results, 2 * static_cast<int32_t>(values.integer("max-num-seqs")), first_seed,
                   values.is_on("quiet"));
    Result<BatchRun::Totals> ran = batch.run();
    model->loaded.engine.reset();
    if (!ran.ok()) return std::move(ran).error();
    totals = *ran;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!values.is_on("quiet")) {
    print_notice(fmt::format("{}: {} answered, {} errors, {} of {} done before; {} tokens, {}", output_path,
                             totals.answered, totals.errors, totals.done_before, before, totals.completion_tokens,
                             rate_text(totals.completion_tokens, seconds)));
    if (interrupted()) print_notice("interrupted; the same command goes on where this one stopped");
  }
  if (interrupted()) return interrupt_exit_code();
  if (totals.answered + totals.answered_before == 0) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: none of the {} requests of {} has an answer; the results "
                             "say why",
                             output_path, input.num_lines(), input_path));
  }
  return static_cast<int>(kSuccess);
}

}  // namespace lantern::cli
