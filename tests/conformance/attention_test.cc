#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/block_copy.h"
#include "attention/cache_write.h"
#include "attention/indexer.h"
#include "attention/mla.h"
#include "conformance/conformance.h"

namespace lantern::conformance {
namespace {

// Sums of up to 512 products, in another order, through a softmax.
constexpr double kAttention = 5e-6;

// Queries and softmax weights rounded to bf16, as the tensor cores' kernels take them: 2^-9 of each, on average less.
// The largest of a million differences was 2.7e-3. One key of many is below that: the "uniform" cases see it.
constexpr double kRoundedAttention = 4e-3;

// Sums of values of one weight on tensor cores, which cut off what lies below the last place of a sum's largest part.
constexpr double kMean = 1e-5;

// Requests with these context lengths, the last `query_len` tokens of each in the step, then padding. Blocks are handed
// out in no order; entries beyond a request's length are garbage, as are block 0's neighbours beyond lengths.
struct Step {
  static constexpr int32_t kBlockSize = 64;

  std::vector<int32_t> token_request, token_context_len, slot_mapping, block_table;
  int32_t requests = 0, stride = 0, num_blocks = 1, key_offset = 0;

  Step(const std::vector<int32_t>& context_lens, int32_t query_len, int32_t padding, int32_t offset = 0)
      : key_offset(offset) {
    const auto blocks_of = [&](int32_t length) { return (length + key_offset + kBlockSize - 1) / kBlockSize; };
    requests = static_cast<int32_t>(context_lens.size());
    const int32_t longest = *std::max_element(context_lens.begin(), context_lens.end());
    stride = longest / kBlockSize + 2;
    for (const int32_t length : context_lens) num_blocks += blocks_of(length);
    std::vector<int32_t> blocks(static_cast<size_t>(num_blocks - 1));
    std::iota(blocks.begin(), blocks.end(), 1);
    Random random(31);
    std::shuffle(blocks.begin(), blocks.end(), random);
    block_table.assign(static_cast<size_t>(requests * stride), 0x7fffffff);
    size_t used = 0;
    for (int32_t r = 0; r < requests; ++r) {
      const int32_t length = context_lens[static_cast<size_t>(r)];
      for (int32_t b = 0; b < blocks_of(length); ++b) {
        block_table[static_cast<size_t>(r * stride + b)] = blocks[used++];
      }
      for (int32_t j = std::max(0, length - query_len); j < length; ++j) {
        token_request.push_back(r);
        token_context_len.push_back(j + 1);
        slot_mapping.push_back(slot_of(r, j));
      }
    }
    for (int32_t i = 0; i < padding; ++i) {
      token_request.push_back(-1);
      token_context_len.push_back(0);
      slot_mapping.push_back(-1);
    }
  }

  int32_t slot_of(int32_t r, int32_t position) const {
    const int32_t place = position + key_offset;
    return block_table[static_cast<size_t>(r * stride + place / kBlockSize)] * kBlockSize + place % kBlockSize;
  }
  int32_t tokens() const { return static_cast<int32_t>(token_request.size()); }

  StepView view(Bench& bench, bool decode) const {
    StepView view;
    view.tokens = tokens();
    view.decode_tokens = decode ? tokens() : 0;
    view.requests = requests;
    view.block_size = kBlockSize;
    view.block_table_stride = stride;
    view.key_offset = key_offset;
    view.token_request = bench.input(token_request);
    view.token_context_len = bench.input(token_context_len);
    view.slot_mapping = bench.input(slot_mapping);
    view.block_table = bench.input(block_table);
    return view;
  }
};

const std::vector<int32_t> kLengths = {1, 63, 64, 65, 300, 2047, 2048, 2049, 2300};

// A cache whose every position below a length was written, and NaN everywhere else but in the null block.
template <class Write>
Fixed<std::byte> filled_cache(Bench& bench, const Step& step, int64_t block_bytes, const Write& write) {
  std::vector<std::byte> bytes(static_cast<size_t>(step.num_blocks * block_bytes), std::byte{0xff});
  std::fill_n(bytes.begin(), block_bytes, std::byte{0});
  const auto cache = bench.put(bytes);
  std::vector<int32_t> slots;
  const auto lens = step.token_context_len;
  for (int32_t r = 0; r < step.requests; ++r) {
    int32_t length = 0;
    for (int32_t t = 0; t < step.tokens(); ++t) {
      if (step.token_request[static_cast<size_t>(t)] == r) length = std::max(length, lens[static_cast<size_t>(t)]);
    }
    for (int32_t j = 0; j < length; ++j) slots.push_back(step.slot_of(r, j));
  }
  slots.push_back(-1);
  write(cache, slots);
  return cache;
}

std::vector<Output> writes(Bench& bench, LatentLayout latent_layout, IndexKeyLayout key_layout, bool hadamard) {
  Random random(32);
  const Step step({1, 70, 130}, 70, 3);
  std::vector<float> values = normal(random, int64_t{step.tokens()} * 600, 5.0f);
  std::fill_n(values.begin(), 600, 0.0f);  // a row of zeros, and tiny and huge ones
  for (size_t i = 600; i < 1200; ++i) values[i] *= 1e-7f;
  for (size_t i = 1200; i < 1800; ++i) values[i] *= 1e6f;
  const int64_t row_bytes = *latent_row_bytes(latent_layout, 512, 64);
  const int64_t block_bytes = index_block_bytes(key_layout, 128, Step::kBlockSize);
  const auto latents = bench.room<std::byte>(step.num_blocks * Step::kBlockSize * row_bytes);
  const auto keys = bench.room<std::byte>(step.num_blocks * block_bytes);
  write_latent(bench.stream, {.latent = bench.input(values),
                              .latent_stride = 600,
                              .slot_mapping = bench.input(step.slot_mapping),
                              .cache = latents,
                              .row_bytes = row_bytes,
                              .layout = latent_layout,
                              .kv_lora_rank = 512,
                              .rope_dim = 64,
                              .tokens = step.tokens()});
  write_index_key(bench.stream, {.key = bench.input(values),
                                 .key_stride = 600,
                                 .slot_mapping = bench.input(step.slot_mapping),
                                 .cache = keys,
                                 .block_bytes = block_bytes,
                                 .layout = key_layout,
                                 .dim = 128,
                                 .hadamard = hadamard,
                                 .tokens = step.tokens()});
  copy_blocks(bench.stream, {.cache = latents,
                             .block_bytes = Step::kBlockSize * row_bytes,
                             .pairs = bench.input<int32_t>({1, 4, 2, 5}),
                             .count = 2});
  return {{"latents", bench.get(latents)}, {"keys", bench.get(keys)}};
}

struct SelectCase {
  IndexKeyLayout layout = IndexKeyLayout::kFp8;
  int32_t heads = 8;
  // Scores whose ties are everywhere: few different keys, and many of their products are negative and become 0.
  bool ties = false;
  bool hadamard = false;
  IndexSelectParams::Mode mode = IndexSelectParams::Mode::kScore;
  std::vector<int32_t> lengths = kLengths;
  // Some queries and weights are NaN. What is chosen by them means nothing and differs between devices.
  bool broken = false;
  int32_t next_n = 3;
  int32_t top_k = 256;
  int32_t key_offset = 0;
};

std::vector<Output> select(Bench& bench, const SelectCase& c) {
  const auto& [layout, heads, ties, hadamard, mode, lengths, broken, next_n, top_k, key_offset] = c;
  Random random(33);
  const int32_t dim = 128;
  const Step step(lengths, next_n, 2, key_offset);
  const int64_t block_bytes = index_block_bytes(layout, dim, Step::kBlockSize);
  const auto cache = filled_cache(bench, step, block_bytes, [&](auto bytes, const std::vector<int32_t>& slots) {
    std::vector<float> keys = normal(random, std::ssize(slots) * dim);
    if (ties) {
      for (size_t i = 0; i < keys.size(); ++i) keys[i] = keys[i % (5 * static_cast<size_t>(dim))];
    }
    write_index_key(bench.stream, {.key = bench.input(keys),
                                   .key_stride = dim,
                                   .slot_mapping = bench.input(slots),
                                   .cache = bytes,
                                   .block_bytes = block_bytes,
                                   .layout = layout,
                                   .dim = dim,
                                   .hadamard = hadamard,
                                   .tokens = std::ssize(slots)});
  });
  const int64_t tokens = step.tokens();
  // Of the few keys' scores none are close to each other but the equal ones: a sum in another order changes no choice.
  std::vector<float> query = normal(random, tokens * heads * dim), weights = normal(random, tokens * heads);
  if (ties) {
    for (float& value : query) value = std::round(value);
    for (float& value : weights) value = std::round(2 * value) / 64;
  }
  for (int64_t t = 0; broken && t < tokens; t += 3) query[static_cast<size_t>(t * heads * dim + 5)] = NAN;
  for (int64_t t = 1; broken && t < tokens; t += 3) weights[static_cast<size_t>(t * heads + heads - 1)] = -NAN;
  const auto attention_q = bench.put(std::vector<float>(static_cast<size_t>(tokens * 2 * 3), 1.0f));
  const int64_t bytes = index_scratch_bytes(lengths.back() + 100, heads, dim, bench.workers());
  const auto positions = bench.room<int32_t>(tokens * top_k), slots = bench.room<int32_t>(tokens * top_k);
  const auto counts = bench.room<int32_t>(tokens);
  index_select(bench.stream, {.step = step.view(bench, true),
                              .query = bench.input(query),
                              .weights = bench.input(weights),
                              .heads = heads,
                              .dim = dim,
                              .top_k = top_k,
                              .cache = Fixed<const std::byte>(cache),
                              .block_bytes = block_bytes,
                              .layout = layout,
                              .hadamard = hadamard,
                              .mode = mode,
                              .positions = positions,
                              .slots = slots,
                              .counts = counts,
                              .attention_q = attention_q,
                              .attention_heads = 2,
                              .q_token_stride = 6,
                              .q_head_stride = 3,
                              .scratch = bench.room<std::byte>(bytes),
                              .scratch_bytes = bytes});
  std::vector<Output> outputs{{"counts", bench.get(counts)}, {"attention_q", bench.get(attention_q)}};
  if (broken) return outputs;
  outputs.push_back({"positions", bench.get(positions)});
  outputs.push_back({"slots", bench.get(slots)});
  return outputs;
}

std::vector<Output> keep(Bench& bench) {
  Random random(35);
  const int32_t tokens = 600, top_k = 700;
  const auto positions = bench.put(integers(random, tokens * top_k, 0, 5000));
  const auto slots = bench.put(integers(random, tokens * top_k, 0, 5000));
  const auto counts = bench.put(integers(random, tokens, 0, top_k));
  std::vector<int32_t> rows;
  for (int32_t row = 0; row < tokens; row += 1 + static_cast<int32_t>(random() % 4)) {
    rows.push_back(rows.size() % 9 == 8 ? -1 : row);
  }
  keep_selection(bench.stream, {.rows = bench.input(rows),
                                .positions = positions,
                                .slots = slots,
                                .counts = counts,
                                .top_k = top_k,
                                .count = static_cast<int32_t>(rows.size())});
  return {{"positions", bench.get(positions)}, {"slots", bench.get(slots)}, {"counts", bench.get(counts)}};
}

struct Heads {
  int32_t heads, nope, v, rank, rope;
};

KvUpProjection projection(Bench& bench, Random& random, const Heads& shape, bool fp8) {
  const int64_t rows = int64_t{shape.heads} * (shape.nope + shape.v), cols = shape.rank;
  const std::vector<float> values = normal(random, rows * cols, fp8 ? 30.0f : 0.05f);
  std::vector<std::byte> bytes;
  for (const float value : values) {
    if (fp8) {
      bytes.push_back(std::byte{to_e4m3_saturate(value).bits});
    } else {
      const uint16_t bits = to_bf16(value).bits;
      bytes.push_back(static_cast<std::byte>(bits & 0xff));
      bytes.push_back(static_cast<std::byte>(bits >> 8));
    }
  }
  KvUpProjection w;
  w.data = bench.input(bytes);
  w.dtype = fp8 ? DType::kF8E4M3 : DType::kBF16;
  w.row_bytes = fp8 ? cols : 2 * cols;
  if (fp8) {
    w.block_rows = w.block_cols = 128;
    w.scale_row_stride = (cols + 127) / 128;
    std::vector<std::byte> scales;
    for (int64_t i = 0; i < (rows + 127) / 128 * w.scale_row_stride; ++i) {
      const float scale = std::ldexp(1.0f, static_cast<int>(i % 3) - 10);
      const auto* scale_bytes = reinterpret_cast<const std::byte*>(&scale);
      scales.insert(scales.end(), scale_bytes, scale_bytes + 4);
    }
    w.scales = bench.input(scales);
  }
  w.heads = shape.heads;
  w.nope_dim = shape.nope;
  w.v_dim = shape.v;
  w.kv_lora_rank = shape.rank;
  return w;
}

struct AttentionCase {
  Heads shape{.heads = 4, .nope = 128, .v = 128, .rank = 512, .rope = 64};
  LatentLayout layout = LatentLayout::kBf16;
  int32_t top_k = 0;  // 0: dense
  bool fp8_weights = false;
  // Queries of zeros, so that every key weighs the same and a result is the mean of the values, on tensor cores too: a
  // single key more or less shows.
  bool uniform = false;
  bool broken = false;  // a value of the queries of some tokens is NaN
  std::vector<int32_t> lengths = kLengths;
  int32_t next_n = 2;
  int32_t key_offset = 0;
};

std::vector<Output> attention(Bench& bench, const AttentionCase& c) {
  const auto& [shape, layout, top_k, fp8_weights, uniform, broken, lengths, next_n, key_offset] = c;
  Random random(34);
  const Step step(lengths, next_n, 3, key_offset);
  const int64_t row_bytes = *latent_row_bytes(layout, shape.rank, shape.rope), tokens = step.tokens();
  const int32_t width = shape.rank + shape.rope;
  const auto cache =
      filled_cache(bench, step, Step::kBlockSize * row_bytes, [&](auto bytes, const std::vector<int32_t>& slots) {
        write_latent(bench.stream, {.latent = bench.input(normal(random, std::ssize(slots) * width)),
                                    .latent_stride = width,
                                    .slot_mapping = bench.input(slots),
                                    .cache = bytes,
                                    .row_bytes = row_bytes,
                                    .layout = layout,
                                    .kv_lora_rank = shape.rank,
                                    .rope_dim = shape.rope,
                                    .tokens = std::ssize(slots)});
      });
  const LatentCacheView view{.data = Fixed<const std::byte>(cache),
                             .row_bytes = row_bytes,
                             .layout = layout,
                             .kv_lora_rank = shape.rank,
                             .rope_dim = shape.rope};
  SelectionView selection;
  if (top_k > 0) {
    std::vector<int32_t> positions, slots, counts;
    for (int64_t t = 0; t < tokens; ++t) {
      const int32_t request = step.token_request[static_cast<size_t>(t)];
      const int32_t context = step.token_context_len[static_cast<size_t>(t)];
      const int32_t count = std::min(context, top_k);
      counts.push_back(count);
      for (int32_t i = 0; i < top_k; ++i) {
        const int32_t position = i < count ? static_cast<int32_t>(int64_t{i} * context / count) : -1;
        positions.push_back(position);
        slots.push_back(position < 0 ? -1 : step.slot_of(request, position));
      }
    }
    selection = {.positions = bench.input(positions),
                 .slots = bench.input(slots),
                 .counts = bench.input(counts),
                 .top_k = top_k};
  }
  const KvUpProjection kv_b = projection(bench, random, shape, fp8_weights);
  const int32_t qk = shape.nope + shape.rope;
  std::vector<float> queries = normal(random, tokens * shape.heads * qk, uniform ? 0.0f : 1.0f);
  for (const int64_t t : {0, 4, 7}) {
    if (broken && t < tokens) queries[static_cast<size_t>(t * shape.heads * qk + 3)] = NAN;
  }
  const auto q = bench.input(queries);
  const float scale = 1.0f / std::sqrt(static_cast<float>(qk));
  const auto q_latent = bench.room<float>(tokens * shape.heads * shape.rank);
  const auto out_latent = bench.room<float>(tokens * shape.heads * shape.rank);
  const auto lse = bench.room<float>(tokens * shape.heads), prefill_lse = bench.room<float>(tokens * shape.heads);
  const auto out = bench.room<float>(tokens * shape.heads * shape.v);
  const auto prefill = bench.room<float>(tokens * shape.heads * shape.v);
  absorb_query(bench.stream, {.q = q,
                              .q_token_stride = int64_t{shape.heads} * qk,
                              .q_head_stride = qk,
                              .kv_b = kv_b,
                              .q_latent = q_latent,
                              .tokens = tokens});
  int64_t bytes =
      mla_decode_scratch_bytes(static_cast<int32_t>(tokens), shape.heads, shape.rank, shape.rope, bench.workers());
  bytes = std::max(bytes, mla_prefill_scratch_bytes(static_cast<int32_t>(tokens), kv_b, shape.rope, bench.workers()));
  const auto scratch = bench.room<std::byte>(bytes);
  mla_decode(bench.stream, {.step = step.view(bench, true),
                            .q_latent = Fixed<const float>(q_latent),
                            .q_rope = q.sub(shape.nope, q.size() - shape.nope),
                            .q_rope_token_stride = int64_t{shape.heads} * qk,
                            .q_rope_head_stride = qk,
                            .cache = view,
                            .selection = selection,
                            .heads = shape.heads,
                            .scale = scale,
                            .out = out_latent,
                            .lse = lse,
                            .scratch = scratch,
                            .scratch_bytes = bytes});
  project_value(bench.stream,
                {.out_latent = Fixed<const float>(out_latent), .kv_b = kv_b, .out = out, .tokens = tokens});
  mla_prefill(bench.stream, {.step = step.view(bench, false),
                             .q = q,
                             .q_token_stride = int64_t{shape.heads} * qk,
                             .q_head_stride = qk,
                             .kv_b = kv_b,
                             .cache = view,
                             .selection = selection,
                             .heads = shape.heads,
                             .scale = scale,
                             .expand_scratch = {},
                             .out = prefill,
                             .lse = prefill_lse,
                             .scratch = scratch,
                             .scratch_bytes = bytes});
  // A token alone and in a small step has the bits that it has in a large one, whatever the launch's shape chose.
  for (const auto& [first, count] : {std::pair{5, 1}, std::pair{9, 5}, std::pair{14, 1}, std::pair{16, 1}}) {
    if (first + count > tokens) continue;
    const int64_t row = int64_t{shape.heads} * shape.rank, at = first * row;
    const auto part = bench.room<float>(count * row), part_lse = bench.room<float>(int64_t{count} * shape.heads);
    const StepView all = step.view(bench, true);
    MlaDecodeParams p{
        .step = all.slice(first, first + count),
        .q_latent = Fixed<const float>(q_latent).sub(at, count * row),
        .q_rope = q.sub(int64_t{first} * shape.heads * qk + shape.nope, count * shape.heads * qk - shape.nope),
        .q_rope_token_stride = int64_t{shape.heads} * qk,
        .q_rope_head_stride = qk,
        .cache = view,
        .selection = {},
        .heads = shape.heads,
        .scale = scale,
        .out = part,
        .lse = part_lse,
        .scratch = scratch,
        .scratch_bytes = bytes};
    if (top_k > 0) {
      const int64_t lists = int64_t{first} * selection.top_k, entries = int64_t{count} * selection.top_k;
      p.selection = {.positions = borrow_fixed(selection.positions.get() + lists, entries),
                     .slots = borrow_fixed(selection.slots.get() + lists, entries),
                     .counts = borrow_fixed(selection.counts.get() + first, count),
                     .top_k = selection.top_k};
    }
    mla_decode(bench.stream, p);
    const std::vector<float> alone = bench.get(part), together = bench.get(out_latent);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + at)) << count << " tokens from " << first;
    const std::vector<float> lse_alone = bench.get(part_lse), lse_together = bench.get(lse);
    EXPECT_TRUE(std::equal(lse_alone.begin(), lse_alone.end(), lse_together.begin() + int64_t{first} * shape.heads))
        << count << " tokens from " << first;
  }
  const bool rounded = layout != LatentLayout::kF32 && shape.rank == 512 && shape.rope == 64;
  const double tolerance = !rounded ? kAttention : uniform ? kMean : kRoundedAttention;
  // The expanded form on hosts with matrix units adds products of bf16 pieces: 2^-16 of a product.
  const double expanded = std::max(tolerance, 5e-5);
  return {{"q_latent", bench.get(q_latent), kAttention},
          {"out_latent", bench.get(out_latent), tolerance},
          {"lse", bench.get(lse), tolerance},
          {"out", bench.get(out), tolerance},
          {"expanded", bench.get(prefill), expanded},
          {"expanded lse", bench.get(prefill_lse), expanded}};
}

std::vector<Case> cases() {
  std::vector<Case> list;
  const auto selects = [&](const std::string& name, const SelectCase& c) {
    list.push_back({"select_" + name, [=](Bench& bench) { return select(bench, c); }});
  };
  const auto attends = [&](const std::string& name, const AttentionCase& c) {
    list.push_back({"attention_" + name, [=](Bench& bench) { return attention(bench, c); }});
  };
  const struct {
    const char* name;
    LatentLayout latent;
    IndexKeyLayout key;
  } layouts[] = {{"f32", LatentLayout::kF32, IndexKeyLayout::kF32},
                 {"bf16", LatentLayout::kBf16, IndexKeyLayout::kBf16},
                 {"fp8", LatentLayout::kFp8, IndexKeyLayout::kFp8}};
  for (const auto& l : layouts) {
    const std::string name = l.name;
    for (const bool hadamard : {false, true}) {
      list.push_back({"writes_" + name + (hadamard ? "_hadamard" : ""),
                      [=](Bench& bench) { return writes(bench, l.latent, l.key, hadamard); }});
    }
    for (const int32_t heads : {8, 64}) {
      selects("ties_" + name + "_" + std::to_string(heads), {.layout = l.key, .heads = heads, .ties = true});
    }
    selects(name, {.layout = l.key});
    selects("recent_" + name, {.layout = l.key, .mode = IndexSelectParams::Mode::kRecent});
    selects("nan_" + name, {.layout = l.key, .broken = true});
    selects("key_offset_" + name, {.layout = l.key, .ties = true, .key_offset = 1});
    attends("nan_" + name, {.layout = l.latent, .broken = true});
    attends(name + "_dense", {.layout = l.latent});
    attends(name + "_sparse", {.layout = l.latent, .top_k = 96, .fp8_weights = true});
    attends(name + "_key_offset", {.layout = l.latent, .key_offset = 1});
    attends(name + "_key_offset_uniform", {.layout = l.latent, .uniform = true, .key_offset = 1});
    attends(name + "_key_offset_sparse", {.layout = l.latent, .top_k = 96, .uniform = true, .key_offset = 1});
  }
  list.push_back({"keep_selection", &keep});
  // Rows of scores beside which a block's own shared memory fits just no longer, and longer than all of it.
  for (const int32_t length : {11'000, 50'100}) {
    selects("of_" + std::to_string(length), {.ties = true, .lengths = {length}});
  }
  selects("hadamard", {.heads = 16, .hadamard = true});
  // As many keys as published models choose, where a step's tokens see just as many, one fewer and more.
  selects("take_2048", {.ties = true, .next_n = 4, .top_k = 2048});
  attends("sparse_2048_fp8", {.layout = LatentLayout::kFp8, .top_k = 2048, .next_n = 4});
  attends("sparse_2048_uniform_bf16", {.top_k = 2048, .uniform = true, .next_n = 4});
  // Every number of a decode's tokens, at the head counts that models have.
  for (const int32_t next_n : {1, 2, 3, 4, 5, 6}) {
    const std::string name = "_next_n" + std::to_string(next_n);
    for (const int32_t heads : {8, 16, 32, 64}) {
      selects("heads" + std::to_string(heads) + name,
              {.heads = heads, .ties = true, .lengths = {1, 64, 259, 300}, .next_n = next_n});
    }
    for (const int32_t heads : {4, 8, 16, 20, 32, 64, 128}) {
      attends("heads" + std::to_string(heads) + name,
              {.shape = {.heads = heads, .nope = 32, .v = 32, .rank = 512, .rope = 64},
               .layout = LatentLayout::kFp8,
               .top_k = next_n % 2 == 0 ? 96 : 0,
               .lengths = {1, 64, 130},
               .next_n = next_n});
    }
  }
  attends("20_heads", {.shape = {.heads = 20, .nope = 192, .v = 256, .rank = 512, .rope = 64}});
  for (const bool fp8 : {false, true}) {
    attends(fp8 ? "128_heads_fp8" : "72_heads_bf16",
            {.shape = {.heads = fp8 ? 128 : 72, .nope = 128, .v = 128, .rank = 512, .rope = 64},
             .layout = fp8 ? LatentLayout::kFp8 : LatentLayout::kBf16,
             .fp8_weights = fp8});
    for (const int32_t heads : {4, 72}) {
      attends("uniform_" + std::to_string(heads) + (fp8 ? "_fp8" : "_bf16"),
              {.shape = {.heads = heads, .nope = 128, .v = 128, .rank = 512, .rope = 64},
               .layout = fp8 ? LatentLayout::kFp8 : LatentLayout::kBf16,
               .fp8_weights = fp8,
               .uniform = true});
    }
  }
  attends("small", {.shape = {.heads = 3, .nope = 24, .v = 40, .rank = 48, .rope = 8}, .top_k = 96});
  return list;
}

class AttentionConformance : public testing::TestWithParam<Case> {};
TEST_P(AttentionConformance, EqualsTheHost) { check(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Attention, AttentionConformance, testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace lantern::conformance
