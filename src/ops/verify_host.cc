#include "base/check.h"
#include "ops/cuda_ops.h"
#include "ops/sampler_rows.h"

namespace lantern {
namespace {

void verify_drafts_kernel(const VerifyParams& p, HostContext&) {
  const int32_t requests = sampler::request_count(p.requests);
  for (int32_t b = 0; b < p.requests.max_requests; ++b) sampler::verify_request(p, b, requests);
}

}  // namespace

void verify_drafts(Stream& stream, const VerifyParams& params) {
  CHECK(params.max_query_len >= 1, "max_query_len is {}", params.max_query_len);
  launch_op(stream, "verify_drafts", &verify_drafts_kernel, &CudaOps::verify_drafts, params);
}

}  // namespace lantern
