#include "engine/step_upload.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace lantern {
namespace {

constexpr size_t kWord = sizeof(int32_t);

template <class Record>
constexpr size_t words_of(size_t count) {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) % kWord == 0);
  static_assert(alignof(Record) == kWord);
  return count * sizeof(Record) / kWord;
}

}  // namespace

int64_t StepUpload::capacity(const EngineSettings& settings) {
  const auto requests = static_cast<size_t>(settings.limits.max_requests);
  const auto tables = requests * static_cast<size_t>(settings.limits.max_blocks_per_request);
  return static_cast<int64_t>(words_of<UploadHeader>(1) + words_of<UploadSlotInit>(requests) +
                              words_of<BlockCopy>(2 * requests) + words_of<UploadTableEntry>(tables + 2 * requests) +
                              words_of<UploadRow>(requests) + words_of<int32_t>(requests) +
                              words_of<int32_t>(static_cast<size_t>(settings.limits.max_tokens)));
}

StepUpload::StepUpload(const EngineSettings& settings) { words_.reserve(static_cast<size_t>(capacity(settings))); }

template <class Record>
std::span<Record> StepUpload::take(UploadPart& part, size_t count) {
  part = {.count = static_cast<int32_t>(count), .begin = static_cast<int32_t>(words_.size())};
  const size_t size = words_.size() + words_of<Record>(count);
  CHECK(size <= words_.capacity(), "a step's records take {} words, but {} were set aside", size, words_.capacity());
  words_.resize(size);
  return {reinterpret_cast<Record*>(words_.data() + part.begin), count};
}

void StepUpload::pack(const StepBatch& batch) {
  words_.clear();
  words_.resize(words_of<UploadHeader>(1));
  UploadHeader header;
  header.num_tokens = batch.num_tokens;
  header.num_decode_tokens = batch.num_decode_tokens;

  const std::span<UploadSlotInit> inits = take<UploadSlotInit>(header.slot_inits, batch.slot_inits.size());
  std::ranges::transform(batch.slot_inits, inits.begin(), [](const SlotInit& init) {
    return UploadSlotInit{.slot = init.slot, .seq_len = init.seq_len, .max_len = init.max_len};
  });
  std::ranges::copy(batch.copies, take<BlockCopy>(header.copies, batch.copies.size()).begin());
  const auto entries = take<UploadTableEntry>(header.table_entries, batch.table_entries.size());
  std::ranges::transform(batch.table_entries, entries.begin(), [](const BlockTableEntry& entry) {
    CHECK(entry.group == 0, "cache group {} does not exist", entry.group);
    return UploadTableEntry{.slot = entry.slot, .index = entry.index, .block = entry.block};
  });

  const std::span<UploadRow> rows = take<UploadRow>(header.rows, batch.rows.size());
  size_t sampling = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const StepRow& row = batch.rows[r];
    sampling += row.samples ? 1 : 0;
    rows[r] = {.slot = row.slot,
               .query_start = batch.query_start_loc[r],
               .query_len = row.query_len,
               .prefilling = row.prefilling ? 1 : 0,
               .num_unwritten = row.num_unwritten,
               .samples = row.samples ? 1 : 0,
               .next_drafts = row.next_drafts,
               .next_token = row.prefilling ? batch.next_tokens[r - static_cast<size_t>(batch.num_decodes)] : -1,
               .mask = row.mask,
               .score_from = row.score_from,
               .num_scored = row.num_scored,
               .prompt_logprobs = row.prompt_logprobs,
               .first_traced = row.first_traced};
  }
  std::span<int32_t> sampling_rows = take<int32_t>(header.sampling_rows, sampling);
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    if (!batch.rows[r].samples) continue;
    sampling_rows.front() = static_cast<int32_t>(r);
    sampling_rows = sampling_rows.subspan(1);
  }
  std::ranges::copy(batch.prompt_tokens, take<int32_t>(header.prompt_tokens, batch.prompt_tokens.size()).begin());
  std::memcpy(words_.data(), &header, sizeof(header));
}

}  // namespace lantern
