// The C ABI on the CPU, by its header alone; what a plan says is tested elsewhere.
#include "lantern/plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

extern "C" uint32_t lantern_plan_header_is_c(void);  // c_header.c

namespace {

using Ints = std::vector<int32_t>;

struct Destroy {
  void operator()(lantern_plan* plan) const { lantern_plan_destroy(plan); }
};
using Plan = std::unique_ptr<lantern_plan, Destroy>;

// Two cache groups: one of 64 tokens a block, one of 128 with an entry for every 4 tokens.
struct PlanSetup {
  lantern_plan_group groups[2]{};
  lantern_plan_config config{};
  std::vector<int64_t> memory;  // aligned to 16 bytes by operator new

  PlanSetup() {
    groups[0] = {sizeof(lantern_plan_group), 64, 1, 9, 2, 0};
    groups[1] = {sizeof(lantern_plan_group), 128, 4, 5, 1, 3};
    config.struct_size = sizeof(config);
    config.device_kind = LANTERN_DEVICE_CPU;
    config.max_requests = 4;
    config.max_tokens = 16;
    config.max_query_len = 4;
    config.max_model_len = 128;
    config.groups = groups;
    config.num_groups = 2;
    config.outputs = LANTERN_PLAN_FLATTENED | LANTERN_PLAN_PER_REQUEST | LANTERN_PLAN_DRAFTS;
    config.workers = 4;
    config.mla_parts = 2;
    config.mla_fixed_overhead_blocks = 5;
  }
  Plan make() {
    size_t bytes = 0;
    EXPECT_EQ(lantern_plan_buffer_bytes(&config, &bytes), LANTERN_OK) << lantern_plan_last_error();
    memory.assign(bytes / sizeof(int64_t) + 1, 0x7ffffff07ffffff0);
    lantern_plan* plan = nullptr;
    EXPECT_EQ(lantern_plan_create(&config, memory.data(), bytes, &plan), LANTERN_OK) << lantern_plan_last_error();
    return Plan(plan);
  }
};

struct Batch {
  int32_t num_requests = 4, num_tokens = 8;
  Ints query_start_loc{0, 3, 4, 8, 8}, seq_lens{10, 7, 12, 0}, prefilling{0, 0, 0, 0}, accepted{2, 0, 1, 0};
  Ints table0{3, 0, 5, 0, 2, 0, 0, 0}, table1{1, -1, -1, 2, -1, -1, 3, -1, -1, 0, -1, -1};
  const int32_t* tables[2] = {table0.data(), table1.data()};
  lantern_plan_inputs inputs{};
  lantern_plan_bucket bucket{sizeof(bucket), 12, 4, 4};

  Batch() {
    inputs = {
        sizeof(inputs),  2,     &num_requests, &num_tokens, query_start_loc.data(), seq_lens.data(), prefilling.data(),
        accepted.data(), tables};
  }
};

Ints output(const Plan& plan, lantern_plan_output which, size_t count, uint32_t group = 0) {
  lantern_plan_array array{};
  array.struct_size = sizeof(array);
  EXPECT_EQ(lantern_plan_get_output(plan.get(), which, group, &array), LANTERN_OK) << lantern_plan_last_error();
  EXPECT_GE(array.size, count);
  return {array.data, array.data + std::min(count, array.size)};
}

std::string error_of(lantern_status status) {
  EXPECT_NE(status, LANTERN_OK);
  return lantern_plan_last_error();
}

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(PlanCAbi, SizesBeyondAnyMachineAreRefused) {
  PlanSetup setup;
  std::vector<lantern_plan_group> groups(4, lantern_plan_group{sizeof(lantern_plan_group), 64, 1, 9, INT32_MAX, 0});
  setup.config.groups = groups.data();
  setup.config.max_tokens = INT32_MAX;
  for (uint32_t count = 1; count <= 4; ++count) {
    setup.config.num_groups = count;  // the sum of four such tables is 2^64 elements
    size_t bytes = 0;
    EXPECT_NE(error_of(lantern_plan_buffer_bytes(&setup.config, &bytes)).find("more memory"), std::string::npos);
    EXPECT_EQ(bytes, 0u);
    std::vector<int64_t> memory(1 << 20);
    lantern_plan* plan = nullptr;
    EXPECT_NE(error_of(lantern_plan_create(&setup.config, memory.data(), memory.size() * 8, &plan)), "");
    EXPECT_EQ(plan, nullptr);
  }
}

TEST(PlanCAbi, TheHeaderIsC) { EXPECT_EQ(lantern_plan_header_is_c(), lantern_plan_abi_version()); }

TEST(PlanCAbi, PlansTwoCacheGroups) {
  PlanSetup setup;
  const Plan plan = setup.make();
  Batch batch;
  ASSERT_EQ(lantern_plan_run(plan.get(), &batch.inputs, &batch.bucket, nullptr), LANTERN_OK)
      << lantern_plan_last_error();
  EXPECT_EQ(output(plan, LANTERN_PLAN_TOKEN_CONTEXT_LEN, 12), (Ints{8, 9, 10, 7, 9, 10, 11, 12, 0, 0, 0, 0}));
  EXPECT_EQ(output(plan, LANTERN_PLAN_TOKEN_REQUEST, 12), (Ints{0, 0, 0, 1, 2, 2, 2, 2, -1, -1, -1, -1}));
  EXPECT_EQ(output(plan, LANTERN_PLAN_SLOT_MAPPING, 12, 0),
            (Ints{199, 200, 201, 326, 136, 137, 138, 139, -1, -1, -1, -1}));
  // Blocks of 128 tokens in the second group, and windows of four that end at the lengths 8 and 12.
  EXPECT_EQ(output(plan, LANTERN_PLAN_SLOT_MAPPING, 4, 1), (Ints{135, 136, 137, 262}));
  EXPECT_EQ(output(plan, LANTERN_PLAN_COMPRESSED_CONTEXT_LEN, 8, 1), (Ints{2, 2, 2, 1, 2, 2, 2, 3}));
  EXPECT_EQ(output(plan, LANTERN_PLAN_COMPRESSED_SLOT_MAPPING, 8, 1), (Ints{33, -1, -1, -1, -1, -1, -1, 98}));
  EXPECT_EQ(output(plan, LANTERN_PLAN_COMPRESSED_SLOT_MAPPING, 0, 0), Ints());
  EXPECT_EQ(output(plan, LANTERN_PLAN_PER_REQUEST_CONTEXT_LENS, 16),
            (Ints{8, 9, 10, 10, 7, 7, 7, 7, 9, 10, 11, 12, 0, 0, 0, 0}));
  EXPECT_EQ(output(plan, LANTERN_PLAN_EXPANDED_BLOCK_TABLE, 8), (Ints{3, 0, 3, 0, 3, 0, 5, 0}));
  EXPECT_EQ(output(plan, LANTERN_PLAN_MLA_NUM_SPLITS, 5), (Ints{0, 1, 2, 3, 4}));
  EXPECT_EQ(output(plan, LANTERN_PLAN_DRAFT_TOKEN_INDICES, 4), (Ints{2, 3, 5, -1}));
  EXPECT_EQ(output(plan, LANTERN_PLAN_COUNTS, 9), (Ints{3, 0, 8, 0, 4, 8, 1, 0, 0}));
}

TEST(PlanCAbi, FaultsOfABatchAreOutput) {
  PlanSetup setup;
  const Plan plan = setup.make();
  Batch batch;
  batch.table0[2] = 9;
  ASSERT_EQ(lantern_plan_run(plan.get(), &batch.inputs, &batch.bucket, nullptr), LANTERN_OK);
  EXPECT_EQ(output(plan, LANTERN_PLAN_ERRORS, 4), (Ints{1, 19, -1, 0}));
  EXPECT_STREQ(lantern_plan_fault_name(19), "block_outside_pool");
  expect_says(lantern_plan_fault_message(19), "[0, num_blocks)");
  EXPECT_STREQ(lantern_plan_fault_name(12345), "none");
}

TEST(PlanCAbi, WrongSizesOfStructsAreRefused) {
  PlanSetup setup;
  size_t bytes = 0;
  for (const uint32_t size : {0u, 4u, static_cast<uint32_t>(sizeof(lantern_plan_config) - 1), 0x7ffffff0u}) {
    setup.config.struct_size = size;
    expect_says(error_of(lantern_plan_buffer_bytes(&setup.config, &bytes)), "lantern_plan_config.struct_size");
  }
  setup.config.struct_size = sizeof(lantern_plan_config);
  setup.groups[0].struct_size = 8;
  expect_says(error_of(lantern_plan_buffer_bytes(&setup.config, &bytes)), "lantern_plan_group.struct_size");
  setup.groups[0].struct_size = sizeof(lantern_plan_group);
  setup.groups[1].struct_size = sizeof(lantern_plan_group) + 4;
  expect_says(error_of(lantern_plan_buffer_bytes(&setup.config, &bytes)), "in cache group 1");
}

TEST(PlanCAbi, ANewerCallerIsUnderstoodAsFarAsItAsksForNothingNew) {
  struct Newer {
    lantern_plan_config config;
    int64_t further;
  } newer{};
  PlanSetup setup;
  newer.config = setup.config;
  newer.config.struct_size = sizeof(newer);
  size_t bytes = 0, expected = 0;
  ASSERT_EQ(lantern_plan_buffer_bytes(&setup.config, &expected), LANTERN_OK);
  ASSERT_EQ(lantern_plan_buffer_bytes(&newer.config, &bytes), LANTERN_OK) << lantern_plan_last_error();
  EXPECT_EQ(bytes, expected);
  newer.further = 1;
  expect_says(error_of(lantern_plan_buffer_bytes(&newer.config, &bytes)), "does not know");
}

TEST(PlanCAbi, WrongArgumentsAreNamed) {
  PlanSetup setup;
  size_t bytes = 0;
  lantern_plan* none = nullptr;
  expect_says(error_of(lantern_plan_buffer_bytes(nullptr, &bytes)), "lantern_plan_config is NULL");
  expect_says(error_of(lantern_plan_buffer_bytes(&setup.config, nullptr)), "bytes is NULL");
  ASSERT_EQ(lantern_plan_buffer_bytes(&setup.config, &bytes), LANTERN_OK);
  setup.memory.assign(bytes / sizeof(int64_t), 0);
  expect_says(error_of(lantern_plan_create(&setup.config, nullptr, bytes, &none)), "16 bytes");
  expect_says(error_of(lantern_plan_create(&setup.config, setup.memory.data(), bytes - 4, &none)), "needs");
  setup.config.max_tokens = 15;
  expect_says(error_of(lantern_plan_create(&setup.config, setup.memory.data(), bytes, &none)), "max_tokens");
  setup.config.max_tokens = 16;
  setup.config.device_kind = 7;
  expect_says(error_of(lantern_plan_create(&setup.config, setup.memory.data(), bytes, &none)), "device_kind");
  setup.config.device_kind = LANTERN_DEVICE_CPU;
  setup.config.outputs |= 64;
  expect_says(error_of(lantern_plan_create(&setup.config, setup.memory.data(), bytes, &none)), "0x40");
  setup.config.outputs &= ~64u;
  setup.config.num_groups = 5;
  expect_says(error_of(lantern_plan_create(&setup.config, setup.memory.data(), bytes, &none)), "cache groups");
  EXPECT_EQ(none, nullptr);
  setup.config.num_groups = 2;

  const Plan plan = setup.make();
  Batch batch;
  batch.bucket.tokens = 17;
  expect_says(error_of(lantern_plan_run(plan.get(), &batch.inputs, &batch.bucket, nullptr)), "bucket tokens is 17");
  batch.bucket.tokens = 12;
  expect_says(error_of(lantern_plan_run(plan.get(), &batch.inputs, &batch.bucket, &batch)), "stream");
  batch.inputs.accepted = nullptr;
  expect_says(error_of(lantern_plan_run(plan.get(), &batch.inputs, &batch.bucket, nullptr)), "accepted is NULL");
  batch.inputs.accepted = batch.accepted.data();
  batch.inputs.num_block_tables = 1;
  expect_says(error_of(lantern_plan_run(plan.get(), &batch.inputs, &batch.bucket, nullptr)), "block tables");

  lantern_plan_array array{};
  array.struct_size = sizeof(array);
  expect_says(error_of(lantern_plan_get_output(plan.get(), LANTERN_PLAN_SLOT_MAPPING, 2, &array)), "group 2");
  expect_says(error_of(lantern_plan_get_output(plan.get(), LANTERN_PLAN_COUNTS, 1, &array)), "not of a cache group");
  expect_says(error_of(lantern_plan_get_output(plan.get(), static_cast<lantern_plan_output>(24), 0, &array)), "24");
  lantern_plan_destroy(nullptr);
}

}  // namespace
