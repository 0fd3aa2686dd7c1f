#include <algorithm>
#include <functional>

#include "attention/cuda_attention.h"
#include "attention/host_math.h"
#include "attention/kv_up_projection.h"
#include "attention/mla.h"

namespace lantern {
namespace {

// Part of a weight that is decoded at a time, on the stack of the thread that uses it (32 KiB).
constexpr int64_t kPartRows = 16;
constexpr int64_t kPartCols = KvCodes::kMostCols;
// Values of W_UV that one thread makes at a time. Its columns are the reduced dimension: the partial sums of kPartCols
// of them are added in order.
constexpr int64_t kValueRows = 64;

// Rows [row, row + rows) as floats, `columns` of each from `column`. A part's rows are fetched while the part before is
// decoded, those of the first at once.
void decode_part(const KvUpProjection& kv_b, int64_t first_row, int64_t row, int64_t rows, int64_t end, int64_t column,
                 int64_t columns, float* out) {
  if (row == first_row) {
    for (int64_t r = row; r < row + rows; ++r) fetch_kv_b(kv_b, r, column, columns);
  }
  for (int64_t r = row; r < row + rows; ++r, out += columns) {
    if (r + kPartRows < end) fetch_kv_b(kv_b, r + kPartRows, column, columns);
    decode_kv_b(kv_b, r, column, columns, out);
  }
}

// Columns of W_UK of one head, for all tokens. One token takes FP8 weights as they are, with the same bits.
void absorb_columns(const AbsorbQueryParams& p, int64_t head, int64_t column, int64_t columns) {
  const KvUpProjection& kv_b = p.kv_b;
  const int64_t rank = kv_b.kv_lora_rank;
  const int64_t first_row = head * (kv_b.nope_dim + kv_b.v_dim);
  const float* q = p.q.get() + head * p.q_head_stride;
  float* out = p.q_latent.get() + head * rank + column;
  alignas(64) float weight[kPartRows * kPartCols];
  KvCodes codes;
  for (int64_t i = 0, rows = 0; i < kv_b.nope_dim; i += rows) {
    if (p.tokens == 1) {
      kv_b_codes(kv_b, first_row + i, kv_b.nope_dim - i, column, columns, codes);
      rows = codes.rows;
      if (rows > 0) {
        host_math::multiply_row_e4m3_nn(columns, rows, q + i, codes.codes, out, i > 0);
        continue;
      }
    }
    rows = std::min<int64_t>(kPartRows, kv_b.nope_dim - i);
    decode_part(kv_b, first_row, first_row + i, rows, first_row + kv_b.nope_dim, column, columns, weight);
    host_math::multiply_nn(p.tokens, columns, rows, q + i, p.q_token_stride, weight, columns, out, kv_b.heads * rank,
                           i > 0);
  }
}

void absorb_query_kernel(const AbsorbQueryParams& params, HostContext& context) {
  AbsorbQueryParams p = params;
  p.tokens = p.real_tokens.of(p.tokens);
  if (p.tokens == 0) return;
  check_kv_b(p.kv_b);
  const int64_t rank = p.kv_b.kv_lora_rank;
  const int64_t parts = (rank + kPartCols - 1) / kPartCols;
  auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t column = unit % parts * kPartCols;
      absorb_columns(p, unit / parts, column, std::min(kPartCols, rank - column));
    }
  };
  context.threads.parallel_for(p.kv_b.heads * parts, 1, std::ref(body));
}

// Values [value, value + values) of one head, for all tokens; as above.
void project_values(const ProjectValueParams& p, int64_t head, int64_t value, int64_t values) {
  const KvUpProjection& kv_b = p.kv_b;
  const int64_t rank = kv_b.kv_lora_rank;
  const int64_t first_row = head * (kv_b.nope_dim + kv_b.v_dim) + kv_b.nope_dim + value;
  float* out = p.out.get() + head * kv_b.v_dim + value;
  alignas(64) float weight[kPartRows * kPartCols];
  KvCodes codes;
  for (int64_t column = 0; column < rank; column += kPartCols) {
    const int64_t columns = std::min(kPartCols, rank - column);
    const float* latent = p.out_latent.get() + head * rank + column;
    for (int64_t i = 0, rows = 0; i < values; i += rows) {
      if (p.tokens == 1) {
        kv_b_codes(kv_b, first_row + i, values - i, column, columns, codes);
        rows = codes.rows;
        if (rows > 0) {
          host_math::multiply_row_e4m3_nt(rows, columns, latent, codes.codes, out + i, column > 0);
          continue;
        }
      }
      rows = std::min(kPartRows, values - i);
      decode_part(kv_b, first_row, first_row + i, rows, first_row + values, column, columns, weight);
      host_math::multiply_nt(p.tokens, rows, columns, latent, kv_b.heads * rank, weight, columns, out + i,
                             int64_t{kv_b.heads} * kv_b.v_dim, column > 0);
    }
  }
}

void project_value_kernel(const ProjectValueParams& params, HostContext& context) {
  ProjectValueParams p = params;
  p.tokens = p.real_tokens.of(p.tokens);
  if (p.tokens == 0) return;
  check_kv_b(p.kv_b);
  const int64_t parts = (p.kv_b.v_dim + kValueRows - 1) / kValueRows;
  auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t value = unit % parts * kValueRows;
      project_values(p, unit / parts, value, std::min<int64_t>(kValueRows, p.kv_b.v_dim - value));
    }
  };
  context.threads.parallel_for(p.kv_b.heads * parts, 1, std::ref(body));
}

}  // namespace

void absorb_query(Stream& stream, const AbsorbQueryParams& params) {
  launch_attention(stream, "absorb_query", &absorb_query_kernel, &CudaAttention::absorb_query, params);
}

void project_value(Stream& stream, const ProjectValueParams& params) {
  launch_attention(stream, "project_value", &project_value_kernel, &CudaAttention::project_value, params);
}

}  // namespace lantern
