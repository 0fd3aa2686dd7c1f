// A tensor of weights that holds no numbers, one of every kind: nothing computed from it passes as a number.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "engine/session.h"
#include "engine_run.h"
#include "model/safetensors.h"

namespace lantern {
namespace {

// A copy of models/tiny whose tensors are spoiled and mended again.
class SpoiledModel {
 public:
  SpoiledModel() : path_(std::filesystem::temp_directory_path() / fmt::format("lantern_spoiled_{}", getpid())) {
    std::filesystem::copy(tiny_model(), path_, std::filesystem::copy_options::recursive);
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_write,
                                   std::filesystem::perm_options::add);
    }
  }
  ~SpoiledModel() {
    mend();
    std::filesystem::remove_all(path_);
  }
  SpoiledModel(const SpoiledModel&) = delete;
  SpoiledModel& operator=(const SpoiledModel&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Every value of the tensor becomes NaN, or the one in its middle.
  void spoil(const std::string& name, bool all) {
    const Checkpoint checkpoint = Checkpoint::open(path_).value();
    const Checkpoint::Tensor& tensor = *checkpoint.find(name);
    shard_ = tensor.file->path();
    begin_ = tensor.data().data() - tensor.file->mapping().data();
    before_.assign(reinterpret_cast<const char*>(tensor.data().data()), tensor.data().size());
    const std::string nan = tensor.info->dtype == DType::kF32 ? std::string("\0\0\xc0\x7f", 4) : "\xc0\x7f";
    std::string after = before_;
    const size_t middle = after.size() / 2 / nan.size() * nan.size();
    for (size_t at = all ? 0 : middle; at < (all ? after.size() : middle + 1); at += nan.size()) {
      after.replace(at, nan.size(), nan);
    }
    write(after);
  }
  void mend() {
    if (!shard_.empty()) write(before_);
    shard_.clear();
  }

 private:
  void write(const std::string& bytes) const {
    std::fstream stream(shard_, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(begin_);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(stream.flush().good());
  }

  std::filesystem::path path_;
  std::filesystem::path shard_;  // what is spoiled
  std::streamoff begin_ = 0;
  std::string before_;
};

std::unique_ptr<Session> load(const std::filesystem::path& dir, MlaForm form, const char* cache, int32_t drafts = 0) {
  SessionOptions options;
  options.model_dir = dir;
  options.device = "cpu";
  options.threads = 2;
  options.mla_form = form;
  options.kv_cache_dtype = cache;
  options.draft_tokens = drafts;
  return Session::load(options).value();
}

std::vector<int32_t> text(int32_t tokens) {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(tokens));
  for (int32_t i = 0; i < tokens; ++i) ids.push_back(3 + i * 37 % 2000);
  return ids;
}

// `position` is of the first token that has no log-probability; -1 where it depends on what the router chooses.
void expect_reported(const std::filesystem::path& dir, const std::string& tensor, int32_t tokens, int32_t position) {
  for (const MlaForm form : {MlaForm::kAuto, MlaForm::kAbsorbed}) {
    for (const char* cache : {"bf16", "fp8"}) {
      SCOPED_TRACE(fmt::format("{}, {}, {} cache, {} tokens", tensor, form == MlaForm::kAuto ? "expanded" : "absorbed",
                               cache, tokens));
      const auto session = load(dir, form, cache);
      const auto scores = session->score(text(tokens), 2);
      ASSERT_FALSE(scores.ok());
      const std::string start = "the model gives no number as the log-probability of token ";
      EXPECT_TRUE(scores.error().message().starts_with(position < 0 ? start : fmt::format("{}{}:", start, position)))
          << scores.error().message();
      GenerateRequest request;
      request.prompt = text(tokens);
      request.max_tokens = 2;
      const auto generated = session->generate(request, nullptr);
      ASSERT_FALSE(generated.ok());
      EXPECT_TRUE(generated.error().message().starts_with("the model gives no number as a logit of output token 0:"))
          << generated.error().message();
    }
  }
}

TEST(PoisonedWeights, EveryKindOfTensorIsReported) {
  SpoiledModel model;
  // Fewer tokens than a tile of keys: most of it is masked, which is not what NaN looks like.
  for (const char* tensor :
       {"model.embed_tokens.weight", "model.layers.1.input_layernorm.weight",
        "model.layers.1.self_attn.q_a_proj.weight", "model.layers.1.self_attn.q_a_layernorm.weight",
        "model.layers.0.self_attn.q_b_proj.weight", "model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
        "model.layers.1.self_attn.kv_a_layernorm.weight", "model.layers.0.self_attn.kv_b_proj.weight",
        "model.layers.1.self_attn.o_proj.weight", "model.layers.2.post_attention_layernorm.weight",
        "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.gate.weight",
        "model.layers.1.mlp.gate.e_score_correction_bias", "model.layers.2.mlp.shared_experts.up_proj.weight",
        "model.norm.weight", "lm_head.weight"}) {
    model.spoil(tensor, true);
    expect_reported(model.path(), tensor, 20, 1);
    model.mend();
  }
  model.spoil("model.layers.1.mlp.experts.3.down_proj.weight", true);
  expect_reported(model.path(), "an expert", 40, -1);
}

TEST(PoisonedWeights, OneValueIsEnough) {
  SpoiledModel model;
  for (const char* tensor :
       {"model.layers.1.input_layernorm.weight", "model.layers.1.self_attn.q_b_proj.weight",
        "model.layers.1.self_attn.kv_a_proj_with_mqa.weight", "model.layers.1.self_attn.kv_b_proj.weight",
        "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.gate.e_score_correction_bias", "model.norm.weight",
        "lm_head.weight"}) {
    model.spoil(tensor, false);
    expect_reported(model.path(), tensor, 20, 1);
    model.mend();
  }
}

// The indexer's weights matter to who sees more keys than it chooses, 128, and to nobody before.
TEST(PoisonedWeights, TheIndexerIsReportedWhereItChooses) {
  SpoiledModel model;
  for (const char* name : {"wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight"}) {
    for (const bool all : {true, false}) {
      model.spoil(fmt::format("model.layers.1.self_attn.indexer.{}", name), all);
      expect_reported(model.path(), name, 140, 129);
      EXPECT_TRUE(load(model.path(), MlaForm::kAuto, "bf16")->score(text(129), 0).ok());
      model.mend();
    }
  }
}

// A drafter that has no numbers drafts badly, and what comes out is the model's own all the same.
TEST(PoisonedWeights, ADrafterOfNoNumbersChangesNothing) {
  SpoiledModel model;
  GenerateRequest request;
  request.prompt = text(20);
  request.max_tokens = 12;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  const auto outputs = [&] { return load(model.path(), MlaForm::kAbsorbed, "bf16", 2)->generate(request, nullptr); };
  const std::vector<int32_t> want = outputs().value().tokens;
  for (const char* name : {"eh_proj.weight", "enorm.weight", "self_attn.kv_b_proj.weight"}) {
    model.spoil(fmt::format("model.layers.5.{}", name), true);
    const auto got = outputs();
    ASSERT_TRUE(got.ok()) << got.error().message();
    EXPECT_EQ(got->tokens, want) << name;
    model.mend();
  }
}

}  // namespace
}  // namespace lantern
