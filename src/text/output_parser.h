// What an assistant generated, told apart while it streams in: its thinking, its answer, and its tool calls.
//
// What the caller must do:
// - give the text with special tokens in it (EngineRequest::skip_special_tokens = false; a Detokenizer that does not
//   skip them), since tags are special tokens in some vocabularies; but without the token that ended the turn;
// - stop at ChatEncoder::stop_ids(). They end a turn with calls as well: after its calls a DeepSeek model says
//   <｜end▁of▁sentence｜>, GLM <|observation|>, Kimi <|im_end|>. No format needs a stop string.
//
// Promises: the sum of what push() and finish() give does not depend on how the text was cut; no delta ends inside of
// a code point; what is held back is bounded (kMaxHeldValue and some hundred bytes); time is linear in the text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat.h"

namespace lantern {

struct ToolCallDelta {
  int32_t index = 0;
  // With the first piece of a call alone.
  std::string id = {};
  std::string name = {};
  std::string arguments = {};  // the next part of a JSON text; may be empty
};

struct OutputDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> tool_calls;  // at most one for each call

  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
  // What came next of the same output.
  void add(OutputDelta&& next);
};

// Deltas put together.
struct ParsedOutput {
  std::string reasoning;
  std::string content;
  std::vector<ChatToolCall> tool_calls;

  void add(const OutputDelta& delta);
};

enum class OutputEnd : uint8_t {
  kTurn,  // the model ended it
  kCut,   // it would have gone on
};

struct OutputParserOptions {
  // The prompt has opened a thinking block (ChatEncoder::starts_thinking).
  bool starts_thinking = false;
  // The tools that the model was told of, as ChatOptions has them. Without any, nothing is a call and tags are text.
  // GLM does not write values' types; they are taken from the tools' schemas.
  std::vector<std::string> tools = {};
  // Before the index of a call in ids that the model does not make up itself. Should be unique to the answer.
  std::string call_id_prefix = "call_";
};

// Thinking ends at the first "</think>" (Kimi: also where calls begin). It begins at once if the prompt has opened the
// block, or at a "<think>" in front of all other text. Its tags are in no delta.
//
// Calls: white space around them (up to 16 bytes) is not content. What begins like a call, but whose
// name is missing or malformed (over 512 bytes, white space or one of "<>{}\"" in it) is content, every byte of it.
// Once a call has its name:
// - V3, R1, V3.1 and Kimi write arguments as JSON, which is passed on as it comes, valid or not; no text is "{}".
// - V3.2 and GLM write parameters, from which valid JSON is made. A value that should be JSON and is none, or is longer
//   than kMaxHeldValue, becomes a string. Text between parameters, and names of parameters without a value, are
//   content.
// - A call that lacks its end is over where the next call begins or the calls end.
// A call in which the text breaks off keeps the arguments that it has. They are no whole JSON text then, lest half a
// call be taken for a whole one: complete() says so. Where the text was cut, by a limit of tokens or a stop string,
// what may be the beginning of a call's tags is in no delta either: nobody can tell what would have become of it.
class OutputParser {
 public:
  // A longer JSON value is not held back until it is whole.
  static constexpr size_t kMaxHeldValue = size_t{1} << 20;

  explicit OutputParser(ChatFormat format, OutputParserOptions options = {});
  OutputParser(const OutputParser& other);
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser other) noexcept;
  ~OutputParser();

  // UTF-8; what is not becomes U+FFFD.
  OutputDelta push(std::string_view text);
  // What is still held back, when no more text comes. Nothing may follow.
  OutputDelta finish(OutputEnd end = OutputEnd::kTurn);

  // Inside of a thinking block, as far as is certain.
  bool thinking() const;
  // Calls that have begun.
  int32_t num_calls() const;
  // The last call, if any, has its end.
  bool complete() const;

 private:
  class Machine;
  std::unique_ptr<Machine> machine_;
};

// All of a finished answer.
ParsedOutput parse_output(ChatFormat format, std::string_view text, OutputParserOptions options = {},
                          OutputEnd end = OutputEnd::kTurn);

}  // namespace lantern
