#include "text/tool_syntax.h"

namespace lantern {
namespace {

constexpr ToolSyntax kDeepSeekV31 = {.section_begin = "<｜tool▁calls▁begin｜>",
                                     .section_end = "<｜tool▁calls▁end｜>",
                                     .call_begin = "<｜tool▁call▁begin｜>",
                                     .call_end = "<｜tool▁call▁end｜>",
                                     .name_end = "<｜tool▁sep｜>"};

// The call's type stands before the name, and its arguments in a fenced block.
constexpr ToolSyntax kDeepSeekV3 = {.section_begin = "<｜tool▁calls▁begin｜>",
                                    .section_end = "<｜tool▁calls▁end｜>",
                                    .call_begin = "<｜tool▁call▁begin｜>",
                                    .call_end = "<｜tool▁call▁end｜>",
                                    .other_call_end = "\n```<｜tool▁call▁end｜>",
                                    .name_end = "\n```json\n",
                                    .name_after = "<｜tool▁sep｜>"};

constexpr ToolSyntax kDeepSeekV32 = {.section_begin = "<｜DSML｜function_calls>",
                                     .section_end = "</｜DSML｜function_calls>",
                                     .call_begin = "<｜DSML｜invoke name=\"",
                                     .call_end = "</｜DSML｜invoke>",
                                     .name_end = "\">",
                                     .key_begin = "<｜DSML｜parameter name=\"",
                                     .key_end_text = "\" string=\"true\">",
                                     .key_end_json = "\" string=\"false\">",
                                     .key_end_untyped = "\">",
                                     .value_end = "</｜DSML｜parameter>"};

constexpr ToolSyntax kGlm = {.call_begin = "<tool_call>",
                             .call_end = "</tool_call>",
                             .key_begin = "<arg_key>",
                             .key_end = "</arg_key>",
                             .value_begin = "<arg_value>",
                             .value_end = "</arg_value>"};

constexpr ToolSyntax kKimi = {.section_begin = "<|tool_calls_section_begin|>",
                              .section_end = "<|tool_calls_section_end|>",
                              .call_begin = "<|tool_call_begin|>",
                              .call_end = "<|tool_call_end|>",
                              .name_end = "<|tool_call_argument_begin|>",
                              .name_is_id = true,
                              .section_ends_thinking = true};

}  // namespace

const ToolSyntax* tool_syntax(ChatFormat format) {
  switch (format) {
    case ChatFormat::kDeepSeekV3:
    case ChatFormat::kDeepSeekR1: return &kDeepSeekV3;
    case ChatFormat::kDeepSeekV31: return &kDeepSeekV31;
    case ChatFormat::kDeepSeekV32: return &kDeepSeekV32;
    case ChatFormat::kGlm45:
    case ChatFormat::kGlm47:
    case ChatFormat::kGlm52: return &kGlm;
    case ChatFormat::kKimiK2:
    case ChatFormat::kKimiK2Thinking: return &kKimi;
    case ChatFormat::kDeepSeekV2:
    case ChatFormat::kMoonlight: return nullptr;
  }
  return nullptr;
}

}  // namespace lantern
