// What a model writes, told apart into thinking, answer and calls. The input: format, whether thinking has begun,
// whether there are tools, two bytes that cut the text, the text. However it is cut, the same comes out
// (CVE-2025-48887, CVE-2025-9141).
#include "base/check.h"
#include "fuzz_input.h"
#include "text/output_parser.h"
#include "text/utf8.h"

using namespace lantern;

namespace {

constexpr size_t kFormats = static_cast<size_t>(ChatFormat::kMoonlight) + 1;

std::string written(const ParsedOutput& parsed) {
  std::string out = parsed.reasoning + "\x01" + parsed.content;
  for (const ChatToolCall& call : parsed.tool_calls)
    out += "\x01" + call.id + "\x02" + call.name + "\x02" + call.arguments;
  return out;
}

// In pieces of `first`, `second`, `first`, ... bytes.
std::string in_pieces(ChatFormat format, std::string_view text, const OutputParserOptions& options, size_t first,
                      size_t second) {
  OutputParser parser(format, options);
  ParsedOutput parsed;
  const auto take = [&](const OutputDelta& delta) {
    CHECK(is_valid_utf8(delta.content) && is_valid_utf8(delta.reasoning), "a delta ends inside of a character");
    for (const ToolCallDelta& call : delta.tool_calls)
      CHECK(is_valid_utf8(call.arguments) && is_valid_utf8(call.name), "a call's delta ends inside of a character");
    parsed.add(delta);
  };
  while (!text.empty()) {
    const size_t size = std::min(text.size(), first);
    take(parser.push(text.substr(0, size)));
    text.remove_prefix(size);
    std::swap(first, second);
  }
  take(parser.finish());
  return written(parsed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  test::FuzzInput input(data, size);
  const auto format = static_cast<ChatFormat>(input.below(kFormats));
  OutputParserOptions options{.starts_thinking = input.flag()};
  if (input.flag()) {
    options.tools = {
        R"({"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}})",
        R"({"name": "f"})"};
  }
  const size_t first = 1 + input.below(64);
  const size_t second = 1 + input.below(64);
  const std::string_view text = input.rest();
  const std::string whole = written(parse_output(format, text, options));
  CHECK(in_pieces(format, text, options, 1, 1) == whole, "byte by byte it differs");
  CHECK(in_pieces(format, text, options, first, second) == whole, "in pieces of {} and {} bytes it differs", first,
        second);
  return 0;
}
