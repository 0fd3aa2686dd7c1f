#include "base/json_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parser.hpp>

namespace lantern {
namespace json = boost::json;

Error json_error(std::string_view text, size_t max_depth) {
  json::parse_options options;
  options.max_depth = max_depth;
  json::parser parser({}, options);
  json::error_code error;
  const size_t byte = parser.write_some(text.data(), text.size(), error);
  if (!error) error = json::error::extra_data;
  const std::string_view before = text.substr(0, byte);
  const size_t line_begin = before.rfind('\n') + 1;  // 0 where there is none
  return Error(ErrorCode::kCorrupt,
               fmt::format("not valid JSON at line {}, column {}, byte {} of {} ({})",
                           1 + std::ranges::count(before, '\n'), byte - line_begin + 1, byte, text.size(),
                           error == json::error::incomplete ? "it ends too early" : error.message()));
}

}  // namespace lantern
