#include "server/served_model.h"

namespace lantern {

namespace fs = std::filesystem;

Result<std::unique_ptr<ServedModel>> load_served_model(const ServedModelOptions& options) {
  auto served = std::make_unique<ServedModel>();
  ASSIGN_OR_RETURN(served->loaded, load_engine(options.engine));
  const Tokenizer& tokenizer = *served->loaded.tokenizer;
  OpenAiModel& api = served->api;
  const bool detects = options.chat_format == "auto";
  const Result<ChatFormat> format = detects ? detect_chat_format(served->loaded.config->model_type, tokenizer)
                                            : parse_chat_format(options.chat_format);
  if (!format.ok() && !detects) return format.error();
  Result<ChatEncoder> chat =
      format.ok() ? ChatEncoder::create(*format, tokenizer) : Result<ChatEncoder>(format.error());
  if (chat.ok()) {
    served->chat.emplace(std::move(*chat));
    api.chat = &*served->chat;
  } else {
    api.no_chat = chat.error().message();
  }
  api.names = options.names;
  const fs::path whole = fs::absolute(options.engine.model_dir).lexically_normal();
  api.names.push_back((whole.has_filename() ? whole : whole.parent_path()).filename().string());
  api.names.push_back(options.engine.model_dir.string());
  api.tokenizer = &tokenizer;
  api.max_model_len = served->loaded.engine->settings().limits.max_model_len;
  api.max_logprobs = options.engine.max_logprobs;
  api.sparse_attention = served->loaded.config->has_indexer();
  api.max_traced_rows = served->loaded.engine->settings().max_traced_rows;
  api.vocab_size = served->loaded.config->vocab_size;
  std::vector<int32_t> ends = served->loaded.config->eos_token_ids;
  if (served->chat) ends.insert(ends.end(), served->chat->stop_ids().begin(), served->chat->stop_ids().end());
  served->grammars = std::make_unique<GrammarCompiler>(tokenizer, api.vocab_size, ends);
  api.grammars = served->grammars.get();
  served->kv_cache_dtype = options.engine.kv_cache_dtype;
  api.streams = options.streams;
  api.temperature = options.temperature;
  api.top_p = options.top_p;
  api.top_k = options.top_k;
  return served;
}

}  // namespace lantern
