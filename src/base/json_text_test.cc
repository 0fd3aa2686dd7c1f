#include "base/json_text.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>

namespace lantern {
namespace {

namespace json = boost::json;

// What people and models know a number as, and what reads back as the same. The texts are Python's.
TEST(JsonText, NumbersAreWrittenAsPythonWritesThem) {
  const std::pair<double, const char*> kNumbers[] = {{0.5, "0.5"},
                                                     {1, "1.0"},
                                                     {-1, "-1.0"},
                                                     {0, "0.0"},
                                                     {-0.0, "-0.0"},
                                                     {1e-4, "0.0001"},
                                                     {9.9e-5, "9.9e-05"},
                                                     {1e-6, "1e-06"},
                                                     {1e15, "1000000000000000.0"},
                                                     {1e16, "1e+16"},
                                                     {1.5e300, "1.5e+300"},
                                                     {5e-324, "5e-324"},
                                                     {0.1 + 0.2, "0.30000000000000004"},
                                                     {-2.5, "-2.5"},
                                                     {123456.789, "123456.789"}};
  for (const auto& [number, text] : kNumbers) {
    EXPECT_EQ(json_text(json::value(number)), text);
    EXPECT_EQ(json::parse(text).as_double(), number);
  }
  EXPECT_EQ(json_text(json::value(int64_t{-7})), "-7");
  EXPECT_EQ(json_text(json::value(std::numeric_limits<uint64_t>::max())), "18446744073709551615");
}

TEST(JsonText, WhatIsNoNumberStaysJson) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const json::array odd{std::nan(""), kInfinity, -kInfinity};
  EXPECT_EQ(json_text(odd), "[null,1e99999,-1e99999]");
}

TEST(JsonText, TextAndStyle) {
  const char* text = R"({"b":[1,0.5,true,null,{}],"a":"\"\\\n\u0001é/"})";
  const json::value value = json::parse(text);
  EXPECT_EQ(json_text(value), text);
  EXPECT_EQ(json_text(value, kPythonJson), R"({"b": [1, 0.5, true, null, {}], "a": "\"\\\n\u0001é/"})");
  EXPECT_EQ(json_text(value.get_object(), {.sort_keys = true}), R"({"a":"\"\\\n\u0001é/","b":[1,0.5,true,null,{}]})");
  EXPECT_EQ(json_text(value.at("b").get_array()), "[1,0.5,true,null,{}]");
}

}  // namespace
}  // namespace lantern
