#include "server/api_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>

namespace lantern {
namespace {

TEST(ApiKeysTest, EveryKeyOfEveryListOpens) {
  const ApiKeys keys({"one", "two, three", "", " , "});
  for (const char* key : {"one", "two", "three"}) EXPECT_TRUE(keys.accepts(key)) << key;
  for (const char* key : {"", "on", "one ", "onee", "two, three", "four", "One"})
    EXPECT_FALSE(keys.accepts(key)) << key;
  EXPECT_FALSE(keys.accepts(std::string_view("one\0", 4)));
  EXPECT_TRUE(ApiKeys({"", ","}).empty());
  EXPECT_FALSE(ApiKeys().accepts(""));
}

TEST(ApiKeysTest, FilesHaveOneKeyALine) {
  const std::string path = ::testing::TempDir() + "lantern_api_keys";
  std::ofstream(path) << "first\r\n# a comment\n\n  second  \nthird";
  const auto keys = ApiKeys::read_file(path);
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(*keys, (std::vector<std::string>{"first", "second", "third"}));
  std::ofstream(path) << "# none\n";
  EXPECT_FALSE(ApiKeys::read_file(path).ok());
  EXPECT_FALSE(ApiKeys::read_file("/nonexistent").ok());
}

TEST(ApiKeysTest, HeadersThatCarryAKey) {
  const auto key_of = [](std::string name, std::string value) {
    HttpRequest request;
    request.fields.emplace_back(std::move(name), std::move(value));
    return std::string(presented_key(request));
  };
  EXPECT_EQ(key_of("Authorization", "Bearer abc"), "abc");
  EXPECT_EQ(key_of("authorization", "BEARER   abc "), "abc");
  EXPECT_EQ(key_of("X-Api-Key", "abc"), "abc");
  EXPECT_EQ(key_of("Authorization", "Basic abc"), "");
  EXPECT_EQ(key_of("Authorization", "Bearer "), "");
  EXPECT_EQ(key_of("Cookie", "abc"), "");
}

// CVE-2025-59425: a comparison that ends at the first difference tells how much of a guess was right. Guesses that
// share more and more of the key take as long as each other: medians of many, interleaved.
TEST(ApiKeysTest, Cve_2025_59425_TimeSaysNothing) {
  const std::string key(4096, 'k');
  const ApiKeys keys({key});
  std::vector<std::string> guesses;
  for (const size_t right : {size_t{0}, size_t{1024}, size_t{4095}}) {
    guesses.push_back(key);
    for (size_t i = right; i < key.size(); ++i) guesses.back()[i] = 'x';
  }
  std::vector<std::vector<double>> times(guesses.size());
  bool any = false;
  for (int round = 0; round < 2000; ++round) {
    for (size_t g = 0; g < guesses.size(); ++g) {
      const auto begin = std::chrono::steady_clock::now();
      any |= keys.accepts(guesses[g]);
      times[g].push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  }
  EXPECT_FALSE(any);
  std::vector<double> medians;
  for (auto& of_guess : times) {
    std::ranges::nth_element(of_guess, of_guess.begin() + 1000);
    medians.push_back(of_guess[1000]);
  }
  // memcmp() takes a tenth for the first guess of what it takes for the last.
  EXPECT_LT(*std::ranges::max_element(medians), 1.3 * *std::ranges::min_element(medians));
}

}  // namespace
}  // namespace lantern
