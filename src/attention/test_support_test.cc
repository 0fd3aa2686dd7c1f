// The implementation of test_support.h; named like a test so that it is built into the tests alone.
#include "attention/test_support.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/host_amx.h"

namespace lantern::test {
namespace {

constexpr int32_t kScaleBlock = 128;
constexpr float kGarbage = std::numeric_limits<float>::quiet_NaN();

template <class T>
void put(std::vector<std::byte>& bytes, size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

}  // namespace

std::vector<float> random_floats(std::mt19937& generator, size_t count, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& x : values) x = normal(generator);
  return values;
}

Problem::Problem(const Case& c) : shape(c) {
  std::mt19937 generator(c.seed);
  // Tokens.
  int32_t longest = 0;
  for (size_t b = 0; b < c.requests.size(); ++b) {
    const RequestShape& r = c.requests[b];
    longest = std::max(longest, r.seq_len);
    for (int32_t j = 0; j < r.query_len; ++j) {
      token_request.push_back(static_cast<int32_t>(b));
      token_context_len.push_back(std::max(0, r.seq_len - r.query_len + 1 + j));
    }
  }
  for (int32_t i = 0; i < c.padding; ++i) {
    token_request.push_back(-1);
    token_context_len.push_back(0);
  }
  tokens = static_cast<int32_t>(token_request.size());

  // Blocks: every request has its own, entries beyond its length are traps.
  const auto blocks_of = [&](int32_t keys) {
    return keys == 0 ? 0 : (keys + c.key_offset + c.block_size - 1) / c.block_size;
  };
  block_table_stride = blocks_of(longest) + 2;
  int32_t total_blocks = 1;
  for (const RequestShape& r : c.requests) total_blocks += blocks_of(r.seq_len);
  total_blocks += 3;  // never used
  std::vector<int32_t> ids(static_cast<size_t>(total_blocks - 1));
  std::iota(ids.begin(), ids.end(), 1);
  std::mt19937 order(c.seed + 77);
  if (c.shuffled) std::shuffle(ids.begin(), ids.end(), order);
  block_table.assign(std::max<size_t>(1, c.requests.size()) * static_cast<size_t>(block_table_stride), 0x7ffffff0);
  size_t next = 0;
  for (size_t b = 0; b < c.requests.size(); ++b) {
    for (int32_t i = 0; i < blocks_of(c.requests[b].seq_len); ++i) {
      block_table[b * static_cast<size_t>(block_table_stride) + static_cast<size_t>(i)] = ids[next++];
    }
  }
  for (int32_t t = 0; t < tokens; ++t) {
    const int32_t keys = token_context_len[static_cast<size_t>(t)];
    slot_mapping.push_back(keys == 0 ? -1
                                     : static_cast<int32_t>(slot(token_request[static_cast<size_t>(t)], keys - 1)));
  }

  // Cache: all bytes 0xff (NaN in every layout), block 0 zeros, then the real rows.
  row_bytes = latent_row_bytes(c.layout, c.kv_lora_rank, c.rope_dim).value();
  const int64_t block_bytes = row_bytes * c.block_size;
  cache.assign(static_cast<size_t>(total_blocks * block_bytes), std::byte{0xff});
  std::fill_n(cache.begin(), block_bytes, std::byte{0});
  for (size_t b = 0; b < c.requests.size(); ++b) {
    std::mt19937 own(c.seed + 1000 * static_cast<uint32_t>(b));
    for (int32_t s = 0; s < c.requests[b].seq_len; ++s) {
      const std::vector<float> latent = random_floats(own, static_cast<size_t>(c.kv_lora_rank + c.rope_dim));
      encode_latent(c.layout, latent.data(), c.kv_lora_rank, c.rope_dim,
                    cache.data() + slot(static_cast<int32_t>(b), s) * row_bytes);
    }
  }

  // Weights of the size that keeps keys and values near 1.
  const auto rows = static_cast<size_t>(c.heads * (c.nope_dim + c.v_dim));
  const auto cols = static_cast<size_t>(c.kv_lora_rank);
  const std::vector<float> w =
      random_floats(generator, rows * cols, 1.0f / std::sqrt(static_cast<float>(c.kv_lora_rank)));
  weight.resize(dtype_bytes(c.weight_dtype, rows * cols));
  weight_value.resize(rows * cols);
  const size_t scale_cols = (cols + kScaleBlock - 1) / kScaleBlock;
  const size_t scale_rows = (rows + kScaleBlock - 1) / kScaleBlock;
  std::vector<float> block_scales(scale_rows * scale_cols, 0.0f);
  if (c.weight_dtype == DType::kF8E4M3) {
    scales.resize(scale_rows * scale_cols * dtype_bytes(c.scale_dtype, 1));
    for (size_t i = 0; i < block_scales.size(); ++i) {
      // Blocks differ by much, so that a wrong block is seen.
      const float raw = std::exp2(static_cast<float>(static_cast<int>(i * 5 % 7) - 3)) * 0.01f * 1.3f;
      block_scales[i] = c.scale_dtype == DType::kF8E8M0 ? to_float(to_e8m0_ceil(raw)) : raw;
      if (c.scale_dtype == DType::kF8E8M0) {
        put(scales, i, to_e8m0_ceil(raw));
      } else {
        put(scales, i, raw);
      }
    }
  }
  for (size_t i = 0; i < rows * cols; ++i) {
    switch (c.weight_dtype) {
      case DType::kF16: {
        const f16_t x = to_f16(w[i]);
        put(weight, i, x);
        weight_value[i] = to_float(x);
        break;
      }
      case DType::kBF16: {
        const bf16_t x = to_bf16(w[i]);
        put(weight, i, x);
        weight_value[i] = to_float(x);
        break;
      }
      case DType::kF8E4M3: {
        const float s = block_scales[i / cols / kScaleBlock * scale_cols + i % cols / kScaleBlock];
        const e4m3_t x = to_e4m3_saturate(w[i] / s);
        put(weight, i, x);
        weight_value[i] = double{to_float(x)} * double{s};
        break;
      }
      default: put(weight, i, w[i]); weight_value[i] = w[i];
    }
  }
  q = random_floats(generator, static_cast<size_t>(tokens * c.heads * (c.nope_dim + c.rope_dim)));
  scale = 1.0f / std::sqrt(static_cast<float>(c.nope_dim + c.rope_dim));

  if (c.top_k > 0) {
    const auto width = static_cast<size_t>(c.top_k);
    positions.assign(static_cast<size_t>(tokens) * width, -1);
    slots.assign(static_cast<size_t>(tokens) * width, -1);
    counts.assign(static_cast<size_t>(tokens), 0);
    for (int32_t t = 0; t < tokens; ++t) {
      const auto row = static_cast<size_t>(t);
      std::vector<int32_t> all(static_cast<size_t>(token_context_len[row]));
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), generator);
      all.resize(std::min(all.size(), width));
      std::sort(all.begin(), all.end());
      counts[row] = static_cast<int32_t>(all.size());
      for (size_t i = 0; i < all.size(); ++i) {
        positions[row * width + i] = all[i];
        slots[row * width + i] = static_cast<int32_t>(slot(token_request[row], all[i]));
      }
    }
  }
}

int64_t Problem::slot(int32_t request, int32_t position) const {
  const int32_t place = position + shape.key_offset;
  const auto entry = static_cast<size_t>(request * block_table_stride + place / shape.block_size);
  return int64_t{block_table[entry]} * shape.block_size + place % shape.block_size;
}

std::vector<double> Problem::key(int32_t request, int32_t position) const {
  std::vector<float> row(static_cast<size_t>(shape.kv_lora_rank + shape.rope_dim));
  decode_latent(shape.layout, cache.data() + slot(request, position) * row_bytes, shape.kv_lora_rank, shape.rope_dim,
                row.data());
  return {row.begin(), row.end()};
}

StepView Problem::step() const {
  auto& self = const_cast<Problem&>(*this);  // the views are of const elements
  StepView view;
  view.tokens = tokens;
  view.decode_tokens = 0;
  view.requests = static_cast<int32_t>(shape.requests.size());
  view.block_size = shape.block_size;
  view.block_table_stride = block_table_stride;
  view.key_offset = shape.key_offset;
  view.token_request = in(self.token_request);
  view.token_context_len = in(self.token_context_len);
  view.slot_mapping = in(self.slot_mapping);
  view.block_table = in(self.block_table);
  return view;
}

LatentCacheView Problem::cache_view() {
  return {.data = in(cache),
          .row_bytes = row_bytes,
          .layout = shape.layout,
          .kv_lora_rank = shape.kv_lora_rank,
          .rope_dim = shape.rope_dim};
}

KvUpProjection Problem::kv_b() {
  KvUpProjection w;
  w.data = in(weight);
  w.dtype = shape.weight_dtype;
  w.row_bytes = static_cast<int64_t>(dtype_bytes(shape.weight_dtype, static_cast<size_t>(shape.kv_lora_rank)));
  if (!scales.empty()) {
    w.scales = in(scales);
    w.scale_dtype = shape.scale_dtype;
    w.block_rows = kScaleBlock;
    w.block_cols = kScaleBlock;
    w.scale_row_stride = (shape.kv_lora_rank + kScaleBlock - 1) / kScaleBlock;
  }
  w.heads = shape.heads;
  w.nope_dim = shape.nope_dim;
  w.v_dim = shape.v_dim;
  w.kv_lora_rank = shape.kv_lora_rank;
  return w;
}

SelectionView Problem::selection() {
  if (shape.top_k == 0) return {};
  return {.positions = in(positions), .slots = in(slots), .counts = in(counts), .top_k = shape.top_k};
}

Reference reference_mla(const Problem& p) {
  const Case& c = p.shape;
  const auto rank = static_cast<size_t>(c.kv_lora_rank);
  const auto rope = static_cast<size_t>(c.rope_dim);
  const auto nope = static_cast<size_t>(c.nope_dim);
  const auto value = static_cast<size_t>(c.v_dim);
  Reference result;
  result.out.assign(static_cast<size_t>(p.tokens * c.heads) * value, 0.0);
  result.lse.assign(static_cast<size_t>(p.tokens * c.heads), -std::numeric_limits<double>::infinity());
  // Keys and values of a request for all heads, made when its first token comes.
  int32_t held = -1;
  std::vector<std::vector<double>> expanded, rope_keys;
  for (int32_t t = 0; t < p.tokens; ++t) {
    const auto row = static_cast<size_t>(t);
    const int32_t request = p.token_request[row];
    if (request < 0) continue;
    if (request != held) {
      held = request;
      expanded.clear();
      rope_keys.clear();
      for (int32_t s = 0; s < c.requests[static_cast<size_t>(request)].seq_len; ++s) {
        const std::vector<double> latent = p.key(request, s);
        std::vector<double> all(static_cast<size_t>(c.heads) * (nope + value));
        for (size_t o = 0; o < all.size(); ++o) {
          all[o] = std::inner_product(latent.begin(), latent.begin() + static_cast<ptrdiff_t>(rank),
                                      p.weight_value.begin() + static_cast<ptrdiff_t>(o * rank), 0.0);
        }
        expanded.push_back(std::move(all));
        rope_keys.emplace_back(latent.begin() + static_cast<ptrdiff_t>(rank), latent.end());
      }
    }
    std::vector<size_t> seen;
    if (c.top_k > 0) {
      for (int32_t i = 0; i < p.counts[row]; ++i) {
        seen.push_back(static_cast<size_t>(p.positions[row * static_cast<size_t>(c.top_k) + static_cast<size_t>(i)]));
      }
    } else {
      seen.resize(static_cast<size_t>(p.token_context_len[row]));
      std::iota(seen.begin(), seen.end(), size_t{0});
    }
    if (seen.empty()) continue;
    for (size_t h = 0; h < static_cast<size_t>(c.heads); ++h) {
      const size_t token_head = row * static_cast<size_t>(c.heads) + h;
      const float* query = p.q.data() + token_head * (nope + rope);
      std::vector<double> score(seen.size());
      for (size_t i = 0; i < seen.size(); ++i) {
        const double* k = expanded[seen[i]].data() + h * (nope + value);
        double dot = 0.0;
        for (size_t d = 0; d < nope; ++d) dot += double{query[d]} * k[d];
        for (size_t d = 0; d < rope; ++d) dot += double{query[nope + d]} * rope_keys[seen[i]][d];
        score[i] = dot * double{p.scale};
      }
      const double top = *std::max_element(score.begin(), score.end());
      double sum = 0.0;
      for (double& s : score) sum += s = std::exp(s - top);
      for (size_t i = 0; i < seen.size(); ++i) {
        const double* v = expanded[seen[i]].data() + h * (nope + value) + nope;
        for (size_t d = 0; d < value; ++d) result.out[token_head * value + d] += score[i] / sum * v[d];
      }
      result.lse[token_head] = top + std::log(sum);
    }
  }
  return result;
}

MlaResult run_absorbed(Problem& p, Host& host) {
  const Case& c = p.shape;
  const auto token_heads = static_cast<size_t>(p.tokens * c.heads);
  const int64_t head_stride = c.nope_dim + c.rope_dim;
  // Outputs start as NaN: what is not written, or read before, shows.
  std::vector<float> q_latent(token_heads * static_cast<size_t>(c.kv_lora_rank), kGarbage);
  MlaResult result;
  result.out.assign(token_heads * static_cast<size_t>(c.v_dim), kGarbage);
  result.out_latent.assign(token_heads * static_cast<size_t>(c.kv_lora_rank), kGarbage);
  result.lse.assign(token_heads, kGarbage);
  AbsorbQueryParams absorb;
  absorb.q = in(p.q);
  absorb.q_token_stride = c.heads * head_stride;
  absorb.q_head_stride = head_stride;
  absorb.kv_b = p.kv_b();
  absorb.q_latent = fixed(q_latent);
  absorb.tokens = p.tokens;
  absorb_query(host.stream, absorb);

  MlaDecodeParams decode;
  decode.step = p.step();
  decode.q_latent = in(q_latent);
  decode.q_rope = Fixed<const float>(fixed(p.q).sub(c.nope_dim, static_cast<int64_t>(p.q.size()) - c.nope_dim));
  decode.q_rope_token_stride = c.heads * head_stride;
  decode.q_rope_head_stride = head_stride;
  decode.cache = p.cache_view();
  decode.selection = p.selection();
  decode.heads = c.heads;
  decode.scale = p.scale;
  decode.out = fixed(result.out_latent);
  decode.lse = fixed(result.lse);
  std::vector<std::byte> scratch(
      static_cast<size_t>(mla_decode_scratch_bytes(p.tokens, c.heads, c.kv_lora_rank, c.rope_dim, host.threads())),
      std::byte{0xff});
  decode.scratch = fixed(scratch);
  decode.scratch_bytes = static_cast<int64_t>(scratch.size());
  mla_decode(host.stream, decode);

  ProjectValueParams project;
  project.out_latent = in(result.out_latent);
  project.kv_b = p.kv_b();
  project.out = fixed(result.out);
  project.tokens = p.tokens;
  project_value(host.stream, project);
  return result;
}

MlaResult run_expanded(Problem& p, Host& host, ExpandLatents expand) {
  const Case& c = p.shape;
  const auto token_heads = static_cast<size_t>(p.tokens * c.heads);
  MlaResult result;
  result.out.assign(token_heads * static_cast<size_t>(c.v_dim), kGarbage);
  result.lse.assign(token_heads, kGarbage);
  MlaPrefillParams prefill;
  prefill.step = p.step();
  prefill.q = in(p.q);
  prefill.q_head_stride = c.nope_dim + c.rope_dim;
  prefill.q_token_stride = c.heads * prefill.q_head_stride;
  prefill.kv_b = p.kv_b();
  prefill.cache = p.cache_view();
  prefill.selection = p.selection();
  prefill.heads = c.heads;
  prefill.scale = p.scale;
  prefill.expand = expand;
  prefill.out = fixed(result.out);
  prefill.lse = fixed(result.lse);
  std::vector<std::byte> scratch(
      static_cast<size_t>(mla_prefill_scratch_bytes(p.tokens, prefill.kv_b, c.rope_dim, host.threads())),
      std::byte{0xff});
  prefill.scratch = fixed(scratch);
  prefill.scratch_bytes = static_cast<int64_t>(scratch.size());
  mla_prefill(host.stream, prefill);
  return result;
}

MlaResult run_expanded_without_amx(Problem& p, Host& host) {
  forbid_amx_for_test(true);
  MlaResult result = run_expanded(p, host);
  forbid_amx_for_test(false);
  return result;
}

double worst_error(const std::vector<float>& got, const std::vector<double>& want, double floor) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double worst = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double g = got[i];
    if (std::isinf(want[i]) && g == want[i]) continue;
    const double error = std::fabs(g - want[i]) / (std::fabs(want[i]) + floor);
    if (!(error <= worst)) worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  }
  return worst;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace lantern::test
