// Typed, range-checked access to the fields of a JSON object. Private to the config reader: this header names a
// third-party type and is included by config_*.cc only.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lantern {

// Largest size accepted for any dimension. Far above every published model, low enough that products of three fit
// int64.
inline constexpr int64_t kMaxDimension = 1 << 20;

// A field is absent when it is missing or null: published files use both. Every field asked for counts as known.
class ConfigFields {
 public:
  // `where` begins every message: "config.json" or "config.json: 'rope_scaling'". `object` must outlive this.
  ConfigFields(const boost::json::object& object, std::string where) : object_(object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  // The value, or null when absent.
  const boost::json::value* find(std::string_view name);
  bool has(std::string_view name) { return find(name) != nullptr; }
  // True when the field is written at all, even as null.
  bool is_written(std::string_view name) const { return object_.contains(name); }

  // Required fields: an absent one is an error.
  Result<int32_t> integer(std::string_view name, int64_t min, int64_t max);
  Result<double> number(std::string_view name, double min, double max);
  // Optional fields: absent gives the fallback.
  Result<int32_t> integer_or(std::string_view name, int64_t min, int64_t max, int32_t fallback);
  Result<double> number_or(std::string_view name, double min, double max, double fallback);
  Result<bool> boolean_or(std::string_view name, bool fallback);
  Result<std::string> string_or(std::string_view name, std::string_view fallback);
  // A string that must be one of `allowed`.
  Result<std::string> choice_or(std::string_view name, std::initializer_list<std::string_view> allowed,
                                std::string_view fallback);
  Result<std::vector<std::string>> strings_or_empty(std::string_view name);
  // One integer or a list of them; ids from 0.
  Result<std::vector<int32_t>> ids_or_empty(std::string_view name);
  // The nested object, or null when absent.
  Result<const boost::json::object*> object_or_null(std::string_view name);

  // The one of several spellings that is present, or `names[0]`; two that disagree are an error.
  Result<std::string_view> spelling(std::initializer_list<std::string_view> names);

  void mark_known(std::string_view name) { known_.emplace(name); }
  // Fields that nothing asked for.
  std::vector<std::string> unknown() const;

  // "config.json: 'hidden_size' is -5; expected an integer from 1 to 1048576."
  Error bad_value(std::string_view name, std::string_view expected, ErrorCode code = ErrorCode::kInvalidArgument) const;

 private:
  const boost::json::object& object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

// A value as it stands in the file, cut to a length that fits in a sentence.
std::string shown(const boost::json::value& value);

}  // namespace lantern
