#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "model/safetensors_test_dir.h"

namespace lantern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A file of this header and so many bytes of data.
std::string container(std::string_view header, size_t data_bytes) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  file.append(header);
  file.append(data_bytes, '\x3f');
  return file;
}

Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), file.size());
}

std::string error_of(const std::string& file) {
  const Result<SafetensorsHeader> header = parse(file);
  return header.ok() ? "(accepted)" : header.error().message();
}

void write_text(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

// Written by safetensors 0.8.0: save_file({"a": float32 [[1, 2, 3], [4, 5, 6]], "b": bfloat16 [0.5, -2],
// "s": float32 scalar 7, "e": float8_e4m3fn [2, 0]}, metadata={"format": "pt"}).
constexpr unsigned char kReferenceFile[] = {
#include "model/safetensors_reference.inc"
};

TEST(Safetensors, ReadsAFileOfTheReferenceImplementation) {
  const fs::path dir = fresh_dir("reference");
  write_text(dir / "model.safetensors",
             std::string_view(reinterpret_cast<const char*>(kReferenceFile), sizeof kReferenceFile));
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_EQ(checkpoint->tensors().size(), 4u);
  EXPECT_EQ(checkpoint->shards()[0]->metadata().at("format"), "pt");
  const Checkpoint::Tensor* a = checkpoint->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->info->dtype, DType::kF32);
  EXPECT_THAT(a->info->shape, ElementsAre(2, 3));
  float values[6];
  ASSERT_EQ(a->data().size(), sizeof values);
  std::memcpy(values, a->data().data(), sizeof values);
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4, 5, 6));
  const Checkpoint::Tensor* b = checkpoint->find("b");
  uint16_t bits[2];
  ASSERT_EQ(b->data().size(), sizeof bits);
  std::memcpy(bits, b->data().data(), sizeof bits);
  EXPECT_EQ(to_float(bf16_t{bits[0]}), 0.5f);
  EXPECT_EQ(to_float(bf16_t{bits[1]}), -2.0f);
  EXPECT_THAT(checkpoint->find("s")->info->shape, ElementsAre());
  EXPECT_EQ(checkpoint->find("s")->info->count(), 1);
  EXPECT_EQ(checkpoint->find("e")->info->dtype, DType::kF8E4M3);
  EXPECT_EQ(checkpoint->find("e")->info->shape_text(), "[2, 0]");
  EXPECT_EQ(checkpoint->find("missing"), nullptr);
}

TEST(Safetensors, MalformedHeadersAreOneSentence) {
  const auto one = [](std::string_view fields) { return "{\"t\":{" + std::string(fields) + "}}"; };
  const struct {
    std::string file;
    const char* fragment;
  } cases[] = {
      {"", "0 bytes, too few"},
      {"1234567", "7 bytes, too few"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10), "more than the 100000000"},
      {std::string("\x64\0\0\0\0\0\0\0{}", 10),
       "the header claims 100 bytes, but the file has only 10: it is truncated"},
      {container("", 0), "not valid JSON"},
      {container("{", 0), "not valid JSON"},
      {container("[]", 0), "a list stands where an object of tensors"},
      {container("7", 0), "a number stands where an object of tensors"},
      {container("null", 0), "null stands where"},
      {container("\"x\"", 0), "a string stands where"},
      {container("{} {}", 0), "not valid JSON"},
      {container(R"({"t": 1})", 0), "a number stands where the description of 't'"},
      {container(R"({"t": [1]})", 0), "a list stands where the description of 't'"},
      {container(R"({"t": {}})", 0), "tensor 't' has no 'dtype'"},
      {container(one(R"("dtype":"U8","data_offsets":[0,4])"), 4), "tensor 't' has no 'shape'"},
      {container(one(R"("dtype":"U8","shape":[4])"), 4), "tensor 't' has no 'data_offsets'"},
      {container(one(R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1)"), 4), "unknown field 'x'"},
      {container(one(R"("dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4])"), 4), "two fields 'dtype'"},
      {container(one(R"("dtype":8,"shape":[4],"data_offsets":[0,4])"), 4), "a number stands where the dtype of 't'"},
      {container(one(R"("dtype":"U8","shape":4,"data_offsets":[0,4])"), 4), "a number stands where the shape of 't'"},
      {container(one(R"("dtype":"U8","shape":[-4],"data_offsets":[0,4])"), 4), "the shape of 't' holds -4"},
      {container(one(R"("dtype":"U8","shape":[4.0],"data_offsets":[0,4])"), 4), "the number 4 stands where"},
      {container(one(R"("dtype":"U8","shape":["4"],"data_offsets":[0,4])"), 4), "a string stands where"},
      {container(one(R"("dtype":"U8","shape":[[4]],"data_offsets":[0,4])"), 4), "a list stands inside"},
      {container(one(R"("dtype":"U8","shape":[{}],"data_offsets":[0,4])"), 4), "an object stands where"},
      {container(one(R"("dtype":"U8","shape":[true],"data_offsets":[0,4])"), 4), "a truth value stands where"},
      {container(one(R"("dtype":"U8","shape":[4],"data_offsets":[0])"), 4), "1 data_offsets; expected 2"},
      {container(one(R"("dtype":"U8","shape":[4],"data_offsets":[0,4,4])"), 4), "3 data_offsets; expected 2"},
      {container(one(R"("dtype":"U8","shape":[4],"data_offsets":[4,0])"), 4),
       "begins at byte 4 of the data and ends at 0"},
      {container(one(R"("dtype":"U8","shape":[4],"data_offsets":[0,8])"), 4),
       "ends at byte 8 of the data, but the file "
       "holds only 4: it is truncated"},
      {container(one(R"("dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551615])"), 4), "it is truncated"},
      {container(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4),
       "takes 8 bytes, but its data_offsets span 4"},
      {container(one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4])"), 4), "too many elements"},
      {container(one(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,4])"), 4), "has an extent of"},
      {container(one(R"("dtype":"U8","shape":[4],"data_offsets":[0,4])"), 5),
       "last 1 bytes of the file belong to no tensor"},
      {container(one(R"("dtype":"U8","shape":[4],"data_offsets":[1,5])"), 5),
       "1 bytes of the data in front of tensor 't'"},
      {container(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
           6),
       "tensors 'a' and 'b' overlap"},
      {container(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
           4),
       "'a' is listed twice"},
      {container(R"({"__metadata__":{"format":1}})", 0), "a number stands where the string 'format' of __metadata__"},
      {container(R"({"__metadata__":"pt"})", 0), "a string stands where an object of strings"},
  };
  for (const auto& c : cases) {
    const std::string error = error_of(c.file);
    EXPECT_THAT(error, HasSubstr(c.fragment)) << c.file.substr(std::min<size_t>(8, c.file.size()));
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

// Sizes whose product or sum wraps around would let a reader go beyond the file, and give away what lies there.
TEST(Safetensors, Cve_2025_53630_2026_27940_2026_7482_NoTensorIsLargerThanItsFile) {
  for (const char* tensor : {R"("dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4])",
                             R"("dtype":"F64","shape":[2305843009213693952,2],"data_offsets":[0,4])",
                             R"("dtype":"U8","shape":[9223372036854775807,3,3],"data_offsets":[0,4])",
                             R"("dtype":"U8","shape":[0,9223372036854775807,9223372036854775807],"data_offsets":[0,4])",
                             R"("dtype":"U8","shape":[4],"data_offsets":[18446744073709551612,18446744073709551616])",
                             R"("dtype":"U8","shape":[4],"data_offsets":[18446744073709551612,0])",
                             R"("dtype":"U8","shape":[1048576],"data_offsets":[0,1048576])",
                             R"("dtype":"F32","shape":[1048576],"data_offsets":[0,4])"}) {
    const std::string file = container("{\"t\":{" + std::string(tensor) + "}}", 4);
    EXPECT_NE(error_of(file), "(accepted)") << tensor;
  }
}

TEST(Safetensors, UnknownDtypesAreKeptForWhoeverUsesThem) {
  const Result<SafetensorsHeader> header =
      parse(container(R"({"t":{"dtype":"F9_E5M3","shape":[4],"data_offsets":[0,5]}})", 5));
  ASSERT_TRUE(header.ok()) << header.error().message();
  EXPECT_FALSE(header->tensors[0].dtype.has_value());
  EXPECT_EQ(header->tensors[0].dtype_name, "F9_E5M3");
}

TEST(Safetensors, TruncatedAndStrangeFiles) {
  const fs::path dir = fresh_dir("strange");
  EXPECT_THAT(Checkpoint::open(dir).error().message(), HasSubstr("holds neither model.safetensors nor"));
  const std::string whole = container(R"({"t":{"dtype":"F32","shape":[256],"data_offsets":[0,1024]}})", 1024);
  const fs::path path = dir / "model.safetensors";
  write_text(path, whole);
  EXPECT_TRUE(SafetensorsFile::open(path).ok());
  for (size_t bytes : {size_t{0}, size_t{3}, size_t{20}, whole.size() - 1024, whole.size() - 1}) {
    write_text(path, whole.substr(0, bytes));
    const auto file = SafetensorsFile::open(path);
    ASSERT_FALSE(file.ok()) << bytes;
    EXPECT_THAT(file.error().message(), HasSubstr(path.string())) << bytes;
    EXPECT_EQ(file.error().code(), ErrorCode::kCorrupt);
  }
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_THAT(SafetensorsFile::open(path).error().message(), HasSubstr("not a regular file"));
  EXPECT_EQ(SafetensorsFile::open(dir / "no").error().code(), ErrorCode::kNotFound);
}

TEST(Safetensors, IndexErrorsNameShardAndTensor) {
  const fs::path dir = fresh_dir("index");
  const auto index = [&](std::string_view map) {
    write_text(dir / "model.safetensors.index.json", "{\"weight_map\":" + std::string(map) + "}");
    const Result<Checkpoint> checkpoint = Checkpoint::open(dir);
    return checkpoint.ok() ? std::string("(accepted)") : checkpoint.error().message();
  };
  write_text(dir / "s1.safetensors", container(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
  EXPECT_EQ(index(R"({"a": "s1.safetensors"})"), "(accepted)");
  EXPECT_THAT(index(R"({"a": "s1.safetensors", "b": "s2.safetensors"})"),
              HasSubstr("s2.safetensors is missing; model.safetensors.index.json says that it holds 'b'"));
  EXPECT_THAT(index(R"({"a": "s1.safetensors", "b": "s1.safetensors"})"), HasSubstr("holds no tensor 'b'"));
  EXPECT_THAT(index(R"({"a": "../s1.safetensors"})"), HasSubstr("the file of tensor 'a' is \"../s1.safetensors\""));
  EXPECT_THAT(index(R"({"a": 1})"), HasSubstr("the file of tensor 'a' is 1"));
  EXPECT_THAT(index("{}"), HasSubstr("'weight_map' is missing"));
  EXPECT_THAT(index("[1]"), HasSubstr("'weight_map' is missing"));
  EXPECT_THAT(index("{"), HasSubstr("model.safetensors.index.json: not valid JSON at line 1, column"));
  fs::remove(dir / "model.safetensors.index.json");
  EXPECT_THAT(Checkpoint::open(dir).error().message(),
              HasSubstr("model.safetensors.index.json is missing, which says what s1.safetensors and the other files"));
}

TEST(Safetensors, WriterSplitsAndReaderFindsAll) {
  const fs::path dir = fresh_dir("writer");
  std::vector<std::pair<std::string, std::vector<std::byte>>> contents;
  std::mt19937 random(3);
  {
    SafetensorsWriter writer(dir, {.max_shard_bytes = 4096});
    for (int i = 0; i < 40; ++i) {
      const DType dtype = std::array{DType::kF8E4M3, DType::kF32, DType::kBF16}[static_cast<size_t>(i % 3)];
      const int64_t rows = 1 + static_cast<int64_t>(random() % 20);
      const std::string name = "layer." + std::to_string(i) + ".\"weight\"\\";
      ASSERT_TRUE(writer.declare(name, dtype, {rows, 13}).ok());
      contents.emplace_back(name, std::vector<std::byte>(dtype_bytes(dtype, static_cast<size_t>(rows * 13))));
      for (std::byte& b : contents.back().second) b = static_cast<std::byte>(random());
    }
    EXPECT_THAT(writer.declare(contents[3].first, DType::kU8, {1}).error().message(), HasSubstr("written twice"));
    ASSERT_TRUE(writer.begin().ok());
    for (size_t i = contents.size(); i-- > 0;) {  // backwards and in two pieces: the order is free
      const std::span<const std::byte> data = contents[i].second;
      ASSERT_TRUE(writer.write(contents[i].first, data.subspan(5), 5).ok());
      ASSERT_TRUE(writer.write(contents[i].first, data.first(5)).ok());
    }
    ASSERT_TRUE(writer.finish().ok());
  }
  const Result<Checkpoint> checkpoint = Checkpoint::open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_GT(checkpoint->shards().size(), 3u);
  EXPECT_EQ(checkpoint->tensors().size(), contents.size());
  for (const auto& shard : checkpoint->shards()) EXPECT_LE(fs::file_size(shard->path()), 4096u);
  for (const auto& [name, data] : contents) {
    const Checkpoint::Tensor* tensor = checkpoint->find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_TRUE(std::ranges::equal(tensor->data(), data)) << name;
    const auto address = reinterpret_cast<uintptr_t>(tensor->data().data());
    EXPECT_EQ(address % dtype_bytes(*tensor->info->dtype, 1), 0u) << name;
  }
}

TEST(Safetensors, OneShardHasThePlainNameAndNoIndex) {
  const fs::path dir = fresh_dir("single");
  SafetensorsWriter writer(dir);
  ASSERT_TRUE(writer.declare("scalar", DType::kF32, {}).ok());
  ASSERT_TRUE(writer.begin().ok());
  const float value = 2.5f;
  ASSERT_TRUE(writer.write("scalar", std::as_bytes(std::span(&value, 1))).ok());
  ASSERT_TRUE(writer.finish().ok());
  EXPECT_TRUE(fs::exists(dir / "model.safetensors"));
  EXPECT_FALSE(fs::exists(dir / "model.safetensors.index.json"));
  SafetensorsWriter again(dir);
  EXPECT_THAT(again.begin().error().message(), HasSubstr("cannot be written"));  // never overwrites
}

// Ten thousand damaged headers: each is read or refused, and whatever is read lies inside the file.
TEST(Safetensors, SurvivesRandomDamage) {
  const std::string good =
      container(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]},)"
                R"("b.weight":{"dtype":"F8_E4M3","shape":[3,5],"data_offsets":[32,47]},)"
                R"("c":{"dtype":"BF16","shape":[],"data_offsets":[47,49]}})",
                49);
  ASSERT_TRUE(parse(good).ok()) << error_of(good);
  std::mt19937_64 random(11);
  int refused = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string damaged = good;
    for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % damaged.size();
      switch (random() % 5) {
        case 0: damaged[at] = static_cast<char>(random()); break;
        case 1: damaged[at] = "0123456789{}[],:\"-e."[random() % 20]; break;
        case 2:
          damaged = damaged.substr(0, at) + damaged.substr(std::min(damaged.size(), at + 1 + random() % 9));
          break;
        case 3: damaged = damaged.substr(0, at) + std::to_string(random()) + damaged.substr(at); break;
        default: damaged.resize(at); break;
      }
      if (damaged.empty()) break;
      // Half of the time repair the length, so that the damage reaches the JSON.
      if (damaged.size() > 57 && random() % 2 == 0) {
        const uint64_t length = damaged.size() - 57;
        for (size_t b = 0; b < 8; ++b) damaged[b] = static_cast<char>(length >> (8 * b));
      }
    }
    // In memory of exactly this size, so that a sanitizer sees any read beyond it.
    const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(damaged.data()),
                                       reinterpret_cast<const std::byte*>(damaged.data()) + damaged.size());
    const Result<SafetensorsHeader> header = parse_safetensors_header(bytes, bytes.size());
    if (!header.ok()) {
      ++refused;
      ASSERT_FALSE(header.error().message().empty());
      continue;
    }
    for (const TensorInfo& tensor : header->tensors) {
      ASSERT_LE(tensor.begin, tensor.end);
      ASSERT_LE(header->data_begin + tensor.end, bytes.size());
      ASSERT_GE(tensor.count(), 0);
    }
  }
  EXPECT_GT(refused, 5000);
  EXPECT_LT(refused, 10000);
}

}  // namespace
}  // namespace lantern
