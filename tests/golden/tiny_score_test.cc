// The model that ships with the repository, scored through the session that `lantern score` uses, against transformers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "engine/session.h"
#include "golden/golden_case.h"

namespace lantern::golden {
namespace {

namespace json = boost::json;

std::filesystem::path tiny_dir() { return std::filesystem::path(LANTERN_SOURCE_DIR) / "models/tiny"; }

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

// CRC-32 as zlib computes it (reflected polynomial 0xedb88320), continued over several files.
uint32_t crc32(std::string_view bytes, uint32_t crc) {
  static const std::vector<uint32_t> table = [] {
    std::vector<uint32_t> entries(256);
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320u : 0u);
      entries[i] = value;
    }
    return entries;
  }();
  crc = ~crc;
  for (char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(c)) & 0xffu];
  return ~crc;
}

struct Spread {
  double sum = 0;
  double max = 0;
  int64_t count = 0;

  void add(double error) {
    sum += error;
    max = std::max(max, std::isnan(error) ? INFINITY : error);
    ++count;
  }
  double mean() const { return sum / static_cast<double>(count); }
};

class TinyScore : public testing::Test {
 protected:
  void SetUp() override {
    golden_ = json::parse(read_file(golden_data_dir() / "tiny_score.json")).as_object();
    std::vector<std::filesystem::path> shards;
    for (const auto& entry : std::filesystem::directory_iterator(tiny_dir())) {
      if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
    }
    std::sort(shards.begin(), shards.end());
    uint32_t crc = 0;
    for (const auto& shard : shards) crc = crc32(read_file(shard), crc);
    ASSERT_EQ(crc, golden_.at("weights_crc32").to_number<uint32_t>())
        << "models/tiny was trained anew: run tools/make_goldens/score_tiny.py";
  }

  // Difference of every log-probability to the golden's list of that name.
  Spread difference(const std::string& kv_cache_dtype, int32_t prefill_chunk, const char* list) {
    Spread spread;
    SessionOptions options;
    options.model_dir = tiny_dir();
    options.device = "cpu";
    options.kv_cache_dtype = kv_cache_dtype;
    options.prefill_chunk = prefill_chunk;
    auto session = Session::load(options);
    if (!session.ok()) {
      ADD_FAILURE() << session.error().message();
      return spread;
    }
    for (const json::value& text : golden_.at("texts").as_array()) {
      const auto ids = json::value_to<std::vector<int32_t>>(text.at("ids"));
      const auto want = json::value_to<std::vector<double>>(text.at(list));
      const auto got = (*session)->score(ids, 0);
      if (!got.ok()) {
        ADD_FAILURE() << got.error().message();
        return spread;
      }
      EXPECT_EQ(got->size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) spread.add(std::abs(static_cast<double>((*got)[i].logprob) - want[i]));
    }
    return spread;
  }

  double recorded(const char* what, const char* which) const { return golden_.at(what).at(which).to_number<double>(); }

  json::object golden_;
};

TEST_F(TinyScore, DefaultSettingsEqualTheReferenceThatRoundsAlike) {
  const Spread spread = difference("auto", 512, "served");
  std::cout << fmt::format("default caches against the reference that rounds alike: mean {:.1e}, max {:.1e} over {}\n",
                           spread.mean(), spread.max, spread.count);
}

TEST_F(TinyScore, EveryCacheIsAsCloseToTransformersAsRoundingAllows) {
  for (const char* dtype : {"f32", "auto", "fp8"}) {
    const Spread spread = difference(dtype, 200, "logprobs");
    std::cout << fmt::format(
        "{} caches against transformers: mean {:.1e}, max {:.1e}; the reference's rounding {:.1e}, {:.1e}\n", dtype,
        spread.mean(), spread.max, recorded("rounding", "mean"), recorded("rounding", "max"));
  }
}

}  // namespace
}  // namespace lantern::golden
