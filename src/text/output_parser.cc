#include "text/output_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/json_text.h"
#include "text/chat_builder.h"
#include "text/tag_scanner.h"
#include "text/tool_arguments.h"
#include "text/tool_syntax.h"
#include "text/utf8.h"

namespace lantern {
namespace {

constexpr std::string_view kThinkBegin = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kMaxSpaceAtStart = 64;  // bytes before a "<think>"
constexpr size_t kMaxSpaceBefore = 16;   // bytes before calls that are not content
constexpr size_t kMaxHeader = 512;       // bytes of a call before its name is known, and of a parameter's name

size_t leading_space(std::string_view text) { return std::min(text.find_first_not_of(kSpace), text.size()); }

bool is_name(std::string_view name) {
  return !name.empty() && std::ranges::none_of(name, [](char c) {
    return static_cast<uint8_t>(c) <= ' ' || c == '\x7f' ||
           std::string_view("<>{}\"").find(c) != std::string_view::npos;
  });
}

}  // namespace

// One state for each place of the grammar. A state knows the tags that mean something in it; all else is its text.
class OutputParser::Machine {
 public:
  Machine(ChatFormat format, OutputParserOptions options)
      : syntax_(options.tools.empty() ? nullptr : tool_syntax(format)),
        types_(options.tools),
        id_prefix_(std::move(options.call_id_prefix)) {
    enter(options.starts_thinking ? State::kThinking : State::kStart);
  }

  void push(std::string_view text, OutputDelta& delta) {
    partial_ += text;
    const size_t whole = partial_.size() - incomplete_utf8_tail(partial_);
    append_valid_utf8(text_, std::string_view(partial_).substr(0, whole));
    partial_.erase(0, whole);
    run(delta, false);
  }

  void finish(OutputDelta& delta, OutputEnd end) {
    const bool cut = end == OutputEnd::kCut;
    append_valid_utf8(text_, partial_);
    partial_.clear();
    if (cut) drop_markup(delta);
    run(delta, true);
    switch (state_) {
      case State::kContent:
        if (!after_calls_) delta.content += space_;
        break;
      case State::kSection:
      case State::kName:
      case State::kKey:
      case State::kValueBegin:
        if (!cut) delta.content += raw_;
        break;
      case State::kJsonValue: put_arguments(begins_json(value_) ? value_ : unfinished_string(value_), delta); break;
      default: break;
    }
  }

  bool thinking() const { return state_ == State::kThinking; }
  int32_t num_calls() const { return num_calls_; }
  bool complete() const { return !open_; }

 private:
  enum class State : uint8_t {
    kStart,       // nothing but white space so far
    kThinking,    //
    kContent,     //
    kSection,     // between calls
    kName,        // of a call
    kArguments,   // one JSON text
    kParameters,  // between parameters
    kKey,         // name of a parameter
    kValueBegin,  // between a parameter's name and its value
    kTextValue,   // of a string
    kJsonValue,   // held back until it is whole
  };
  enum class Tag : uint8_t {
    kThinkEnd,
    kSectionBegin,
    kSectionEnd,
    kCallBegin,
    kCallEnd,
    kNameEnd,
    kKeyBegin,
    kKeyEnd,
    kKeyEndText,
    kKeyEndJson,
    kKeyEndUntyped,
    kValueBegin,
    kValueEnd,
  };

  void enter(State state) {
    state_ = state;
    junk_ = false;
    num_tags_ = 0;
    const auto look_for = [&](std::string_view text, Tag tag) {
      if (text.empty()) return;
      CHECK(num_tags_ < tags_.size(), "{} tags in one state", num_tags_ + 1);
      tags_[num_tags_] = text;
      meanings_[num_tags_++] = tag;
    };
    if (state == State::kThinking) look_for(kThinkEnd, Tag::kThinkEnd);
    if (syntax_ == nullptr) return;
    const ToolSyntax& s = *syntax_;
    switch (state) {
      case State::kStart: break;
      case State::kThinking:
        if (s.section_ends_thinking) look_for(s.section_begin, Tag::kSectionBegin);
        break;
      case State::kContent:
        look_for(s.section_begin, Tag::kSectionBegin);
        look_for(s.call_begin, Tag::kCallBegin);
        break;
      case State::kSection:
      case State::kName:
      case State::kArguments:
      case State::kParameters:
      case State::kValueBegin:
        look_for(s.section_end, Tag::kSectionEnd);
        look_for(s.call_begin, Tag::kCallBegin);
        if (state == State::kSection) break;
        look_for(s.call_end, Tag::kCallEnd);
        look_for(s.other_call_end, Tag::kCallEnd);
        if (state == State::kName) look_for(s.name_end, Tag::kNameEnd);
        if (state == State::kName && !s.name_end.empty()) break;
        if (state != State::kArguments) look_for(s.key_begin, Tag::kKeyBegin);
        if (state == State::kValueBegin) look_for(s.value_begin, Tag::kValueBegin);
        break;
      case State::kKey:
        look_for(s.key_end, Tag::kKeyEnd);
        look_for(s.key_end_text, Tag::kKeyEndText);
        look_for(s.key_end_json, Tag::kKeyEndJson);
        look_for(s.key_end_untyped, Tag::kKeyEndUntyped);
        break;
      case State::kTextValue:
      case State::kJsonValue: look_for(s.value_end, Tag::kValueEnd); break;
    }
  }

  // What may still become a tag of calls, and nothing else.
  void drop_markup(OutputDelta& delta) {
    if (syntax_ == nullptr) return;
    if (state_ == State::kStart) enter(State::kContent);
    run(delta, false);
    if (state_ != State::kThinking || !kThinkEnd.starts_with(text_)) text_.clear();
  }

  // Takes as much of text_ as is certain; all of it if it is the `last`.
  void run(OutputDelta& delta, bool last) {
    size_t at = 0;
    while (at < text_.size()) {
      const std::string_view rest = std::string_view(text_).substr(at);
      if (state_ == State::kStart) {
        const size_t used = start(rest, last);
        if (used == 0 && state_ == State::kStart) break;
        at += used;
        continue;
      }
      const TagMatch match = find_tag(rest, std::span(tags_).first(num_tags_));
      const size_t certain = last && match.tag < 0 ? rest.size() : match.before;
      if (certain > 0) {
        const State before = state_;
        const size_t used = take_text(rest.substr(0, certain), delta);
        at += used;
        // Another state may take for a tag what this one did not.
        if (used < certain || state_ != before) continue;
      }
      if (match.tag < 0) break;
      const auto tag = static_cast<size_t>(match.tag);
      const std::string_view spelled = tags_[tag];
      at += spelled.size();
      take_tag(meanings_[tag], spelled, delta);
    }
    text_.erase(0, at);
  }

  // Bytes used; 0 without another state: more must come first.
  size_t start(std::string_view text, bool last) {
    const size_t space = leading_space(text);
    const std::string_view visible = text.substr(space);
    if (space <= kMaxSpaceAtStart && visible.starts_with(kThinkBegin)) {
      enter(State::kThinking);
      return space + kThinkBegin.size();
    }
    if (last || space > kMaxSpaceAtStart || !kThinkBegin.starts_with(visible)) enter(State::kContent);
    return 0;
  }

  // Bytes of `text` used; the rest is for the state that was entered.
  size_t take_text(std::string_view text, OutputDelta& delta) {
    switch (state_) {
      case State::kStart: break;
      case State::kThinking: delta.reasoning += text; break;
      case State::kContent: put_content(text, delta); break;
      case State::kSection: return take_section_text(text, delta);
      case State::kName: {
        const size_t size = std::min(text.size(), kMaxHeader - std::min(kMaxHeader, raw_.size()));
        if (size == 0) {
          give_up(delta);
          return 0;
        }
        raw_ += text.substr(0, size);
        name_ += text.substr(0, size);
        return size;
      }
      case State::kArguments: {
        const size_t space = any_arguments_ ? 0 : leading_space(text);
        if (space == text.size()) break;
        any_arguments_ = true;
        put_arguments(text.substr(space), delta);
        break;
      }
      case State::kParameters: {
        const size_t space = junk_ ? 0 : leading_space(text);
        junk_ = space < text.size();
        delta.content += text.substr(space);
        break;
      }
      case State::kValueBegin: {
        const size_t space = leading_space(text);
        if (space == text.size()) break;
        put_key_as_content(delta);
        enter(State::kParameters);
        junk_ = true;
        return space;
      }
      case State::kKey: {
        const size_t size = std::min(text.size(), kMaxHeader - std::min(kMaxHeader, raw_.size()));
        if (size == 0) {
          put_key_as_content(delta);
          enter(State::kParameters);
          junk_ = true;
          return 0;
        }
        raw_ += text.substr(0, size);
        key_ += text.substr(0, size);
        return size;
      }
      case State::kTextValue: put_string(text, delta); break;
      case State::kJsonValue: {
        const size_t size = std::min(text.size(), kMaxHeldValue - value_.size());
        if (size == 0) {
          put_arguments("\"", delta);
          put_string(value_, delta);
          value_ = {};
          enter(State::kTextValue);
          return 0;
        }
        value_ += text.substr(0, size);
        return size;
      }
    }
    return text.size();
  }

  size_t take_section_text(std::string_view text, OutputDelta& delta) {
    const size_t space = leading_space(text);
    if (raw_.empty()) {
      if (space < text.size()) enter(State::kContent);
      return space;
    }
    const size_t size = std::min(space, kMaxHeader - std::min(kMaxHeader, raw_.size()));
    raw_ += text.substr(0, size);
    if (size < text.size()) give_up(delta);
    return size;
  }

  void take_tag(Tag tag, std::string_view spelled, OutputDelta& delta) {
    switch (tag) {
      case Tag::kThinkEnd: return enter(State::kContent);
      case Tag::kSectionBegin:
        raw_ = std::move(space_);
        space_.clear();
        raw_ += spelled;
        return enter(State::kSection);
      case Tag::kSectionEnd:
        leave_call(delta);
        if (raw_.empty()) return enter(State::kContent);
        raw_ += spelled;
        return give_up(delta);
      case Tag::kCallBegin:
        if (state_ == State::kContent) raw_ = std::move(space_);
        space_.clear();
        if (state_ == State::kName) {
          delta.content += raw_;
          raw_.clear();
        }
        leave_call(delta);
        raw_ += spelled;
        name_.clear();
        return enter(State::kName);
      case Tag::kCallEnd:
        if (state_ == State::kName && (!syntax_->name_end.empty() || !begin_call(delta))) {
          raw_ += spelled;
          return give_up(delta);
        }
        leave_call(delta);
        return enter(syntax_->section_end.empty() ? State::kContent : State::kSection);
      case Tag::kNameEnd:
        if (!begin_call(delta)) {
          raw_ += spelled;
          return give_up(delta);
        }
        return enter(syntax_->key_begin.empty() ? State::kArguments : State::kParameters);
      case Tag::kKeyBegin:
        if (state_ == State::kName && !begin_call(delta)) {
          raw_ += spelled;
          return give_up(delta);
        }
        put_key_as_content(delta);
        raw_ = spelled;
        key_.clear();
        return enter(State::kKey);
      case Tag::kKeyEnd: raw_ += spelled; return enter(State::kValueBegin);
      case Tag::kKeyEndText: return begin_value(kJsonString, delta);
      case Tag::kKeyEndJson: return begin_value(kUnknownTypes, delta);
      case Tag::kKeyEndUntyped:
      case Tag::kValueBegin: return begin_value(types_.of(name_, strip(key_)), delta);
      case Tag::kValueEnd:
        put_arguments(state_ == State::kTextValue ? "\"" : value_as_json(value_, value_types_), delta);
        value_.clear();
        return enter(State::kParameters);
    }
  }

  // White space is held back: calls may follow it.
  void put_content(std::string_view text, OutputDelta& delta) {
    if (syntax_ == nullptr) {
      delta.content += text;
      return;
    }
    const size_t visible = text.find_last_not_of(kSpace);
    if (visible != std::string_view::npos) {
      after_calls_ = false;
      delta.content += space_;
      space_.clear();
      delta.content += text.substr(0, visible + 1);
      text.remove_prefix(visible + 1);
    }
    space_ += text;
    if (space_.size() <= kMaxSpaceBefore) return;
    const size_t certain = space_.size() - kMaxSpaceBefore;
    delta.content += std::string_view(space_).substr(0, certain);
    space_.erase(0, certain);
  }

  // What began like calls is content.
  void give_up(OutputDelta& delta) {
    delta.content += raw_;
    raw_.clear();
    after_calls_ = false;
    enter(State::kContent);
  }

  // The name in front of the call's other parts; false: it is none.
  bool begin_call(OutputDelta& delta) {
    std::string_view name = name_;
    if (!syntax_->name_after.empty()) name = after_last(name, syntax_->name_after);
    name = strip(name);
    std::string id;
    if (syntax_->name_is_id) {
      id = name;
      if (name.starts_with("functions.")) name.remove_prefix(std::string_view("functions.").size());
      const size_t colon = name.rfind(':');
      if (colon != std::string_view::npos && colon + 1 < name.size() &&
          name.find_first_not_of("0123456789", colon + 1) == std::string_view::npos) {
        name = name.substr(0, colon);
      } else {
        id = fmt::format("functions.{}:{}", name, num_calls_);
      }
    } else {
      id = fmt::format("{}{}", id_prefix_, num_calls_);
    }
    if (!is_name(name)) return false;
    raw_.clear();
    name_ = std::string(name);
    ++num_calls_;
    open_ = true;
    any_arguments_ = false;
    delta.tool_calls.push_back({.index = num_calls_ - 1, .id = std::move(id), .name = name_, .arguments = {}});
    return true;
  }

  // The end of a call that has begun, if one has.
  void leave_call(OutputDelta& delta) {
    if (!open_) return;
    put_key_as_content(delta);
    const bool parameters = !syntax_->key_begin.empty();
    if (parameters || !any_arguments_) put_arguments(any_arguments_ ? "}" : "{}", delta);
    open_ = false;
    after_calls_ = true;
  }

  void begin_value(uint8_t types, OutputDelta& delta) {
    std::string before = any_arguments_ ? ", \"" : "{\"";
    append_json_chars(strip(key_), before);
    before += types == kJsonString ? "\": \"" : "\": ";
    any_arguments_ = true;
    raw_.clear();
    put_arguments(before, delta);
    value_types_ = types;
    enter(types == kJsonString ? State::kTextValue : State::kJsonValue);
  }

  // A parameter's name that no value has followed.
  void put_key_as_content(OutputDelta& delta) {
    if (!open_) return;
    delta.content += raw_;
    raw_.clear();
  }

  void put_string(std::string_view text, OutputDelta& delta) {
    std::string chars;
    append_json_chars(text, chars);
    put_arguments(chars, delta);
  }

  static std::string unfinished_string(std::string_view text) {
    std::string out = "\"";
    append_json_chars(text, out);
    return out;
  }

  void put_arguments(std::string_view text, OutputDelta& delta) {
    const int32_t index = num_calls_ - 1;
    if (delta.tool_calls.empty() || delta.tool_calls.back().index != index)
      delta.tool_calls.push_back({.index = index});
    delta.tool_calls.back().arguments += text;
  }

  static constexpr size_t kMostTags = 6;

  const ToolSyntax* syntax_;  // null: calls are not looked for
  ToolTypes types_;
  std::string id_prefix_;

  State state_ = State::kStart;
  std::array<std::string_view, kMostTags> tags_{};
  std::array<Tag, kMostTags> meanings_{};
  size_t num_tags_ = 0;

  std::string partial_;  // bytes of an unfinished code point
  std::string text_;     // not yet taken: may be the beginning of a tag
  std::string space_;    // in kContent: white space that calls may follow
  // As it came, all that is content if no call comes of it: before a call's name is known from the first tag on, later
  // a parameter's name.
  std::string raw_;
  std::string name_, key_, value_;
  uint8_t value_types_ = kUnknownTypes;
  int32_t num_calls_ = 0;
  bool open_ = false;           // a call has its name and not yet its end
  bool any_arguments_ = false;  // of the open call
  bool after_calls_ = false;    // in kContent: a call, and nothing since
  bool junk_ = false;           // between parameters: text that belongs to none has come
};

void OutputDelta::add(OutputDelta&& next) {
  reasoning += next.reasoning;
  content += next.content;
  for (ToolCallDelta& call : next.tool_calls) {
    // Calls come in order: only the last can go on.
    if (!tool_calls.empty() && tool_calls.back().index == call.index) {
      tool_calls.back().arguments += call.arguments;
    } else {
      tool_calls.push_back(std::move(call));
    }
  }
}

void ParsedOutput::add(const OutputDelta& delta) {
  reasoning += delta.reasoning;
  content += delta.content;
  for (const ToolCallDelta& call : delta.tool_calls) {
    const auto index = static_cast<size_t>(call.index);
    if (index >= tool_calls.size()) tool_calls.resize(index + 1);
    tool_calls[index].id += call.id;
    tool_calls[index].name += call.name;
    tool_calls[index].arguments += call.arguments;
  }
}

OutputParser::OutputParser(ChatFormat format, OutputParserOptions options)
    : machine_(std::make_unique<Machine>(format, std::move(options))) {}
OutputParser::OutputParser(const OutputParser& other) : machine_(std::make_unique<Machine>(*other.machine_)) {}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser other) noexcept {
  machine_.swap(other.machine_);
  return *this;
}
OutputParser::~OutputParser() = default;

OutputDelta OutputParser::push(std::string_view text) {
  OutputDelta delta;
  machine_->push(text, delta);
  return delta;
}

OutputDelta OutputParser::finish(OutputEnd end) {
  OutputDelta delta;
  machine_->finish(delta, end);
  return delta;
}

bool OutputParser::thinking() const { return machine_->thinking(); }
int32_t OutputParser::num_calls() const { return machine_->num_calls(); }
bool OutputParser::complete() const { return machine_->complete(); }

ParsedOutput parse_output(ChatFormat format, std::string_view text, OutputParserOptions options, OutputEnd end) {
  OutputParser parser(format, std::move(options));
  ParsedOutput parsed;
  parsed.add(parser.push(text));
  parsed.add(parser.finish(end));
  return parsed;
}

}  // namespace lantern
