// Builds one line of JSON. Numbers are written with the fewest digits that read back equal; a number that JSON cannot
// hold (NaN, infinity) becomes null. Text that is not UTF-8 gets U+FFFD.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lantern::cli {

class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool truth);
  JsonWriter& value(double number);
  JsonWriter& value(float number);
  JsonWriter& null();
  template <std::integral Integer>
  JsonWriter& value(Integer number) {
    return raw(std::to_string(number));
  }
  template <class T>
  JsonWriter& value(std::span<const T> items) {
    begin_array();
    for (const T& item : items) value(item);
    return end_array();
  }

  template <class T>
  JsonWriter& field(std::string_view name, const T& of) {
    return key(name).value(of);
  }

  std::string take() { return std::move(text_); }

 private:
  JsonWriter& raw(std::string_view text);
  void separate();

  std::string text_;
  bool need_comma_ = false;
};

}  // namespace lantern::cli
