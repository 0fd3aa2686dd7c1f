#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/chat_partner.h"
#include "cli/console.h"
#include "cli/model_access.h"
#include "text/chat.h"
#include "text/detokenizer.h"

namespace lantern::cli {
namespace {

class LocalPartner final : public ChatPartner {
 public:
  // `encoder` is made with the model's tokenizer.
  LocalPartner(std::unique_ptr<LoadedModel> model, ChatEncoder encoder, SamplingSettings sampling, int64_t max_tokens,
               bool quiet)
      : model_(std::move(model)),
        encoder_(std::move(encoder)),
        sampling_(sampling),
        max_tokens_(max_tokens),
        quiet_(quiet) {}

  std::string name() const override {
    return fmt::format("{} ({} format)", model_->name, to_string(encoder_.format()));
  }

  Result<ChatReply> answer(const Conversation& conversation,
                           const std::function<void(const OutputDelta&)>& show) override {
    const ChatOptions options{.thinking = conversation.thinking, .add_generation_prompt = true, .tools = {}};
    ASSIGN_OR_RETURN(const std::vector<ChatPiece> pieces,
                     render_chat(encoder_.format(), conversation.messages, options));
    GenerateRequest request;
    ASSIGN_OR_RETURN(request.prompt, encoder_.encode(conversation.messages, options));
    request.sampling = sampling_;
    const int64_t room = model_->session->max_model_len() - static_cast<int64_t>(request.prompt.size());
    request.max_tokens = static_cast<int32_t>(std::clamp<int64_t>(room, 1, max_tokens_));

    Detokenizer detokenizer(model_->tokenizer, /*skip_special=*/false);
    OutputParser parser(encoder_.format(), {.starts_thinking = encoder_.starts_thinking(pieces)});
    ChatReply reply;
    const auto take = [&](const OutputDelta& delta) {
      reply.said.add(delta);
      show(delta);
    };
    const std::vector<TokenId>& stops = encoder_.stop_ids();
    std::optional<Progress> progress;
    progress.emplace("prompt", static_cast<int64_t>(request.prompt.size()), quiet_);
    const auto on_token = [&](int32_t token) {
      progress.reset();
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) return Session::Continue::kStop;
      take(parser.push(detokenizer.add(token)));
      return interrupted() || output_lost() ? Session::Continue::kCancel : Session::Continue::kYes;
    };
    const auto on_prefill = [&](int64_t done) {
      progress->update(done);
      return !interrupted();
    };
    ASSIGN_OR_RETURN(const GenerateResult result, model_->session->generate(request, on_token, on_prefill));
    progress.reset();
    const bool cancelled = result.finish_reason == FinishReason::kCancelled;
    if (cancelled && result.tokens.empty()) {
      reply.end = ChatReply::End::kNeverBegan;
      return reply;
    }
    take(parser.push(detokenizer.flush()));
    take(parser.finish());
    if (cancelled) reply.end = ChatReply::End::kStopped;
    if (result.finish_reason == FinishReason::kLength)
      reply.end = room < max_tokens_ ? ChatReply::End::kFull : ChatReply::End::kLength;
    reply.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    reply.output_tokens = static_cast<int64_t>(result.tokens.size());
    reply.prefill_seconds = result.prefill_seconds;
    reply.decode_seconds = result.decode_seconds;
    return reply;
  }

 private:
  std::unique_ptr<LoadedModel> model_;
  ChatEncoder encoder_;
  SamplingSettings sampling_;
  int64_t max_tokens_;
  bool quiet_;
};

}  // namespace

Result<std::unique_ptr<ChatPartner>> local_partner(const Values& values) {
  ASSIGN_OR_RETURN(LoadedModel loaded, load_model(values, false, true));
  auto model = std::make_unique<LoadedModel>(std::move(loaded));
  const std::string& name = values.text("chat-format");
  ASSIGN_OR_RETURN(const ChatFormat format,
                   name == "auto" ? detect_chat_format(model->session->config().model_type, model->tokenizer)
                                  : parse_chat_format(name));
  ASSIGN_OR_RETURN(ChatEncoder encoder, ChatEncoder::create(format, model->tokenizer));
  ASSIGN_OR_RETURN(const SamplingSettings sampling, sampling_settings(values, model->name));
  const int64_t context = model->session->max_model_len();
  const int64_t max_tokens = values.given("max-tokens") ? values.integer("max-tokens") : context;
  if (max_tokens > context) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--max-tokens {} is more than the context of {} tokens holds; lower it, or leave it out",
                             max_tokens, context));
  }
  return std::unique_ptr<ChatPartner>(std::make_unique<LocalPartner>(std::move(model), std::move(encoder), sampling,
                                                                     max_tokens, values.is_on("quiet")));
}

}  // namespace lantern::cli
