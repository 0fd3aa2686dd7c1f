#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "base/log.h"

namespace lantern {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return Error(ErrorCode::kInvalidArgument, "odd");
  return x / 2;
}

Result<int> quarter(int x) {
  ASSIGN_OR_RETURN(const int once, half(x));
  ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

Status check_even(int x) {
  RETURN_IF_ERROR(half(x));
  return {};
}

Result<std::unique_ptr<int>> boxed(int x) {
  ASSIGN_OR_RETURN(int value, half(x));
  return std::make_unique<int>(value);
}

TEST(Result, CarriesAValueOrAnError) {
  const Result<int> good = half(8);
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(static_cast<bool>(good));
  EXPECT_EQ(*good, 4);
  const Result<int> bad = half(3);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(bad.error().message(), "odd");
}

TEST(Result, MacrosReturnTheFirstErrorAndBindTheValue) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_FALSE(quarter(6).ok());
  EXPECT_FALSE(quarter(5).ok());
  EXPECT_TRUE(check_even(2).ok());
  EXPECT_EQ(check_even(1).error().message(), "odd");
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> box = boxed(10);
  ASSERT_TRUE(box.ok());
  EXPECT_EQ(**box, 5);
  const std::unique_ptr<int> owned = std::move(box).value();
  EXPECT_EQ(*owned, 5);
  EXPECT_FALSE(boxed(1).ok());
  static_assert(!std::is_copy_constructible_v<Result<std::unique_ptr<int>>>);
}

TEST(Result, ErrorsSayWhere) {
  Error error(ErrorCode::kCorrupt, "the header ends early");
  EXPECT_EQ(std::move(error).within("model.safetensors").message(), "model.safetensors: the header ends early");
  EXPECT_EQ(Error(ErrorCode::kIo, "x").within("b").within("a").message(), "a: b: x");
}

TEST(Result, CodesHaveDistinctNames) {
  EXPECT_EQ(to_string(ErrorCode::kInvalidArgument), "invalid_argument");
  EXPECT_EQ(to_string(ErrorCode::kNotFound), "not_found");
  EXPECT_EQ(to_string(ErrorCode::kUnsupported), "unsupported");
  EXPECT_EQ(to_string(ErrorCode::kCorrupt), "corrupt");
  EXPECT_EQ(to_string(ErrorCode::kIo), "io");
  EXPECT_EQ(to_string(ErrorCode::kOutOfMemory), "out_of_memory");
}

TEST(CheckDeathTest, NamesThePlaceTheConditionAndTheValues) {
  const int tokens = 5;
  EXPECT_DEATH(CHECK(tokens < 4, "{} tokens in a bucket of {}", tokens, 4),
               "broken invariant at .*src/base/result_test.cc:[0-9]+: tokens < 4: 5 tokens in a bucket of 4");
}

TEST(Check, EvaluatesItsConditionOnceAndItsMessageNever) {
  int evaluated = 0;
  CHECK(++evaluated == 1, "{}", ++evaluated);
  EXPECT_EQ(evaluated, 1);
}

TEST(Log, LevelsAreOrdered) {
  set_log_level(LogLevel::kWarning);
  EXPECT_FALSE(log_enabled(LogLevel::kDebug));
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  EXPECT_TRUE(log_enabled(LogLevel::kWarning));
  EXPECT_TRUE(log_enabled(LogLevel::kError));
  testing::internal::CaptureStderr();
  log_info("unseen {}", 1);
  log_warning("field '{}' is not known", "frobnicate");
  const std::string output = testing::internal::GetCapturedStderr();
  EXPECT_EQ(output.find("unseen"), std::string::npos);
  EXPECT_NE(output.find("warning: field 'frobnicate' is not known"), std::string::npos) << output;
}

}  // namespace
}  // namespace lantern
