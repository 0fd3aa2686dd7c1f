#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/eval_task.h"
#include "cli/json_writer.h"
#include "cli/model_access.h"
#include "cli/text_stream.h"

namespace lantern::cli {
namespace {

struct Completion {
  std::string text;
  std::string answer;
  bool correct = false;
  size_t prompt_tokens = 0;
  size_t completion_tokens = 0;
  bool context_full = false;  // what cut it off before its max_tokens
};

Result<Completion> run_item(LoadedModel& model, const EvalItem& item) {
  GenerateRequest request;
  ASSIGN_OR_RETURN(request.prompt, model.tokenizer.encode(item.prompt));
  request.max_tokens = item.max_tokens;
  request.sampling.temperature = 0;
  // Answers may be made of special tokens, as tool calls are: they count as text.
  TextStream stream(model.tokenizer, item.stop, /*skip_special=*/false);
  Completion completion;
  const auto on_token = [&](int32_t token) {
    completion.text += stream.add(token);
    if (stream.stopped()) return Session::Continue::kStop;
    return interrupted() ? Session::Continue::kCancel : Session::Continue::kYes;
  };
  ASSIGN_OR_RETURN(const GenerateResult result,
                   model.session->generate(request, on_token, [](int64_t) { return !interrupted(); }));
  completion.text += stream.finish();
  ASSIGN_OR_RETURN(completion.answer, extract_answer(item, completion.text));
  completion.correct = completion.answer == strip(item.answer);
  completion.prompt_tokens = request.prompt.size();
  completion.completion_tokens = result.tokens.size();
  completion.context_full =
      result.finish_reason == FinishReason::kLength && result.tokens.size() < static_cast<size_t>(request.max_tokens);
  return completion;
}

std::string item_json(const EvalItem& item, const Completion& completion) {
  JsonWriter json;
  json.begin_object()
      .field("id", item.id)
      .field("correct", completion.correct)
      .field("answer", item.answer)
      .field("extracted", completion.answer)
      .field("completion", completion.text)
      .field("prompt_tokens", completion.prompt_tokens)
      .field("completion_tokens", completion.completion_tokens);
  return json.end_object().take();
}

}  // namespace

Result<int> run_eval(const Values& values) {
  const std::filesystem::path task = values.text("TASK.jsonl");
  ASSIGN_OR_RETURN(std::vector<EvalItem> items, load_eval_task(task));
  if (values.given("limit")) items.resize(std::min(items.size(), static_cast<size_t>(values.integer("limit"))));
  ASSIGN_OR_RETURN(LoadedModel model, load_model(values, true, true));
  std::ofstream output;
  if (values.given("output")) {
    output.open(values.text("output"));
    if (!output) {
      return Error(ErrorCode::kIo,
                   fmt::format("{}: cannot be written: {}", values.text("output"), std::strerror(errno)));
    }
  }

  size_t done = 0;
  size_t correct = 0;
  size_t generated = 0;
  size_t prompted = 0;
  size_t cut = 0;
  const auto start = std::chrono::steady_clock::now();
  {
    Progress progress(task.stem().string(), static_cast<int64_t>(items.size()), values.is_on("quiet"));
    for (const EvalItem& item : items) {
      Result<Completion> completion = run_item(model, item);
      if (!completion.ok()) return std::move(completion).error().within(fmt::format("item {}", item.id));
      if (interrupted()) break;  // the item is not whole
      ++done;
      correct += completion->correct ? 1 : 0;
      generated += completion->completion_tokens;
      prompted += completion->prompt_tokens;
      cut += completion->context_full ? 1 : 0;
      if (output.is_open() && !(output << item_json(item, *completion) << std::endl)) {
        return Error(ErrorCode::kIo,
                     fmt::format("{}: cannot be written: {}", values.text("output"), std::strerror(errno)));
      }
      progress.update(static_cast<int64_t>(done));
    }
  }
  if (cut > 0) {
    print_notice(
        fmt::format("{} answers ended where the context of {} tokens was full, before the max_tokens of their "
                    "items; raise --max-model-len",
                    cut, model.session->max_model_len()));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double exact_match = done > 0 ? static_cast<double>(correct) / static_cast<double>(done) : 0;
  if (values.is_on("json")) {
    JsonWriter json;
    json.begin_object()
        .field("task", task.stem().string())
        .field("items", done)
        .field("correct", correct)
        .field("exact_match", exact_match)
        .field("seconds", seconds)
        .field("prompt_tokens", prompted)
        .field("completion_tokens", generated)
        .field("model", model.name)
        .field("kv_cache_dtype", values.text("kv-cache-dtype"))
        .field("indexer", values.text("indexer"))
        .field("draft_tokens", values.integer("draft-tokens"))
        .field("device", model.session->device().description());
    write_acceptance(json, model.session->draft_counts());
    write_graphs(json, model.session->graph_counts());
    write_text(json.end_object().take() + "\n");
  } else {
    write_text(fmt::format("{}: {} of {} correct ({:.1f} %), {:.1f} s\n", task.stem().string(), correct, done,
                           100 * exact_match, seconds));
    const std::string drafts = acceptance_text(model.session->draft_counts());
    if (!drafts.empty()) write_text(drafts + "\n");
  }
  return interrupted() ? interrupt_exit_code() : static_cast<int>(kSuccess);
}

}  // namespace lantern::cli
