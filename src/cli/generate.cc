#include <fmt/format.h>

#include <optional>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/json_writer.h"
#include "cli/model_access.h"
#include "cli/text_stream.h"
#include "engine/bad_words.h"

namespace lantern::cli {
namespace {

struct Output {
  std::string text;
  std::string matched_stop;
  GenerateResult result;
};

// Streams to stdout while `streaming`; shows progress of the prompt, and of the answer where nobody sees it grow.
Result<Output> generate_text(LoadedModel& model, const GenerateRequest& request, std::vector<std::string> stop,
                             bool streaming, bool quiet) {
  Output output;
  TextStream stream(model.tokenizer, std::move(stop), /*skip_special=*/true);
  const auto emit = [&](const std::string& text) {
    output.text += text;
    if (streaming && !text.empty()) write_text(text);
  };
  std::optional<Progress> progress;
  progress.emplace("prompt", static_cast<int64_t>(request.prompt.size()), quiet);
  int64_t generated = 0;
  const auto on_token = [&](int32_t token) {
    if (generated++ == 0) {
      progress.reset();
      if (!streaming) progress.emplace("answer", request.max_tokens, quiet);
    }
    emit(stream.add(token));
    if (progress) progress->update(generated);
    if (stream.stopped()) return Session::Continue::kStop;
    return interrupted() || output_lost() ? Session::Continue::kCancel : Session::Continue::kYes;
  };
  const auto on_prefill = [&](int64_t done) {
    progress->update(done);
    return !interrupted();
  };
  ASSIGN_OR_RETURN(output.result, model.session->generate(request, on_token, on_prefill));
  emit(stream.finish());
  output.matched_stop = stream.matched();
  return output;
}

// --max-tokens, or what the context has room for. Errors: --max-tokens or --min-tokens is more than that.
Result<int32_t> most_tokens(const Values& values, size_t prompt_size, int32_t context) {
  const int64_t room = context - static_cast<int64_t>(prompt_size);
  if (room < 1) return 1;  // the session says that the prompt is too long
  for (const std::string_view name : {"max-tokens", "min-tokens"}) {
    if (!values.given(name) || values.integer(name) <= room) continue;
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--{} {} is more than the {} tokens that a context of {} has left after a prompt of {}; lower "
                    "it, or leave it out",
                    name, values.integer(name), room, context, prompt_size));
  }
  return static_cast<int32_t>(values.given("max-tokens") ? values.integer("max-tokens") : room);
}

std::string as_json(const std::string& model, const GenerateRequest& request, const Output& output,
                    const Session& session) {
  const GenerateResult& result = output.result;
  const auto generated = static_cast<int64_t>(result.tokens.size());
  JsonWriter json;
  json.begin_object()
      .field("model", model)
      .field("text", output.text)
      .key("tokens")
      .value(std::span<const int32_t>(result.tokens))
      .field("finish_reason", to_string(result.finish_reason));
  if (!output.matched_stop.empty()) json.field("stop", output.matched_stop);
  json.field("prompt_tokens", request.prompt.size())
      .field("completion_tokens", generated)
      .field("seed", request.sampling.seed)
      .field("prefill_seconds", result.prefill_seconds)
      .field("decode_seconds", result.decode_seconds);
  write_acceptance(json, session.draft_counts());
  write_graphs(json, session.graph_counts());
  return json.end_object().take();
}

}  // namespace

Status check_generate(const Values& values) {
  const int64_t min_tokens = values.integer("min-tokens");
  if (values.given("max-tokens") && min_tokens > values.integer("max-tokens")) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("--min-tokens is {}, above --max-tokens, which is {}",
                                                          min_tokens, values.integer("max-tokens")));
  }
  GenerateRequest request;
  RETURN_IF_ERROR(set_token_rules(values, request));
  return check_token_rules({.logit_bias = request.logit_bias, .stop_token_ids = request.stop_token_ids});
}

Result<int> run_generate(const Values& values) {
  ASSIGN_OR_RETURN(LoadedModel model, load_model(values, true, true));
  GenerateRequest request;
  ASSIGN_OR_RETURN(request.prompt, input_ids(values, model.tokenizer, "prompt", "prompt-file", "tokens"));
  ASSIGN_OR_RETURN(request.sampling, sampling_settings(values, model.name));
  ASSIGN_OR_RETURN(request.max_tokens, most_tokens(values, request.prompt.size(), model.session->max_model_len()));
  request.ignore_eos = values.is_on("ignore-eos");
  RETURN_IF_ERROR(set_token_rules(values, request));
  ASSIGN_OR_RETURN(request.bad_words,
                   encode_bad_words(model.tokenizer, values.list("bad-words"),
                                    {.name = "--bad-words", .parse_special = values.is_on("special-tokens")}));

  const bool json = values.is_on("json");
  ASSIGN_OR_RETURN(const Output output,
                   generate_text(model, request, values.list("stop"), !json, values.is_on("quiet")));
  if (json) {
    write_text(as_json(model.name, request, output, *model.session) + "\n");
  } else if (!output.text.ends_with('\n')) {
    write_text("\n");
  }
  if (!values.is_on("quiet")) {
    const GenerateResult& result = output.result;
    const auto prompt = static_cast<int64_t>(request.prompt.size());
    const auto generated = static_cast<int64_t>(result.tokens.size());
    const std::string seed = request.sampling.temperature > 0 ? fmt::format(", seed {}", request.sampling.seed) : "";
    print_notice(fmt::format("prompt {} tokens, {}; output {} tokens, {}; finished by {}{}", prompt,
                             rate_text(prompt, result.prefill_seconds), generated,
                             rate_text(generated - 1, result.decode_seconds), to_string(result.finish_reason), seed));
    if (const std::string drafts = acceptance_text(model.session->draft_counts()); !drafts.empty()) {
      print_notice(drafts);
    }
  }
  return interrupted() ? interrupt_exit_code() : static_cast<int>(kSuccess);
}

}  // namespace lantern::cli
