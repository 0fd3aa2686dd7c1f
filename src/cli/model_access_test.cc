#include "cli/model_access.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "cli/generation_config.h"

namespace lantern::cli {
namespace {

namespace fs = std::filesystem;

class ModelDirTest : public ::testing::Test {
 protected:
  ModelDirTest() {
    std::string name = (fs::temp_directory_path() / "lantern_model_XXXXXX").string();
    dir_ = mkdtemp(name.data());
    fs::permissions(dir_, fs::perms::all);
  }
  ~ModelDirTest() override {
    fs::permissions(dir_, fs::perms::all);
    fs::remove_all(dir_);
  }

  static std::string refusal(const fs::path& dir) {
    const Status checked = check_model_dir(dir);
    return checked.ok() ? "" : checked.error().message();
  }

  fs::path dir_;
};

TEST_F(ModelDirTest, WhatIsNoFolderIsSaid) {
  EXPECT_EQ(refusal(dir_), "");
  EXPECT_EQ(refusal(dir_.string() + "/"), "");
  const std::string missing = (dir_ / "missing").string();
  EXPECT_EQ(refusal(missing),
            missing + " does not exist; a model is a folder with config.json, tokenizer and safetensors");
  const std::string file = (dir_ / "file").string();
  std::ofstream(file) << "x";
  EXPECT_EQ(refusal(file), file + " is a file; a model is a folder with config.json, tokenizer and safetensors");
  EXPECT_NE(refusal(file + "/below").find("does not exist"), std::string::npos);
  const fs::path loop = dir_ / "loop";
  fs::create_symlink(loop, loop);
  EXPECT_NE(refusal(loop).find("cannot be looked at: Too many levels"), std::string::npos) << refusal(loop);
  EXPECT_NE(refusal(std::string(5000, 'x')).find("cannot be looked at: File name too long"), std::string::npos);
}

// For as long as it lives the process has nobody's rights, where it had all.
class AsNobody {
 public:
  AsNobody() {
    if (geteuid() == 0) lowered_ = seteuid(65534) == 0;
  }
  ~AsNobody() { EXPECT_TRUE(!lowered_ || seteuid(0) == 0); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  bool lowered_ = false;
};

TEST_F(ModelDirTest, AFolderThatMayNotBeReadIsSaid) {
  {
    const AsNobody nobody;
    if (geteuid() == 0 || !refusal(dir_).empty())
      GTEST_SKIP() << "nobody is not to be had here, or may not reach " << dir_;
  }
  const fs::path inner = dir_ / "inner";
  fs::create_directory(inner);
  for (const fs::perms perms : {fs::perms::none, fs::perms::owner_read | fs::perms::others_read,
                                fs::perms::owner_exec | fs::perms::others_exec}) {
    fs::permissions(inner, perms);
    const AsNobody nobody;
    EXPECT_EQ(refusal(inner), inner.string() + " may not be read: Permission denied");
  }
  fs::permissions(inner, fs::perms::all);
  fs::permissions(dir_, fs::perms::none);
  const AsNobody nobody;
  EXPECT_EQ(refusal(inner), inner.string() + " cannot be looked at: Permission denied");
}

TEST_F(ModelDirTest, SamplingThatACheckpointShipsIsCheckedWithItsFile) {
  const std::string path = (dir_ / "generation_config.json").string();
  const std::pair<const char*, const char*> cases[] = {
      {R"({"top_p": 0})", "top_p 0 is outside (0, 1]"},
      {R"({"temperature": -1})", "temperature -1 is outside [0, 100]"},
      {R"({"repetition_penalty": 0})", "repetition_penalty 0 is not a number above 0"},
      {R"({"top_k": -2})", "top_k -2 is not a whole number"},
  };
  for (const auto& [text, message] : cases) {
    std::ofstream(path) << text;
    const Result<GenerationConfig> config = load_generation_config(dir_);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_TRUE(config.error().message().starts_with(path + ": " + message)) << config.error().message();
  }
  std::ofstream(path) << R"({"temperature": 0.6, "top_p": 0.95, "top_k": null})";
  EXPECT_EQ(load_generation_config(dir_)->top_p, 0.95);
}

}  // namespace
}  // namespace lantern::cli
