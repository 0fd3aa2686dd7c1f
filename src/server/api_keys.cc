#include "server/api_keys.h"

#include <bit>
#include <random>

#include "base/file.h"

namespace lantern {
namespace {

constexpr size_t kMostFileBytes = size_t{1} << 20;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// SipHash-2-4 (Aumasson and Bernstein, 2012).
uint64_t sip_hash(uint64_t k0, uint64_t k1, std::string_view text) {
  uint64_t v0 = k0 ^ 0x736f6d6570736575u;
  uint64_t v1 = k1 ^ 0x646f72616e646f6du;
  uint64_t v2 = k0 ^ 0x6c7967656e657261u;
  uint64_t v3 = k1 ^ 0x7465646279746573u;
  const auto round = [&] {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  };
  const auto mix = [&](uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  };
  uint64_t word = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    word |= uint64_t{static_cast<unsigned char>(text[i])} << (8 * (i % 8));
    if (i % 8 == 7) {
      mix(word);
      word = 0;
    }
  }
  mix(word | uint64_t{text.size()} << 56);
  v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) round();
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  std::random_device random;
  for (uint64_t& word : secret_) word = uint64_t{random()} << 32 | random();
  for (std::string_view list : keys) {
    while (!list.empty()) {
      const size_t comma = std::min(list.find(','), list.size());
      if (const std::string_view key = trimmed(list.substr(0, comma)); !key.empty()) digests_.push_back(digest(key));
      list.remove_prefix(std::min(comma + 1, list.size()));
    }
  }
}

ApiKeys::Digest ApiKeys::digest(std::string_view key) const {
  return {sip_hash(secret_[0], secret_[1], key), sip_hash(secret_[2], secret_[3], key)};
}

bool ApiKeys::accepts(std::string_view key) const {
  const Digest given = digest(key);
  uint64_t found = 0;
  for (const Digest& known : digests_) {
    const uint64_t difference = (known[0] ^ given[0]) | (known[1] ^ given[1]);
    // 1 where there is no difference, without a branch.
    found |= ((difference | (~difference + 1)) >> 63) ^ 1;
  }
  return found != 0;
}

Result<std::vector<std::string>> ApiKeys::read_file(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, lantern::read_file(path, kMostFileBytes));
  std::vector<std::string> keys;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trimmed(rest.substr(0, end));
    if (!line.empty() && line[0] != '#') keys.emplace_back(line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (keys.empty()) return Error(ErrorCode::kInvalidArgument, path + ": has no keys; write one on each line");
  return keys;
}

std::string_view presented_key(const HttpRequest& request) {
  const std::string_view authorization = request.field("authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() > kBearer.size() && http_equal(authorization.substr(0, kBearer.size()), kBearer))
    return trimmed(authorization.substr(kBearer.size()));
  return trimmed(request.field("x-api-key"));
}

}  // namespace lantern
