// What attention kernels see of a step: the plan's outputs and the block table, at fixed addresses, with launch shapes
// from the bucket. The padding contract: a padded token has request -1, context length 0 and slot -1; it is never
// followed, its outputs are 0 and its log-sum-exp minus infinity.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "device/fixed.h"
#include "device/row_count.h"

namespace lantern {

struct StepView {
  // Launch shape (the bucket): host values.
  int32_t tokens = 0;         // rows of every per-token tensor; decode tokens first
  RowCount real_tokens = {};  // of these; padding comes behind, and may also lie between (token_request says so)
  int32_t decode_tokens = 0;  // tokens [0, decode_tokens) belong to decodes, the rest to prefills
  int32_t requests = 0;
  int32_t block_size = 64;
  int32_t block_table_stride = 0;  // entries per row
  // The key of position p lies at place p + key_offset of its request: 1 in the MTP layer, whose entry for (hidden of
  // position p, token p + 1) is stored with token p + 1, so that a block depends on nothing behind it.
  int32_t key_offset = 0;

  DevPtr<const int32_t> token_request;      // [tokens]; -1: padding
  DevPtr<const int32_t> token_context_len;  // [tokens]; keys that the token sees, its own included
  DevPtr<const int32_t> slot_mapping;       // [tokens]; -1: write nothing
  DevPtr<const int32_t> block_table;        // [requests, block_table_stride]

  // Where the key of a request's position lies. `table` is the request's row of the block table.
  LANTERN_HOST_DEVICE int64_t slot_of(const int32_t* table, int32_t position) const {
    const int32_t place = position + key_offset;
    return int64_t{table[place / block_size]} * block_size + place % block_size;
  }

  // The tokens [begin, end) as a step of their own.
  StepView slice(int32_t begin, int32_t end) const;
};

}  // namespace lantern
