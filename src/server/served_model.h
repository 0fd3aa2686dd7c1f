// A model with all that answering requests of the OpenAI API takes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/load_engine.h"
#include "server/openai_request.h"
#include "text/chat.h"

namespace lantern {

struct ServedModelOptions {
  EngineOptions engine;
  std::vector<std::string> names;    // beside the folder's; the first is told to clients
  std::string chat_format = "auto";  // or a name that parse_chat_format() knows
  // Where a request says nothing (generation_config.json).
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  bool streams = false;
};

struct ServedModel {
  ServedModel() = default;
  ServedModel(const ServedModel&) = delete;  // `api` points into it
  ServedModel& operator=(const ServedModel&) = delete;

  LoadedEngine loaded;
  std::optional<ChatEncoder> chat;
  std::unique_ptr<GrammarCompiler> grammars;
  OpenAiModel api;
  std::string kv_cache_dtype;  // as it was asked for
};

// Errors: those of load_engine, and a chat format that does not go with the tokenizer.
Result<std::unique_ptr<ServedModel>> load_served_model(const ServedModelOptions& options);

}  // namespace lantern
