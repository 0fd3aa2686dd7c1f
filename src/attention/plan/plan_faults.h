// What can be wrong with a batch. The plan reports {request, code} and treats the request as padding.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lantern {

enum class PlanFault : int32_t {
  kNone = 0,
  // Of the whole batch; reported with request -1.
  kNumRequests = 1,    // num_requests is negative or more than the bucket has
  kNumTokens = 2,      // num_tokens is negative or more than the bucket has
  kCompressRatio = 3,  // compress_ratio does not divide the block size; every request becomes padding
  // Of one request; the first that applies is reported.
  kQueryStart = 10,          // query_start_loc does not start at 0
  kQueryDecreases = 11,      // the request ends before it starts, or starts before an earlier one ends
  kQueryEnd = 12,            // the request ends beyond num_tokens, or is the last and ends before it
  kDecodeAfterPrefill = 13,  // decodes come first
  kQueryTooLong = 14,        // a decode with more tokens than max_query_len
  kQueryWiderThanBucket = 15,
  kSeqLenTooLong = 16,   // above max_model_len
  kSeqLenTooShort = 17,  // below the request's own query length
  kTooFewBlocks = 18,    // the block table has fewer entries than the length needs
  kBlockOutsidePool = 19,
  kAccepted = 20,  // accepted drafts outside [0, query_len - 1]
};

struct PlanFaultName {
  PlanFault fault;
  std::string_view name;     // "query_start_loc_decreases": stable, part of a public format
  std::string_view message;  // one sentence
};
std::span<const PlanFaultName> plan_fault_names();
// The row of an unknown code is that of kNone.
const PlanFaultName& plan_fault_name(PlanFault fault);

}  // namespace lantern
