// JSON values as text that people and models read: a number is 0.5 or 1.0, not 5E-1 or 1E0.
#pragma once

#include <string>
#include <string_view>

namespace boost::json {
class array;
class object;
class value;
}  // namespace boost::json

namespace lantern {

struct JsonStyle {
  std::string_view item_separator = ",", key_separator = ":";
  bool sort_keys = false;  // else members stay in their order
};
// What Python's json.dumps(value, ensure_ascii=False) writes.
inline constexpr JsonStyle kPythonJson{.item_separator = ", ", .key_separator = ": "};

// Numbers have the fewest digits that read back equal, as Python's repr. What JSON has no number for: NaN is null, an
// infinity a number beyond every double. Text goes out as it is, in UTF-8.
std::string json_text(const boost::json::value& value, const JsonStyle& style = {});
std::string json_text(const boost::json::object& object, const JsonStyle& style = {});
std::string json_text(const boost::json::array& array, const JsonStyle& style = {});

// The inside of a JSON string.
void append_json_chars(std::string_view text, std::string& out);

}  // namespace lantern
