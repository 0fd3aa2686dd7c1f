// Checked access to JSON files, for this room's readers only.
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lantern {

// Parses one document of at most `max_depth` levels. Errors say where reading stopped.
Result<boost::json::value> parse_json(std::string_view text, size_t max_depth = 32);

// "a number", "an object", ...
std::string_view json_kind(const boost::json::value& value);

// Members by name, with an error that names the member. `where` is how the object is called in errors ("model").
Result<const boost::json::value*> json_member(const boost::json::object& object, std::string_view name,
                                              std::string_view where);
Result<const boost::json::object*> json_object(const boost::json::value& value, std::string_view where);
Result<const boost::json::array*> json_array(const boost::json::value& value, std::string_view where);
Result<std::string_view> json_string(const boost::json::value& value, std::string_view where);
Result<int64_t> json_integer(const boost::json::value& value, std::string_view where);

// An absent or null member gives the default.
Result<bool> json_bool_or(const boost::json::object& object, std::string_view name, bool absent,
                          std::string_view where);
Result<std::string_view> json_string_or(const boost::json::object& object, std::string_view name,
                                        std::string_view absent, std::string_view where);

}  // namespace lantern
