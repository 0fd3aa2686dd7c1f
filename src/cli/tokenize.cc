#include <fmt/format.h>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/json_writer.h"
#include "cli/model_access.h"
#include "cli/token_text.h"

namespace lantern::cli {

Result<int> run_tokenize(const Values& values) {
  ASSIGN_OR_RETURN(const std::filesystem::path dir, model_dir(values));
  ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(dir));
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, input_ids(values, tokenizer, "text", "text-file", "decode"));
  if (values.given("decode")) {
    for (const int32_t id : ids) {
      if (id >= tokenizer.vocab_size()) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("token id {} is outside the vocabulary of {}", id, tokenizer.vocab_size()));
      }
    }
  }
  if (values.is_on("json")) {
    JsonWriter json;
    json.begin_object().field("count", ids.size()).key("tokens").value(std::span<const int32_t>(ids));
    json.key("pieces").begin_array();
    for (const int32_t id : ids) json.value(tokenizer.token_bytes(id));
    json.end_array().field("text", tokenizer.decode(ids)).end_object();
    write_text(json.take() + "\n");
  } else if (values.given("decode")) {
    write_text(tokenizer.decode(ids) + "\n");
  } else {
    std::string lines;
    for (const int32_t id : ids) {
      lines += fmt::format("{:6}  {}\n", id, token_text(tokenizer.token_bytes(id)));
    }
    write_text(lines);
  }
  return kSuccess;
}

}  // namespace lantern::cli
