#include "server/http_text.h"

#include <gtest/gtest.h>

#include "server/origins.h"

namespace lantern {
namespace {

TEST(HttpTextTest, Targets) {
  EXPECT_EQ(parse_target("/a/b?c=d?e")->path, "/a/b");
  EXPECT_EQ(parse_target("/a/b?c=d?e")->query, "c=d?e");
  EXPECT_EQ(parse_target("/")->path, "/");
  EXPECT_EQ(parse_target("*")->path, "*");
  EXPECT_EQ(parse_target("http://host:80/a?b")->path, "/a");
  EXPECT_EQ(parse_target("HTTPS://host")->path, "/");
  EXPECT_EQ(parse_target("http://host?x")->query, "x");
  for (const char* wrong : {"", "a", "http://", "http:///a", "ftp://host/a", "/a b", "/a#b", "/a\x7f", "/\xc3\xa4"})
    EXPECT_FALSE(parse_target(wrong)) << wrong;
  EXPECT_EQ(parse_target("/%2e%2e/x")->path, "/%2e%2e/x") << "nothing is decoded";
}

TEST(HttpTextTest, AnswersCannotBeSplit) {
  const std::string head =
      head_text({.status = 200, .fields = {{"X-Echo", "a\r\nSet-Cookie: b\nc"}}}, 11, HttpFraming::kLength, 3, false);
  EXPECT_NE(head.find("X-Echo: a  Set-Cookie: b c\r\n"), std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  EXPECT_NE(head.find("Content-Length: 3\r\n"), std::string::npos);
  EXPECT_EQ(chunk_text("data: x\n\n"), "9\r\ndata: x\n\n\r\n");
}

TEST(OriginsTest, Hosts) {
  EXPECT_EQ(host_of("LocalHost:8000"), "localhost");
  EXPECT_EQ(host_of("[::1]:8000"), "::1");
  EXPECT_EQ(host_of("example.org."), "example.org");
  for (const char* wrong : {"a:b", "a:80/x", "a/b", "user@a", "[::1", "a:80#"}) EXPECT_EQ(host_of(wrong), "") << wrong;
  for (const char* local : {"localhost", "x.localhost", "127.0.0.1", "127.1.2.3", "::1"})
    EXPECT_TRUE(is_loopback_host(local)) << local;
  for (const char* foreign : {"", "localhost.example.org", "127.example.org", "127.0.0.1.example.org", "128.0.0.1"})
    EXPECT_FALSE(is_loopback_host(foreign)) << foreign;
}

TEST(OriginsTest, Pages) {
  const auto request = [](std::string origin) {
    HttpRequest of;
    of.fields = {{"Host", "my.host:8000"}, {"Origin", std::move(origin)}};
    return of;
  };
  const AllowedOrigins none;
  EXPECT_TRUE(none.allows(HttpRequest{}));
  EXPECT_TRUE(none.allows(request("http://my.host:8000")));
  EXPECT_TRUE(none.allows(request("http://127.0.0.1:3000")));
  EXPECT_FALSE(none.allows(request("http://my.host:8001")));
  EXPECT_FALSE(none.allows(request("https://evil.example")));
  EXPECT_FALSE(none.allows(request("null")));
  EXPECT_TRUE(AllowedOrigins({"https://good.example"}).allows(request("https://good.example")));
  EXPECT_FALSE(AllowedOrigins({"https://good.example"}).allows(request("https://good.example.org")));
  EXPECT_TRUE(AllowedOrigins({"*"}).allows(request("null")));
}

}  // namespace
}  // namespace lantern
