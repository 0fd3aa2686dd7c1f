#include "server/sse_reader.h"

#include <gtest/gtest.h>

#include <vector>

namespace lantern {
namespace {

const std::string kStream =
    ": a comment\n\n"
    "data: {\"a\": 1}\n\n"
    "event: ping\ndata:no space\nid: 7\n\n"
    "data: two\r\ndata: lines\r\n\r\n"
    "data: by return\r\r"
    ": ping\n\n"
    "data\n\n"
    "\n\n"
    "data:  one space stays\n\n"
    "data: [DONE]\n\n"
    "data: never ended\n";
const std::vector<std::string> kEvents = {"{\"a\": 1}", "no space",         "two\nlines", "by return",
                                          "",           " one space stays", "[DONE]"};

std::vector<std::string> read(const std::vector<std::string_view>& pieces) {
  SseReader reader;
  std::vector<std::string> events;
  for (const std::string_view piece : pieces)
    EXPECT_TRUE(reader.push(piece, [&](std::string_view data) { events.emplace_back(data); }));
  return events;
}

TEST(SseReaderTest, EventsAreTheSameForEverySplit) {
  const std::string_view all = kStream;
  EXPECT_EQ(read({all}), kEvents);
  for (size_t i = 0; i <= all.size(); ++i) EXPECT_EQ(read({all.substr(0, i), all.substr(i)}), kEvents) << i;
  std::vector<std::string_view> bytes;
  bytes.reserve(all.size());
  for (size_t i = 0; i < all.size(); ++i) bytes.push_back(all.substr(i, 1));
  EXPECT_EQ(read(bytes), kEvents);
}

TEST(SseReaderTest, AnEventWithoutEndIsGivenUp) {
  SseReader reader;
  const std::string much(size_t{1} << 20, 'x');
  const auto nothing = [](std::string_view) { FAIL() << "no event ended"; };
  for (size_t i = 0; i + 1 < SseReader::kMostBytes / much.size(); ++i) ASSERT_TRUE(reader.push(much, nothing)) << i;
  EXPECT_FALSE(reader.push(much, nothing) && reader.push(much, nothing));
}

}  // namespace
}  // namespace lantern
