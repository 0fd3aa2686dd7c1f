// Tells an assistant's thinking from its answer while the text streams in.
#pragma once

#include <string>
#include <string_view>

namespace lantern {

// Thinking ends at the first "</think>". It begins at once if the prompt has opened the block, or at a "<think>" that
// stands in front of all other text. Neither tag is given out, nor a part of one: text that may be the beginning of a
// tag is held back. The tags must reach this as text (a Detokenizer that does not skip special tokens).
class ReasoningSplitter {
 public:
  explicit ReasoningSplitter(bool starts_thinking) : state_(starts_thinking ? State::kThinking : State::kStart) {}

  struct Delta {
    std::string reasoning;
    std::string content;
  };
  Delta add(std::string_view text);
  // What is still held back, when no more text comes.
  Delta flush();

  bool thinking() const { return state_ == State::kThinking; }

 private:
  enum class State { kStart, kThinking, kContent };

  State state_;
  std::string held_;
};

}  // namespace lantern
