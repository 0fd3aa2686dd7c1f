// What models/tiny chooses on devices of several kinds, that the report leaves out no launch, and what is required of
// it. Weights are random, in memory that is aligned as a GPU's is.
#include "model/dispatch_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "attention/host_choice.h"

namespace lantern {
namespace {

const DeviceTraits kHopper{.compute_capability = 90, .most_shared_bytes = 227 << 10};
const DeviceTraits kAda{.compute_capability = 89, .most_shared_bytes = 99 << 10};

class DispatchReport : public testing::Test {
 protected:
  void SetUp() override {
    Result<ModelConfig> config = load_model_config(std::filesystem::path(LANTERN_SOURCE_DIR) / "models/tiny");
    ASSERT_TRUE(config.ok()) << config.error().message();
    auto weights = make_dummy_weights(*config, DummyFormat::kBf16, 0, *device_);
    ASSERT_TRUE(weights.ok()) << weights.error().message();
    ModelOptions options;
    options.layouts = {.latent = LatentLayout::kBf16, .index = IndexKeyLayout::kFp8};
    options.limits = {.max_tokens = 512,
                      .max_requests = 8,
                      .max_query_len = 2,
                      .scratch_bytes = 0,
                      .max_blocks_per_request = 8,
                      .block_size = 64,
                      .num_blocks = 9,
                      .index_topk = config->index_topk,
                      .max_model_len = 512};
    options.sample_rows = 16;
    auto model = Model::create(*device_, *config, std::move(*weights), options);
    ASSERT_TRUE(model.ok()) << model.error().message();
    model_ = std::move(*model);
  }

  std::vector<DispatchChoice> as_on(const DeviceTraits& gpu) const {
    return report_dispatch(*model_, DeviceKind::kCuda, gpu);
  }

  // Launches of a step of `tokens` tokens of which the first `decodes` decode, of its logits and of the MTP layer, by
  // the op's name.
  std::map<std::string, int64_t> launches(int32_t tokens, int32_t decodes) {
    auto ints = PersistentBuffer<int32_t>::create(*device_, "step", 1024);
    CHECK(ints.ok(), "{}", ints.error().message());
    const Fixed<const int32_t> any((*ints)->fixed());
    StepView step;
    step.tokens = tokens;
    step.decode_tokens = decodes;
    step.requests = 1;
    step.block_table_stride = 8;
    step.token_request = step.token_context_len = step.slot_mapping = step.block_table = any;
    Stream stream(*device_);
    Result<std::unique_ptr<Graph>> graph =
        capture_graph(stream, {.tokens = tokens, .requests = 1}, [&](Stream& recording) -> Status {
          model_->forward(recording, step, any);
          model_->logits(recording, any, 1);
          model_->mtp_forward(recording, step, any, model_->activations().hidden);
          model_->mtp_logits(recording, any, 1);
          return {};
        });
    CHECK(graph.ok(), "{}", graph.error().message());
    std::map<std::string, int64_t> counts;
    for (const GraphCapture::Launch& launch : (*graph)->launches()) ++counts[launch.name];
    return counts;
  }

  std::unique_ptr<Device> device_ = make_host_device(1);
  std::unique_ptr<Model> model_;
};

std::string text(const std::vector<DispatchChoice>& report, std::string_view op) {
  std::string text;
  for (const DispatchChoice& c : report) {
    if (c.op() != op) continue;
    text += c.subject + " " + std::to_string(c.first_rows) + "-" + std::to_string(c.last_rows) + " " + c.chosen().name +
            "\n";
  }
  return text;
}

TEST_F(DispatchReport, OfModelsTinyOnHopper) {
  const std::vector<DispatchChoice> report = as_on(kHopper);
  const std::string linear = text(report, "linear");
  for (const char* entry :
       {"q_a_proj, BF16 128 x 256 1-32 linear.sm80.mma\n", "q_a_proj, BF16 128 x 256 33-512 linear.sm90a.wgmma\n",
        "indexer.wk, BF16 128 x 256 33-512 linear.sm90a.wgmma\n", "lm_head, BF16 2048 x 256 1-16 linear.sm80.mma\n"}) {
    EXPECT_NE(linear.find(entry), std::string::npos) << entry << "is not in\n" << linear;
  }
  EXPECT_EQ(
      text(report, "mlp"),
      "mlp, BF16 512 x 256 1-32 mlp.sm80.mma\nmlp, BF16 512 x 256 33-512 mlp.sm90a.wgmma\n"
      "shared experts, BF16 128 x 256 1-32 mlp.sm80.mma\nshared experts, BF16 128 x 256 33-512 mlp.sm90a.wgmma\n");
  // Two experts of eight for each token: eight rows each from 32 tokens on.
  EXPECT_EQ(text(report, "moe"),
            "8 experts, BF16 128 x 256 1-31 moe.sm80.mma\n8 experts, BF16 128 x 256 32-512 moe.sm90a.wgmma\n");
  EXPECT_EQ(text(report, "mla_decode"), "bf16 cache of 512 + 64 values, 4 heads 1-64 mla_decode.sm80.mma\n");
  EXPECT_EQ(text(report, "mla_prefill"), "bf16 cache of 512 + 64 values, 4 heads 1-512 mla_prefill.sm80.absorbed\n");
  EXPECT_EQ(text(report, "absorb_query"),
            "kv_b_proj, BF16 1024 x 512 1-8 absorb_query.sm80.few\n"
            "kv_b_proj, BF16 1024 x 512 9-64 absorb_query.sm80.many\n");
  EXPECT_EQ(text(report, "index_scores"), "fp8 index keys of 128 values, 8 heads 1-512 index_scores.sm80.mma\n");
  // What is by choice is no fallback, with the router's exact product and attention of four heads.
  for (const char* patterns : {"*sm90a*", "*.sm*", "*.wgmma,*.mma", "moe.*"}) {
    const Status met = require_implementations(report, patterns);
    EXPECT_TRUE(met.ok()) << patterns << ": " << met.error().message();
  }
}

TEST_F(DispatchReport, OfTheHostIsWhatItRuns) {
  ASSERT_TRUE(force_linear_host_implementation("linear.cpu.highway").ok());
  const std::vector<DispatchChoice> report = report_dispatch(*model_);
  ASSERT_TRUE(force_linear_host_implementation("").ok());
  for (const DispatchChoice& choice : report) {
    if (choice.op() == "linear") {
      EXPECT_STREQ(choice.chosen().name, "linear.cpu.highway") << choice.subject;
    }
    EXPECT_EQ(choice.first_rows, 1) << choice.subject;
  }
  const std::string attention = text(report, "mla_prefill");
  const std::string kernel = kHostPrefillKernels[choose<size_t>(kHostPrefillKernels, HostPrefillDesc{}, {})].name;
  EXPECT_EQ(attention, "bf16 cache of 512 + 64 values, 4 heads 1-512 " + kernel + "\n");
}

// A launch of the step that nobody added to the report would be missing here.
TEST_F(DispatchReport, LeavesOutNoLaunch) {
  std::map<std::string, int64_t> reported;
  const std::vector<DispatchChoice> report = as_on(kHopper);
  for (const DispatchChoice& c : report) {
    if (c.first_rows == 1) reported[std::string(c.op())] += std::max<int64_t>(1, std::ssize(c.layers));
  }
  const std::map<std::string, int64_t> decode = launches(8, 8), prefill = launches(8, 0);
  for (const char* op : {"linear", "mlp", "moe", "mla_decode", "absorb_query", "project_value"}) {
    EXPECT_EQ(reported[op], decode.at(op)) << op;
  }
  EXPECT_EQ(reported["index_scores"], decode.at("index_select"));
  EXPECT_EQ(reported["mla_prefill"], prefill.at("mla_prefill"));
  EXPECT_EQ(reported.size(), 8u);
}

TEST_F(DispatchReport, RequirementsNameWhatFallsBack) {
  // Shared memory of such a GPU does not hold the tiles of attention.
  Status met = require_implementations(as_on(kAda), "*.sm*");
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(met.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(
      met.error().message(),
      "mla_decode of bf16 cache of 512 + 64 values, 4 heads, layers 0-5 runs mla_decode.portable for 1 to 64 "
      "rows, but mla_decode.sm80.mma is required: a block of 64 heads wants more shared memory for bf16 rows than "
      "the GPU gives it; see --explain-dispatch, or require less");
  met = require_implementations(as_on(kAda), "linear.sm90a.*");
  ASSERT_FALSE(met.ok());
  EXPECT_NE(met.error().message().find("linear.sm80.mma for 1 to 512 rows"), std::string::npos);
  EXPECT_NE(met.error().message().find("capability 9.0"), std::string::npos);
  EXPECT_TRUE(require_implementations(as_on(kAda), "linear.sm80.*,moe.sm80.mma").ok());

  met = require_implementations(as_on(kHopper), "moe.portable");
  ASSERT_FALSE(met.ok());
  EXPECT_NE(met.error().message().find("takes all of this"), std::string::npos);
  met = require_implementations(as_on(kHopper), "*.mma,*.wmma");
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(met.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(met.error().message().find("'*.wmma'"), std::string::npos);
}

}  // namespace
}  // namespace lantern
