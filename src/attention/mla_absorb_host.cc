#include <algorithm>
#include <functional>

#include "attention/host_math.h"
#include "attention/kv_up_projection.h"
#include "attention/mla.h"

namespace lantern {
namespace {

// Part of a weight that is decoded at a time, on the stack of the thread that uses it (32 KiB).
constexpr int64_t kPartRows = 16;
constexpr int64_t kPartCols = 512;
// Of W_UV, whose columns are the reduced dimension. The partial sums of 512 columns are added in order.
constexpr int64_t kValueRows = 16;
constexpr int64_t kValueCols = 512;

void absorb_query_kernel(const AbsorbQueryParams& p, HostContext& context) {
  if (p.tokens == 0) return;
  const KvUpProjection& kv_b = p.kv_b;
  check_kv_b(kv_b);
  const int64_t rank = kv_b.kv_lora_rank;
  const int64_t parts = (rank + kPartCols - 1) / kPartCols;
  const int64_t out_stride = kv_b.heads * rank;
  // A unit makes one range of latent columns of one head, for all tokens.
  auto body = [&](int64_t begin, int64_t end, int) {
    alignas(64) float weight[kPartRows * kPartCols];
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t h = unit / parts;
      const int64_t column = unit % parts * kPartCols;
      const int64_t columns = std::min(kPartCols, rank - column);
      const int64_t first_row = h * (kv_b.nope_dim + kv_b.v_dim);
      for (int64_t i = 0; i < kv_b.nope_dim; i += kPartRows) {
        const int64_t rows = std::min<int64_t>(kPartRows, kv_b.nope_dim - i);
        for (int64_t r = 0; r < rows; ++r) {
          decode_kv_b(kv_b, first_row + i + r, column, columns, weight + r * columns);
        }
        host_math::multiply_nn(p.tokens, columns, rows, p.q.get() + h * p.q_head_stride + i, p.q_token_stride, weight,
                               columns, p.q_latent.get() + h * rank + column, out_stride, i > 0);
      }
    }
  };
  context.threads.parallel_for(kv_b.heads * parts, 1, std::ref(body));
}

void project_value_kernel(const ProjectValueParams& p, HostContext& context) {
  if (p.tokens == 0) return;
  const KvUpProjection& kv_b = p.kv_b;
  check_kv_b(kv_b);
  const int64_t rank = kv_b.kv_lora_rank;
  const int64_t parts = (kv_b.v_dim + kValueRows - 1) / kValueRows;
  // A unit makes up to kValueRows values of one head, for all tokens.
  auto body = [&](int64_t begin, int64_t end, int) {
    alignas(64) float weight[kValueRows * kValueCols];
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t h = unit / parts;
      const int64_t value = unit % parts * kValueRows;
      const int64_t values = std::min<int64_t>(kValueRows, kv_b.v_dim - value);
      const int64_t first_row = h * (kv_b.nope_dim + kv_b.v_dim) + kv_b.nope_dim + value;
      for (int64_t column = 0; column < rank; column += kValueCols) {
        const int64_t columns = std::min(kValueCols, rank - column);
        for (int64_t r = 0; r < values; ++r) decode_kv_b(kv_b, first_row + r, column, columns, weight + r * columns);
        host_math::multiply_nt(p.tokens, values, columns, p.out_latent.get() + h * rank + column, kv_b.heads * rank,
                               weight, columns, p.out.get() + h * kv_b.v_dim + value, int64_t{kv_b.heads} * kv_b.v_dim,
                               column > 0);
      }
    }
  };
  context.threads.parallel_for(kv_b.heads * parts, 1, std::ref(body));
}

}  // namespace

void absorb_query(Stream& stream, const AbsorbQueryParams& params) {
  stream.launch("absorb_query", &absorb_query_kernel, params);
}

void project_value(Stream& stream, const ProjectValueParams& params) {
  stream.launch("project_value", &project_value_kernel, params);
}

}  // namespace lantern
