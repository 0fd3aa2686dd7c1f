#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/json_writer.h"
#include "cli/model_access.h"
#include "cli/token_text.h"

namespace lantern::cli {
namespace {

std::string as_json(const LoadedModel& model, const std::vector<int32_t>& tokens, const std::vector<TokenScore>& scores,
                    double sum, int32_t top_k) {
  JsonWriter json;
  json.begin_object().field("model", model.name).key("tokens").value(std::span<const int32_t>(tokens));
  json.key("logprobs").begin_array().null();
  for (const TokenScore& score : scores) json.value(score.logprob);
  json.end_array();
  if (top_k > 0) {
    json.key("top_logprobs").begin_array().null();
    for (const TokenScore& score : scores) {
      json.begin_array();
      for (size_t k = 0; k < score.top_tokens.size(); ++k) {
        json.begin_object()
            .field("token", score.top_tokens[k])
            .field("text", model.tokenizer.token_bytes(score.top_tokens[k]))
            .field("logprob", score.top_logprobs[k])
            .end_object();
      }
      json.end_array();
    }
    json.end_array();
  }
  json.field("sum", sum).field("perplexity", std::exp(-sum / static_cast<double>(scores.size())));
  return json.end_object().take();
}

}  // namespace

Result<int> run_score(const Values& values) {
  ASSIGN_OR_RETURN(LoadedModel model, load_model(values, true, false));
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                   input_ids(values, model.tokenizer, "text", "text-file", "tokens"));
  const auto top_k = static_cast<int32_t>(values.integer("top-logprobs"));
  std::optional<Progress> progress;
  // The last token predicts nothing.
  progress.emplace("score", static_cast<int64_t>(tokens.size()) - 1, values.is_on("quiet"));
  ASSIGN_OR_RETURN(const std::vector<TokenScore> scores, model.session->score(tokens, top_k, [&](int64_t done) {
    progress->update(done);
    return !interrupted();
  }));
  progress.reset();
  if (interrupted()) return interrupt_exit_code();
  double sum = 0;
  for (const TokenScore& score : scores) sum += static_cast<double>(score.logprob);
  if (values.is_on("json")) {
    write_text(as_json(model, tokens, scores, sum, top_k) + "\n");
    return kSuccess;
  }
  for (size_t i = 0; i < scores.size(); ++i) {
    std::string line = fmt::format("{:6} {:10.5f}  {}", tokens[i + 1], static_cast<double>(scores[i].logprob),
                                   token_text(model.tokenizer.token_bytes(tokens[i + 1])));
    for (size_t k = 0; k < scores[i].top_tokens.size(); ++k) {
      line += fmt::format("{}{} {:.4f}", k == 0 ? "   likeliest: " : ", ",
                          token_text(model.tokenizer.token_bytes(scores[i].top_tokens[k])),
                          static_cast<double>(scores[i].top_logprobs[k]));
    }
    write_text(line + "\n");
  }
  write_text(fmt::format("sum {:.5f}, perplexity {:.4f}\n", sum, std::exp(-sum / static_cast<double>(scores.size()))));
  return kSuccess;
}

}  // namespace lantern::cli
