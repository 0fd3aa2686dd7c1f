// What is looked at before the library sees a form: its size, and what of a JSON schema the library would pass over.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "server/grammar_backend.h"
#include "text/tool_syntax.h"

namespace lantern {
namespace {

namespace json = boost::json;

// Keywords that xgrammar 0.2 knows and does not keep to.
constexpr std::string_view kNotKept[] = {"not",
                                         "if",
                                         "then",
                                         "else",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "uniqueItems",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies"};
// Numbers by which a grammar grows.
constexpr std::string_view kRepeats[] = {"minItems",  "maxItems",      "minLength",
                                         "maxLength", "minProperties", "maxProperties"};

Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }
Error not_kept(std::string_view what, std::string_view where) {
  return {ErrorCode::kUnsupported,
          fmt::format("the JSON schema has {} at {}, which answers cannot be kept to; leave it out", what,
                      where.empty() ? "its root" : where)};
}

// Where in a schema other schemas are: below these members, of each of their members or items.
constexpr std::string_view kSchemas[] = {
    "additionalProperties", "items", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "additionalItems"};
constexpr std::string_view kSchemaMaps[] = {"properties", "patternProperties", "$defs", "definitions"};
constexpr std::string_view kSchemaLists[] = {"anyOf", "oneOf", "allOf", "prefixItems", "items"};

// Depth is bounded: the JSON was parsed with a limit.
Status check_schema(const json::value& schema, const std::string& where, const GrammarLimits& limits) {
  if (schema.is_bool()) return {};
  const json::object* object = schema.if_object();
  if (object == nullptr)
    return invalid(
        fmt::format("the JSON schema has something that is no schema at {}", where.empty() ? "its root" : where));
  const auto member = [&](std::string_view name) { return object->if_contains(name); };
  for (const std::string_view name : kNotKept) {
    const json::value* value = member(name);
    if (value != nullptr && !(value->is_bool() && !value->get_bool()))
      return not_kept(fmt::format("'{}'", name), where);
  }
  for (const std::string_view name : kRepeats) {
    const json::value* value = member(name);
    if (value == nullptr) continue;
    json::error_code failure;
    const auto number = value->is_number() ? value->to_number<int64_t>(failure) : -1;
    if (failure || number < 0 || number > limits.max_repeats) {
      return invalid(fmt::format("the JSON schema's '{}' at {} must be a whole number from 0 to {}", name,
                                 where.empty() ? "its root" : where, limits.max_repeats));
    }
  }
  if (const json::value* ref = member("$ref");
      ref != nullptr && !(ref->is_string() && std::string_view(ref->get_string()).starts_with("#")))
    return not_kept("a '$ref' to another document", where);
  if (const json::value* all = member("allOf"); all != nullptr && all->is_array() && all->get_array().size() > 1)
    return not_kept("an 'allOf' of several schemas", where);
  if (member("multipleOf") != nullptr) {
    const json::value* type = member("type");
    if (type == nullptr || *type != "integer") return not_kept("'multipleOf' without type integer", where);
  }
  if ((member("pattern") != nullptr || member("format") != nullptr) &&
      (member("minLength") != nullptr || member("maxLength") != nullptr))
    return not_kept("'pattern' or 'format' together with a length", where);
  for (const std::string_view name : kSchemas) {
    const json::value* value = member(name);
    if (value != nullptr && !value->is_array())
      RETURN_IF_ERROR(check_schema(*value, fmt::format("{}/{}", where, name), limits));
  }
  for (const std::string_view name : kSchemaMaps) {
    const json::value* value = member(name);
    if (value == nullptr || !value->is_object()) continue;
    for (const auto& [key, of_key] : value->get_object())
      RETURN_IF_ERROR(check_schema(of_key, fmt::format("{}/{}/{}", where, name, std::string_view(key)), limits));
  }
  for (const std::string_view name : kSchemaLists) {
    const json::value* value = member(name);
    if (value == nullptr || !value->is_array()) continue;
    for (size_t i = 0; i < value->get_array().size(); ++i)
      RETURN_IF_ERROR(check_schema(value->get_array()[i], fmt::format("{}/{}/{}", where, name, i), limits));
  }
  return {};
}

Result<json::value> parse_schema(const std::string& text, const GrammarLimits& limits) {
  json::parse_options options;
  options.max_depth = limits.max_depth;
  json::error_code failure;
  json::value schema = json::parse(text, failure, {}, options);
  if (failure == json::error::too_deep)
    return invalid(fmt::format("the JSON schema is nested more than {} levels deep", limits.max_depth));
  if (failure) return invalid(fmt::format("the JSON schema is not JSON: {}", failure.message()));
  return schema;
}

// {m,n} of an expression; braces in other places have no numbers behind them.
Status check_repeats(std::string_view text, const GrammarLimits& limits) {
  for (size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
    size_t i = at + 1;
    while (i < text.size() && ((text[i] >= '0' && text[i] <= '9') || text[i] == ',' || text[i] == ' ')) {
      int64_t number = 0;
      const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), number);
      if (error == std::errc::invalid_argument) {
        ++i;
        continue;
      }
      if (error != std::errc() || number > limits.max_repeats) {
        return invalid(fmt::format("an expression repeats {} times at byte {}, and at most {} are allowed",
                                   text.substr(i, static_cast<size_t>(end - text.data()) - i), i, limits.max_repeats));
      }
      i = static_cast<size_t>(end - text.data());
    }
  }
  return {};
}

// Parentheses and brackets that are open at a time: the library recurses over them.
Status check_nesting(std::string_view text) {
  constexpr int64_t kMostOpen = 200;
  int64_t open = 0;
  for (const char c : text) {
    open += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
    if (open > kMostOpen)
      return invalid(fmt::format("an expression has more than {} groups in one another", kMostOpen));
  }
  return {};
}

// Of {"type": "function", "function": {...}}, or of the function alone.
Result<json::object> function_of(const std::string& tool, const GrammarLimits& limits) {
  ASSIGN_OR_RETURN(const json::value parsed, parse_schema(tool, limits));
  const json::object* function = parsed.if_object();
  if (function != nullptr && function->contains("function")) function = function->at("function").if_object();
  const json::value* name = function != nullptr ? function->if_contains("name") : nullptr;
  if (name == nullptr || !name->is_string()) return invalid("a tool has no function with a name");
  return *function;
}

Status check_size(size_t size, const GrammarLimits& limits) {
  if (size <= limits.max_bytes) return {};
  return invalid(
      fmt::format("the form of structured output has {} bytes, and at most {} are allowed", size, limits.max_bytes));
}

}  // namespace

Status check_form(const OutputForm& form, const GrammarLimits& limits) {
  using Kind = OutputForm::Kind;
  size_t size = form.text.size();
  for (const std::string& choice : form.choices) size += choice.size();
  for (const std::string& tool : form.tools) size += tool.size();
  RETURN_IF_ERROR(check_size(size, limits));
  switch (form.kind) {
    case Kind::kJsonObject: return {};
    case Kind::kJsonSchema: {
      ASSIGN_OR_RETURN(const json::value schema, parse_schema(form.text, limits));
      return check_schema(schema, "", limits);
    }
    case Kind::kRegex:
    case Kind::kGrammar:
      if (form.text.empty()) return invalid("the regex or grammar is empty");
      RETURN_IF_ERROR(check_repeats(form.text, limits));
      return check_nesting(form.text);
    case Kind::kChoice:
      if (form.choices.empty() || form.choices.size() > limits.max_choices) {
        return invalid(
            fmt::format("choice has {} strings, and 1 to {} are allowed", form.choices.size(), limits.max_choices));
      }
      if (std::ranges::any_of(form.choices, &std::string::empty)) return invalid("choice has an empty string");
      return {};
    case Kind::kToolCalls:
      for (const std::string& tool : form.tools) {
        ASSIGN_OR_RETURN(const json::object function, function_of(tool, limits));
        if (const json::value* parameters = function.if_contains("parameters"))
          RETURN_IF_ERROR(check_schema(*parameters, "", limits));
      }
      return {};
  }
  return {};
}

namespace {

// A call of one tool.
json::object call_tag(ChatFormat format, const ToolSyntax& syntax, std::string_view name, json::value parameters) {
  // GLM's strings have no quotes: the library allows white space around them, which would become part of the value.
  const int most_whitespace = syntax.key_begin.empty() ? 24 : 1;
  json::object content{
      {"type", "json_schema"}, {"json_schema", std::move(parameters)}, {"max_whitespace_cnt", most_whitespace}};
  std::string begin(syntax.call_begin), end(syntax.call_end);
  switch (format) {
    case ChatFormat::kDeepSeekV3:
    case ChatFormat::kDeepSeekR1:
      begin += fmt::format("function{}{}{}", syntax.name_after, name, syntax.name_end);
      end = syntax.other_call_end;
      break;
    case ChatFormat::kDeepSeekV32:
      begin += fmt::format("{}{}\n", name, syntax.name_end);
      end += "\n";
      content["style"] = "deepseek_xml";
      break;
    case ChatFormat::kGlm45:
    case ChatFormat::kGlm47:
    case ChatFormat::kGlm52:
      begin += format == ChatFormat::kGlm45 ? fmt::format("{}\n", name) : std::string(name);
      content["style"] = "glm_xml";
      break;
    case ChatFormat::kKimiK2:
    case ChatFormat::kKimiK2Thinking: {
      // The model numbers its calls itself.
      begin += fmt::format("functions.{}:", name);
      json::array parts{json::object{{"type", "regex"}, {"pattern", "\\d{1,4}"}},
                        json::object{{"type", "const_string"}, {"value", syntax.name_end}}, std::move(content)};
      content = json::object{{"type", "sequence"}, {"elements", std::move(parts)}};
      break;
    }
    default: begin += fmt::format("{}{}", name, syntax.name_end);
  }
  return {{"type", "tag"}, {"begin", begin}, {"content", std::move(content)}, {"end", end}};
}

}  // namespace

bool writes_json_arguments(ChatFormat format) {
  const ToolSyntax* syntax = tool_syntax(format);
  return syntax != nullptr && syntax->key_begin.empty();
}

Result<std::string> tool_calls_tag(const OutputForm& form) {
  const ToolSyntax* syntax = tool_syntax(form.format);
  if (syntax == nullptr)
    return Error(ErrorCode::kUnsupported, fmt::format("the chat format {} has no tool calls", to_string(form.format)));
  json::array calls;
  for (const std::string& tool : form.tools) {
    ASSIGN_OR_RETURN(const json::object function, function_of(tool, GrammarLimits()));
    const json::value* parameters = function.if_contains("parameters");
    calls.push_back(call_tag(form.format, *syntax, std::string_view(function.at("name").as_string()),
                             parameters != nullptr ? *parameters : json::value(json::object{{"type", "object"}})));
  }
  const bool v32 = form.format == ChatFormat::kDeepSeekV32;
  const bool v3 = form.format == ChatFormat::kDeepSeekV3 || form.format == ChatFormat::kDeepSeekR1;
  json::array parts;
  const auto literal = [&](std::string text) {
    if (!text.empty()) parts.push_back(json::object{{"type", "const_string"}, {"value", std::move(text)}});
  };
  // Line breaks where the models were trained on them.
  literal(v32 ? fmt::format("\n\n{}\n", syntax->section_begin) : std::string(syntax->section_begin));
  if (form.format == ChatFormat::kGlm45) literal("\n");
  parts.push_back(json::object{{"type", "tags_with_separator"},
                               {"tags", std::move(calls)},
                               {"separator", v3 || syntax->section_begin.empty() ? "\n" : ""},
                               {"at_least_one", true},
                               {"stop_after_first", !form.several_calls}});
  literal(std::string(syntax->section_end));
  return json::serialize(json::object{{"type", "structural_tag"},
                                      {"format", json::object{{"type", "sequence"}, {"elements", std::move(parts)}}}});
}

}  // namespace lantern
