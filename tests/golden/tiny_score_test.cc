// The model that ships with the repository, scored through the session that `lantern score` uses, against transformers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>

#include "engine/session.h"
#include "golden/golden_case.h"
#include "model/safetensors.h"

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

// The shipped weights, which are bf16, as a checkpoint of float tensors of the same values: the engine then rounds
// nothing that transformers does not round.
void write_widened(const std::filesystem::path& dir) {
  std::filesystem::copy_file(tiny_dir() / "config.json", dir / "config.json");
  const auto checkpoint = Checkpoint::open(tiny_dir());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  SafetensorsWriter writer(dir);
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    ASSERT_TRUE(writer.declare(name, DType::kF32, tensor.info->shape).ok());
  }
  ASSERT_TRUE(writer.begin().ok());
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    std::span<const std::byte> data = tensor.data();
    std::vector<float> wide;
    if (tensor.info->dtype == DType::kBF16) {
      for (size_t i = 0; i < data.size(); i += 2) {
        bf16_t value;
        std::memcpy(&value, data.data() + i, 2);
        wide.push_back(to_float(value));
      }
      data = std::as_bytes(std::span(wide));
    } else {
      ASSERT_EQ(tensor.info->dtype, DType::kF32) << name;
    }
    ASSERT_TRUE(writer.write(name, data).ok());
  }
  ASSERT_TRUE(writer.finish().ok());
}

struct Spread {
  std::vector<double> errors;

  double mean() const {
    return std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(std::max<size_t>(errors.size(), 1));
  }
  double quantile(double q) const {
    std::vector<double> sorted = errors;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? INFINITY : sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
  }
  std::string text() const {
    return fmt::format("mean {:.1e}, 95 % within {:.1e}, all within {:.1e}", mean(), quantile(0.95), quantile(1));
  }
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

  static SessionOptions options(std::string_view kv_cache_dtype, const std::filesystem::path& dir = tiny_dir()) {
    SessionOptions result;
    result.model_dir = dir;
    result.device = "cpu";
    result.kv_cache_dtype = kv_cache_dtype;
    result.prefill_chunk = 200;  // several chunks in the long texts
    return result;
  }

  // Difference of every log-probability to the golden's list of that name.
  Spread difference(const SessionOptions& session_options, const char* list) {
    Spread spread;
    auto session = Session::load(session_options);
    if (!session.ok()) {
      ADD_FAILURE() << session.error().message();
      return spread;
    }
    for (const json::value& text : golden_.at("texts").as_array()) {
      const auto ids = json::value_to<std::vector<int32_t>>(text.at("ids"));
      const auto want = json::value_to<std::vector<double>>(text.at(list));
      const auto got = (*session)->score(ids, 0);
      if (!got.ok() || got->size() != want.size()) {
        ADD_FAILURE() << (got.ok() ? "wrong number of scores" : got.error().message());
        return spread;
      }
      for (size_t i = 0; i < want.size(); ++i) {
        const double error = std::abs(static_cast<double>((*got)[i].logprob) - want[i]);
        spread.errors.push_back(std::isnan(error) ? INFINITY : error);
      }
    }
    return spread;
  }

  double recorded(const char* what, const char* which) const { return golden_.at(what).at(which).to_number<double>(); }

  json::object golden_;
};

TEST_F(TinyScore, UnroundedEqualsTransformers) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_widened(folder.path()));
  const Spread spread = difference(options("f32", folder.path()), "logprobs");
  std::cout << "float weights and caches, against transformers: " << spread.text() << "\n";
  // Our float64 reference is 5e-6 (mean) and 1e-3 (largest) from transformers' float32; a key swapped by the indexer
  // among almost equal scores makes the largest.
  EXPECT_LE(spread.mean(), 2e-5);
  EXPECT_LE(spread.quantile(0.95), 1e-4);
  EXPECT_LE(spread.quantile(1), 2e-3);
}

// Two runs that round alike differ where a tiny error flips a rounding: the golden recorded by how much ("flips").
TEST_F(TinyScore, DefaultSettingsEqualTheReferenceThatRoundsAlike) {
  const Spread spread = difference(options("auto"), "served");
  std::cout << "default settings, against the reference that rounds alike: " << spread.text() << "\n";
  EXPECT_LE(spread.mean(), 1.5 * recorded("flips", "mean"));
  EXPECT_LE(spread.quantile(0.95), 1.5 * recorded("flips", "p95"));
}

TEST_F(TinyScore, EveryCacheIsAsCloseToTransformersAsItsRoundingAllows) {
  for (const auto& [dtype, rounding] : {std::pair{"f32", "rounding"}, {"auto", "rounding"}, {"fp8", "rounding_fp8"}}) {
    const Spread spread = difference(options(dtype), "logprobs");
    std::cout << dtype << " caches, against transformers: " << spread.text() << "\n";
    EXPECT_LE(spread.mean(), 1.5 * recorded(rounding, "mean")) << dtype;
    EXPECT_LE(spread.quantile(0.95), 1.5 * recorded(rounding, "p95")) << dtype;
  }
}

// The bounds are worth something: without the indexer's choice the same comparison fails by far.
TEST_F(TinyScore, TheMostRecentKeysInsteadOfTheIndexersChoiceAreNoticed) {
  SessionOptions recent = options("auto");
  recent.indexer = "recent";
  const Spread spread = difference(recent, "served");
  std::cout << "most recent keys, against the reference: " << spread.text() << "\n";
  EXPECT_GT(spread.mean(), 3 * recorded("flips", "mean"));
}

}  // namespace
}  // namespace lantern::golden
