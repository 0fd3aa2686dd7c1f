#include "server/openai_form.h"

#include <fmt/format.h>

#include <vector>

namespace lantern {
namespace {

namespace json = boost::json;
using Kind = OutputForm::Kind;

constexpr size_t kMostChoices = 1024;

// A schema is an object, or the text of one.
std::optional<OutputForm> schema_form(JsonFields& fields, std::string_view param, const json::value& schema) {
  if (schema.is_string())
    return OutputForm{.kind = Kind::kJsonSchema, .text = std::string(std::string_view(schema.get_string()))};
  if (schema.is_object() || schema.is_bool())
    return OutputForm{.kind = Kind::kJsonSchema, .text = json::serialize(schema)};
  fields.fail(param, fmt::format("{} has a JSON schema that must be an object, not {}", param, kind_of(schema)));
  return std::nullopt;
}

std::optional<OutputForm> read_response_format(JsonFields& fields) {
  constexpr std::string_view kParam = "response_format";
  const json::value* format = fields.find(kParam);
  if (format == nullptr) return std::nullopt;
  const json::value* type = member_of(format, "type");
  if (type == nullptr || (*type != "text" && *type != "json_object" && *type != "json_schema")) {
    fields.fail(kParam, "response_format must have the type \"text\", \"json_object\" or \"json_schema\"");
    return std::nullopt;
  }
  if (*type == "text") return std::nullopt;
  if (*type == "json_object") return OutputForm{.kind = Kind::kJsonObject};
  const json::value* schema = member_of(member_of(format, "json_schema"), "schema");
  if (schema == nullptr) {
    fields.fail(kParam, "response_format of type \"json_schema\" needs {\"json_schema\": {\"schema\": {...}}}");
    return std::nullopt;
  }
  return schema_form(fields, kParam, *schema);
}

// One kind of form in an object that may have several; `param` is the field of the request that the client is told of.
std::optional<OutputForm> read_kind(JsonFields& fields, JsonFields& of, std::string_view name, Kind kind,
                                    std::string_view param) {
  const json::value* value = of.find(name);
  if (value == nullptr) return std::nullopt;
  OutputForm form{.kind = kind};
  switch (kind) {
    case Kind::kJsonSchema: return schema_form(fields, param, *value);
    case Kind::kJsonObject: {
      bool wanted = false;
      of.boolean(name, wanted);
      if (of.ok() && !wanted) return std::nullopt;
      break;
    }
    case Kind::kChoice:
      if (!value->is_array()) {
        fields.fail(param, fmt::format("{} must be a list of strings, not {}", name, kind_of(*value)));
        return std::nullopt;
      }
      of.texts(name, form.choices, kMostChoices);
      break;
    default: of.text(name, form.text);
  }
  if (of.ok()) return form;
  OpenAiError error = of.error();
  error.param = param;
  fields.fail(std::move(error));
  return std::nullopt;
}

}  // namespace

std::optional<OutputForm> read_output_form(JsonFields& fields) {
  std::vector<OutputForm> forms;
  const auto add = [&](std::optional<OutputForm> form) {
    if (form) forms.push_back(*std::move(form));
  };
  add(read_response_format(fields));
  if (const json::value* value = fields.find("structured_outputs")) {
    constexpr std::string_view kParam = "structured_outputs";
    if (!value->is_object()) {
      fields.fail(kParam, fmt::format("structured_outputs must be an object, not {}", kind_of(*value)));
      return std::nullopt;
    }
    JsonFields of(value->get_object());
    for (const char* name :
         {"structural_tag", "whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"}) {
      const json::value* asked = of.find(name);
      if (asked == nullptr || *asked == false) continue;
      fields.fail(kParam,
                  fmt::format("structured_outputs with {} is not supported: a form says all of itself in json, regex, "
                              "choice or grammar",
                              name),
                  "unsupported_parameter");
      return std::nullopt;
    }
    const size_t before = forms.size();
    add(read_kind(fields, of, "json", Kind::kJsonSchema, kParam));
    add(read_kind(fields, of, "json_object", Kind::kJsonObject, kParam));
    add(read_kind(fields, of, "regex", Kind::kRegex, kParam));
    add(read_kind(fields, of, "choice", Kind::kChoice, kParam));
    add(read_kind(fields, of, "grammar", Kind::kGrammar, kParam));
    if (forms.size() == before)
      fields.fail(kParam, "structured_outputs has no form; give one of json, json_object, regex, choice and grammar");
  }
  add(read_kind(fields, fields, "guided_json", Kind::kJsonSchema, "guided_json"));
  add(read_kind(fields, fields, "guided_regex", Kind::kRegex, "guided_regex"));
  add(read_kind(fields, fields, "guided_choice", Kind::kChoice, "guided_choice"));
  add(read_kind(fields, fields, "guided_grammar", Kind::kGrammar, "guided_grammar"));
  if (!fields.ok() || forms.empty()) return std::nullopt;
  if (forms.size() > 1) {
    fields.fail("structured_outputs",
                "the answer's form is given more than once; use one of response_format and structured_outputs");
    return std::nullopt;
  }
  return forms.front();
}

void constrain_answers(JsonFields& fields, const OpenAiModel& model, std::optional<OutputForm> forced_calls,
                       AnswerStart start, OpenAiRequest& request) {
  std::optional<OutputForm> form = read_output_form(fields);
  if (form && forced_calls) {
    return fields.fail("tool_choice",
                       "tool_choice asks for a call, which leaves no room for another form of the answer");
  }
  const char* const param = forced_calls                    ? "tool_choice"
                            : fields.has("response_format") ? "response_format"
                                                            : "structured_outputs";
  if (forced_calls) form = std::move(forced_calls);
  if (!form || !fields.ok()) return;
  if (model.grammars == nullptr || !have_grammars()) {
    return fields.fail(
        {.status = 501,
         .message = "this server has no structured output; build Lantern where xgrammar's source can be fetched",
         .type = "not_supported_error",
         .param = param,
         .code = "unsupported_parameter"});
  }
  const Result<std::shared_ptr<const Grammar>> grammar = model.grammars->compile(*form);
  if (!grammar.ok()) {
    OpenAiError error{.message = grammar.error().message(), .param = param, .code = "invalid_value"};
    if (grammar.error().code() == ErrorCode::kOutOfMemory) error = openai_error_of(grammar.error());
    return fields.fail(std::move(error));
  }
  for (EngineRequest& prompt : request.prompts) {
    prompt.request.constraint = constrain(*grammar, *model.tokenizer, model.grammars->end_ids(), start);
  }
}

}  // namespace lantern
