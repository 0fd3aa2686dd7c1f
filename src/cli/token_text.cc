#include "cli/token_text.h"

#include <fmt/format.h>

#include "cli/json_writer.h"
#include "text/utf8.h"

namespace lantern::cli {

std::string token_text(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return JsonWriter().value(bytes).take();
  std::string text = "\"";
  for (const char c : bytes) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      text += fmt::format("\\x{:02X}", static_cast<unsigned>(static_cast<uint8_t>(c)));
    }
  }
  return text + '"';
}

}  // namespace lantern::cli
