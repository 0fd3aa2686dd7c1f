// The form of the answer that a request asks for. For this room's sources only.
#pragma once

#include <optional>

#include "server/grammar.h"
#include "server/json_fields.h"

namespace lantern {

// response_format, structured_outputs, and vLLM's older guided_json, guided_regex, guided_choice, guided_grammar. At
// most one form may be asked for. Nothing: none is.
std::optional<OutputForm> read_output_form(JsonFields& fields);

// Reads it and keeps the answers of all prompts to it, or to `forced_calls`, which leave no room for another. Waits for
// the form to be compiled.
void constrain_answers(JsonFields& fields, const OpenAiModel& model, std::optional<OutputForm> forced_calls,
                       AnswerStart start, OpenAiRequest& request);

}  // namespace lantern
