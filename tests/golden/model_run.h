// Runs a model over whole sequences in steps of a chosen shape and collects what the golden files hold. Step inputs are
// made by hand here, not by the step plan: the judge does not lean on what it may one day judge.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "device/persistent_buffer.h"
#include "model/model.h"

namespace lantern::golden {

// Row-major [rows, cols].
struct Matrix {
  int64_t cols = 0;
  std::vector<float> values;

  int64_t rows() const { return cols == 0 ? 0 : static_cast<int64_t>(values.size()) / cols; }
  const float* row(int64_t r) const { return values.data() + r * cols; }
  void append(const float* data, int64_t row_count) { values.insert(values.end(), data, data + row_count * cols); }
};

struct LayerCapture {
  Matrix hidden;                                  // [T, hidden] after the layer, before any norm
  std::vector<std::vector<int32_t>> selected;     // [T] positions, ascending; empty without an indexer of its own
  std::vector<std::map<int32_t, float>> experts;  // [T] expert id -> weight
};

struct SequenceCapture {
  DeviceKind device = DeviceKind::kCpu;
  Matrix logits;  // [T, vocab]
  Matrix final;   // [T, hidden] after the last norm
  std::vector<LayerCapture> layers;
};

// Tokens [begin, begin + count) of one sequence, as part of a step.
struct Piece {
  int sequence = 0;
  int32_t begin = 0;
  int32_t count = 0;
  bool absorbed = false;  // attention in its absorbed (decode) form; such pieces come first in a step
};
using Step = std::vector<Piece>;

enum class Schedule {
  kOneShot,       // each sequence alone in one step, expanded attention
  kBatched,       // both sequences in one step
  kChunks,        // both in steps of uneven chunks
  kTokenByToken,  // both a token at a time, absorbed attention
  kMixed,         // half of each at once; then one decodes while the other goes on in chunks
};
std::vector<Step> make_schedule(Schedule schedule, const std::vector<int32_t>& lengths);
const char* to_string(Schedule schedule);

struct RunOptions {
  KvCacheLayouts layouts{LatentLayout::kF32, IndexKeyLayout::kF32};
  IndexSelectParams::Mode index_mode = IndexSelectParams::Mode::kScore;
  bool index_hadamard = false;
};

class ModelRun {
 public:
  // The geometry is awkward on purpose: small blocks, handed out in an order that is neither ascending nor contiguous.
  static constexpr int32_t kBlockSize = 16;
  static constexpr int32_t kMaxModelLen = 256;
  static constexpr int32_t kMaxTokens = 320;

  // Errors of Model::create.
  static Result<std::unique_ptr<ModelRun>> create(Device& device, ModelConfig config,
                                                  std::unique_ptr<WeightStore> weights, const RunOptions& options);

  // `tokens` are the sequences' ids; every position of each is run once. Caches of earlier runs are overwritten.
  // `padding`: so many padded tokens (request -1, context 0, slot -1) end every step, as in a bucket that is not full.
  std::vector<SequenceCapture> run(const std::vector<std::vector<int32_t>>& tokens, const std::vector<Step>& steps,
                                   int32_t padding = 0);
  // The MTP layer over whole sequences: entry i of sequence s from hidden[s] row i and next_tokens[s][i], stored at
  // slot i + 1. Logits and, as layers[0], what its layer did. A selection that is reused is that of the run before.
  std::vector<SequenceCapture> run_mtp(const std::vector<Matrix>& hidden,
                                       const std::vector<std::vector<int32_t>>& next_tokens,
                                       const std::vector<Step>& steps,
                                       Model::MtpSelection selection = Model::MtpSelection::kComputed);
  // Greedy continuation of one prompt: prefill in one step, then `count` - 1 decodes.
  std::vector<int32_t> greedy(const std::vector<int32_t>& prompt, int count);

  Model& model() { return *model_; }
  DeviceKind device_kind() const { return device_.kind(); }

 private:
  ModelRun(Device& device, std::unique_ptr<Model> model);
  Status allocate();
  // Sends the step's arrays and returns a view of them, valid until the next call.
  StepView stage(const Step& step, const std::vector<std::vector<int32_t>>& tokens, int32_t padding = 0,
                 int32_t key_offset = 0);
  void capture_step(const Step& step, bool mtp, std::vector<SequenceCapture>& captures);
  StepObserver observer(const Step& step, int32_t first_layer, std::vector<SequenceCapture>& captures);

  // An array of a step on the host and, once sent, on the device.
  struct StepArray {
    std::vector<int32_t> values;
    std::unique_ptr<PersistentBuffer<int32_t>> on_device;

    DevPtr<const int32_t> view() const { return Fixed<const int32_t>(on_device->fixed(std::ssize(values))); }
  };
  void send(StepArray& array);
  // Elements [begin, begin + count) of what the device holds, after what was launched.
  template <class T>
  std::vector<T> fetch(const Fixed<T>& source, int64_t begin, int64_t count);

  Device& device_;
  std::unique_ptr<Model> model_;
  Stream stream_;
  StepArray token_ids_, token_request_, token_context_len_, slot_mapping_, block_table_, rows_;
};

}  // namespace lantern::golden
