// From logits to tokens, with a vocabulary of DeepSeek's size.
#include <fmt/format.h>

#include <numeric>

#include "cli/kernel_cases.h"
#include "ops/process_logits.h"
#include "ops/sampling.h"

namespace lantern::cli {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr float kLogitWidth = 10.0f;

std::vector<int32_t> ascending(int32_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

KernelWork sample_work(KernelMemory& memory, const SamplingSettings& settings, int32_t rows, int32_t vocab) {
  std::vector<SamplingSettings> all(static_cast<size_t>(rows), settings);
  for (int32_t r = 0; r < rows; ++r) all[static_cast<size_t>(r)].seed = static_cast<uint64_t>(r);
  const int64_t scratch = sample_scratch_bytes(rows, vocab);
  const SampleParams params{.logits = memory.floats(int64_t{rows} * vocab, kLogitWidth),
                            .settings = memory.put(all),
                            .output_positions = memory.put(std::vector<int64_t>(static_cast<size_t>(rows), 17)),
                            .tokens = memory.room<int32_t>(rows),
                            .logprobs = memory.room<float>(rows),
                            .rows = rows,
                            .vocab = vocab,
                            .scratch = memory.room<std::byte>(scratch),
                            .scratch_bytes = scratch};
  return {.launch = [params](Stream& stream) { sample(stream, params); },
          .bytes = int64_t{rows} * (vocab + 2) * kFloat};
}

// Rows with every penalty, after a text of `history` tokens.
KernelWork process_work(KernelMemory& memory, int32_t rows, int32_t vocab, int32_t history) {
  std::vector<SlotRules> rules(static_cast<size_t>(rows));
  for (SlotRules& rule : rules) {
    fill_slot_rules(rule, {.repetition_penalty = 1.1f, .presence_penalty = 0.5f, .frequency_penalty = 0.5f}, {}, -1);
  }
  std::vector<int32_t> text;
  text.reserve(static_cast<size_t>(rows * history));
  for (int32_t i = 0; i < rows * history; ++i) text.push_back(static_cast<int32_t>(int64_t{i} * 7919 % vocab));
  const SamplerSlots slots{.rules = memory.put(rules),
                           .history = memory.put(text),
                           .history_len = memory.put(std::vector<int32_t>(static_cast<size_t>(rows), history)),
                           .prompt_len = memory.put(std::vector<int32_t>(static_cast<size_t>(rows), history / 2)),
                           .num_slots = rows,
                           .max_model_len = history,
                           .vocab = vocab};
  const int64_t scratch = process_logits_scratch_bytes(rows, vocab);
  const ProcessLogitsParams params{.slots = slots,
                                   .logits = memory.floats(int64_t{rows} * vocab, kLogitWidth),
                                   .processed = memory.room<float>(int64_t{rows} * vocab),
                                   .status = memory.room<int32_t>(rows),
                                   .row_slots = memory.put(ascending(rows)),
                                   .drafts_before = memory.put(std::vector<int32_t>(static_cast<size_t>(rows), 0)),
                                   .rows = rows,
                                   .scratch = memory.room<std::byte>(scratch),
                                   .scratch_bytes = scratch};
  return {.launch = [params](Stream& stream) { process_logits(stream, params); },
          .bytes = int64_t{rows} * (2 * vocab + history) * kFloat};
}

}  // namespace

std::vector<KernelCase> sampler_kernel_cases(CaseSize size) {
  std::vector<KernelCase> list;
  const int32_t vocab = sized(size, 129280), history = sized(size, 4096);
  const struct {
    const char* name;
    SamplingSettings settings;
  } kinds[] = {{"greedy", {.temperature = 0}}, {"top-p", {.temperature = 0.6f, .top_p = 0.95f}}};
  for (const int32_t rows : {1, 64}) {
    for (const auto& kind : kinds) {
      list.push_back({.name = fmt::format("sample {} {} rows {}", kind.name, vocab, rows),
                      .make = [settings = kind.settings, rows, vocab](KernelMemory& memory, int) {
                        return sample_work(memory, settings, rows, vocab);
                      }});
    }
    list.push_back({.name = fmt::format("process_logits penalties {} rows {}", vocab, rows),
                    .make = [rows, vocab, history](KernelMemory& memory, int) {
                      return process_work(memory, rows, vocab, history);
                    }});
  }
  return list;
}

}  // namespace lantern::cli
