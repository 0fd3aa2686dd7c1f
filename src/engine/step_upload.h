// What the host sends to the device for one step: a header and packed records, all int32 words, in one copy. Kernels
// find everything through the header, so that no launch depends on how many records there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "base/host_device.h"
#include "engine/step_batch.h"

namespace lantern {

// Records of one kind: `count` of them, from word `begin` of the upload on.
struct UploadPart {
  int32_t count = 0;
  int32_t begin = 0;
};

struct UploadHeader {
  int32_t num_tokens = 0;
  int32_t num_decode_tokens = 0;
  UploadPart slot_inits;     // UploadSlotInit
  UploadPart copies;         // {source, target}
  UploadPart table_entries;  // UploadTableEntry
  UploadPart rows;           // UploadRow
  UploadPart sampling_rows;  // row numbers, ascending
  UploadPart prompt_tokens;  // of the prefilling rows, in order
};

struct UploadSlotInit {
  int32_t slot = -1;
  int32_t seq_len = 0;
  int32_t max_len = 0;
};

struct UploadTableEntry {
  int32_t slot = -1;
  int32_t index = 0;
  int32_t block = 0;
};

struct UploadRow {
  int32_t slot = -1;
  int32_t query_start = 0;  // first token of the step
  int32_t query_len = 0;
  int32_t prefilling = 0;
  int32_t num_unwritten = 0;  // leading tokens whose cache entries are not to be written
  int32_t samples = 0;        // has rows of logits: a decode query_len of them, a prefill 1
  int32_t next_drafts = 0;
  int32_t next_token = -1;  // the known token behind a prefill; -1: it is sampled
  int32_t mask = -1;        // which tokens may come; -1: all
  int32_t score_from = 0;   // of a prefill, the first token whose logits are scored
  int32_t num_scored = 0;
  int32_t prompt_logprobs = -1;  // most likely tokens to list for each of these
  int32_t first_traced = -1;     // the record of the selection of its first row of logits; -1: none is kept
};

// The words of an upload on the device.
class UploadView {
 public:
  LANTERN_HOST_DEVICE explicit UploadView(const int32_t* words) : words_(words) {}
  LANTERN_HOST_DEVICE const UploadHeader& header() const { return *reinterpret_cast<const UploadHeader*>(words_); }
  template <class Record>
  LANTERN_HOST_DEVICE const Record* records(const UploadPart& part) const {
    return reinterpret_cast<const Record*>(words_ + part.begin);
  }

 private:
  const int32_t* words_;
};

class StepUpload {
 public:
  // The word that says how many rows sample.
  static constexpr int64_t kNumSamplingWord = offsetof(UploadHeader, sampling_rows) / sizeof(int32_t);

  explicit StepUpload(const EngineSettings& settings);
  // Words that the largest step takes.
  static int64_t capacity(const EngineSettings& settings);

  void pack(const StepBatch& batch);
  std::span<const int32_t> words() const { return words_; }
  const UploadHeader& header() const { return UploadView(words_.data()).header(); }

 private:
  template <class Record>
  std::span<Record> take(UploadPart& part, size_t count);

  std::vector<int32_t> words_;
};

}  // namespace lantern
