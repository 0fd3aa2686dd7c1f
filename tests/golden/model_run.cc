#include "golden/model_run.h"

#include <algorithm>
#include <cstring>

namespace lantern::golden {
namespace {

constexpr int32_t kBlocksPerSequence = ModelRun::kMaxModelLen / ModelRun::kBlockSize;
constexpr int32_t kSequences = 2;
constexpr int32_t kNumBlocks = 1 + kSequences * kBlocksPerSequence;

// Block `index` of a sequence: sequences interleave, later positions lie at lower addresses. Never 0, the null block.
int32_t physical_block(int sequence, int32_t index) {
  return 1 + (kBlocksPerSequence - 1 - index) * kSequences + sequence;
}

int32_t slot_of(int sequence, int32_t position) {
  return physical_block(sequence, position / ModelRun::kBlockSize) * ModelRun::kBlockSize +
         position % ModelRun::kBlockSize;
}

// The next chunk of a sequence, from a cycle of uneven sizes; single tokens and block boundaries are among them.
int32_t chunk_size(int round) {
  constexpr int32_t kSizes[] = {7, 1, 13, 16, 2, 64};
  return kSizes[static_cast<size_t>(round) % std::size(kSizes)];
}

Step absorbed_first(const Step& step) {
  Step result;
  for (bool absorbed : {true, false}) {
    for (const Piece& piece : step) {
      if (piece.absorbed == absorbed) result.push_back(piece);
    }
  }
  return result;
}

void append_chunks(std::vector<Step>& steps, std::vector<int32_t> done, const std::vector<int32_t>& lengths,
                   bool first_decodes) {
  for (int round = 0; done != lengths; ++round) {
    Step step;
    for (size_t s = 0; s < lengths.size(); ++s) {
      const int32_t left = lengths[s] - done[s];
      const bool decodes = first_decodes && s == 0;
      const int32_t count = std::min(left, decodes ? 1 : chunk_size(round + static_cast<int>(s)));
      if (count == 0) continue;
      step.push_back({static_cast<int>(s), done[s], count, decodes});
      done[s] += count;
    }
    steps.push_back(absorbed_first(step));
  }
}

template <class T>
DevPtr<const T> borrowed(const std::vector<T>& values) {
  return borrow_fixed(values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace

const char* to_string(Schedule schedule) {
  switch (schedule) {
    case Schedule::kOneShot: return "one shot";
    case Schedule::kBatched: return "batched";
    case Schedule::kChunks: return "chunks";
    case Schedule::kTokenByToken: return "token by token";
    case Schedule::kMixed: return "mixed";
  }
  return "?";
}

std::vector<Step> make_schedule(Schedule schedule, const std::vector<int32_t>& lengths) {
  std::vector<Step> steps;
  const std::vector<int32_t> none(lengths.size(), 0);
  switch (schedule) {
    case Schedule::kOneShot:
      for (size_t s = 0; s < lengths.size(); ++s) steps.push_back({{static_cast<int>(s), 0, lengths[s], false}});
      break;
    case Schedule::kBatched: {
      Step step;
      for (size_t s = 0; s < lengths.size(); ++s) step.push_back({static_cast<int>(s), 0, lengths[s], false});
      steps.push_back(std::move(step));
      break;
    }
    case Schedule::kChunks: append_chunks(steps, none, lengths, false); break;
    case Schedule::kTokenByToken:
      for (int32_t t = 0; t < *std::max_element(lengths.begin(), lengths.end()); ++t) {
        Step step;
        for (size_t s = 0; s < lengths.size(); ++s) {
          if (t < lengths[s]) step.push_back({static_cast<int>(s), t, 1, true});
        }
        steps.push_back(std::move(step));
      }
      break;
    case Schedule::kMixed: {
      Step step;
      std::vector<int32_t> half;
      for (size_t s = 0; s < lengths.size(); ++s) {
        half.push_back(lengths[s] / 2);
        step.push_back({static_cast<int>(s), 0, half.back(), false});
      }
      steps.push_back(std::move(step));
      append_chunks(steps, half, lengths, true);
      break;
    }
  }
  return steps;
}

ModelRun::ModelRun(Device& device, std::unique_ptr<Model> model) : model_(std::move(model)), stream_(device) {}

Result<std::unique_ptr<ModelRun>> ModelRun::create(Device& device, ModelConfig config,
                                                   std::unique_ptr<WeightStore> weights,
                                                   const RunOptions& run_options) {
  ModelOptions options;
  options.layouts = run_options.layouts;
  options.limits.max_tokens = kMaxTokens;
  options.limits.max_requests = kSequences;
  options.limits.max_model_len = kMaxModelLen;
  options.limits.block_size = kBlockSize;
  options.limits.num_blocks = kNumBlocks;
  options.sample_rows = kMaxTokens;
  options.index_mode = run_options.index_mode;
  options.index_hadamard = run_options.index_hadamard;
  ASSIGN_OR_RETURN(auto model, Model::create(device, std::move(config), std::move(weights), options));
  return std::unique_ptr<ModelRun>(new ModelRun(device, std::move(model)));
}

StepView ModelRun::stage(const Step& step, const std::vector<std::vector<int32_t>>& tokens, int32_t padding,
                         int32_t key_offset) {
  token_ids_.clear();
  token_request_.clear();
  token_context_len_.clear();
  slot_mapping_.clear();
  block_table_.assign(static_cast<size_t>(kSequences) * kBlocksPerSequence, 0);
  StepView view;
  for (size_t request = 0; request < step.size(); ++request) {
    const Piece& piece = step[request];
    for (int32_t b = 0; b * kBlockSize < piece.begin + piece.count + key_offset; ++b) {
      block_table_[request * kBlocksPerSequence + static_cast<size_t>(b)] = physical_block(piece.sequence, b);
    }
    for (int32_t t = piece.begin; t < piece.begin + piece.count; ++t) {
      token_ids_.push_back(tokens[static_cast<size_t>(piece.sequence)][static_cast<size_t>(t)]);
      token_request_.push_back(static_cast<int32_t>(request));
      token_context_len_.push_back(t + 1);
      slot_mapping_.push_back(slot_of(piece.sequence, t + key_offset));
    }
    view.tokens += piece.count;
    if (piece.absorbed) view.decode_tokens += piece.count;
  }
  // A bucket of decodes alone is padded with decodes.
  if (view.decode_tokens == view.tokens) view.decode_tokens += padding;
  view.tokens += padding;
  const size_t padded = token_ids_.size() + static_cast<size_t>(padding);
  token_ids_.resize(padded, 0);
  token_request_.resize(padded, -1);
  token_context_len_.resize(padded, 0);
  slot_mapping_.resize(padded, -1);
  view.requests = static_cast<int32_t>(step.size());
  view.block_size = kBlockSize;
  view.block_table_stride = kBlocksPerSequence;
  view.key_offset = key_offset;
  view.token_request = borrowed(token_request_);
  view.token_context_len = borrowed(token_context_len_);
  view.slot_mapping = borrowed(slot_mapping_);
  view.block_table = borrowed(block_table_);
  return view;
}

StepObserver ModelRun::observer(const Step& step, int32_t first_layer, std::vector<SequenceCapture>& captures) {
  const ModelConfig& config = model_->config();
  const auto layer_of = [&captures, first_layer](const Piece& piece, int32_t layer) -> LayerCapture& {
    return captures[static_cast<size_t>(piece.sequence)].layers[static_cast<size_t>(layer - first_layer)];
  };
  StepObserver observer;
  observer.after_selection = [=, &step, &config](int32_t layer, const Activations& a) {
    int64_t t = 0;
    for (const Piece& piece : step) {
      for (int32_t i = 0; i < piece.count; ++i, ++t) {
        const int32_t* positions = a.selected_positions.data() + t * config.index_topk;
        layer_of(piece, layer).selected.emplace_back(positions, positions + a.selected_counts.data()[t]);
      }
    }
  };
  observer.after_router = [=, &step, &config](int32_t layer, const Activations& a) {
    int64_t t = 0;
    for (const Piece& piece : step) {
      for (int32_t i = 0; i < piece.count; ++i, ++t) {
        std::map<int32_t, float> chosen;
        for (int64_t k = t * config.experts_per_token; k < (t + 1) * config.experts_per_token; ++k) {
          chosen[a.expert_ids.data()[k]] = a.expert_weights.data()[k];
        }
        layer_of(piece, layer).experts.push_back(std::move(chosen));
      }
    }
  };
  observer.after_layer = [=, &step, &config](int32_t layer, const Activations& a) {
    int64_t at = 0;
    for (const Piece& piece : step) {
      Matrix& hidden = layer_of(piece, layer).hidden;
      hidden.cols = config.hidden_size;
      const int64_t count = int64_t{piece.count} * config.hidden_size;
      for (int64_t i = at; i < at + count; ++i) hidden.values.push_back(a.residual.data()[i] + a.delta.data()[i]);
      at += count;
    }
  };
  return observer;
}

void ModelRun::capture_step(const Step& step, bool mtp, std::vector<SequenceCapture>& captures) {
  const ModelConfig& config = model_->config();
  rows_.clear();
  for (const Piece& piece : step) {
    for (int32_t i = 0; i < piece.count; ++i) rows_.push_back(static_cast<int32_t>(rows_.size()));
  }
  const auto count = static_cast<int32_t>(rows_.size());
  if (mtp) {
    model_->mtp_logits(stream_, borrowed(rows_), count);
  } else {
    model_->logits(stream_, borrowed(rows_), count);
  }
  stream_.synchronize();
  int64_t row = 0;
  for (const Piece& piece : step) {
    SequenceCapture& capture = captures[static_cast<size_t>(piece.sequence)];
    capture.logits.cols = config.vocab_size;
    capture.final.cols = config.hidden_size;
    capture.logits.append(model_->activations().logits.data() + row * config.vocab_size, piece.count);
    capture.final.append(model_->activations().hidden.data() + row * config.hidden_size, piece.count);
    row += piece.count;
  }
}

std::vector<SequenceCapture> ModelRun::run(const std::vector<std::vector<int32_t>>& tokens,
                                           const std::vector<Step>& steps, int32_t padding) {
  std::vector<SequenceCapture> captures(tokens.size());
  for (SequenceCapture& capture : captures) capture.layers.resize(static_cast<size_t>(model_->config().num_layers));
  for (const Step& step : steps) {
    const StepView view = stage(step, tokens, padding);
    const StepObserver watch = observer(step, 0, captures);
    model_->forward(stream_, view, borrowed(token_ids_), &watch);
    capture_step(step, false, captures);
  }
  return captures;
}

std::vector<SequenceCapture> ModelRun::run_mtp(const std::vector<Matrix>& hidden,
                                               const std::vector<std::vector<int32_t>>& next_tokens,
                                               const std::vector<Step>& steps) {
  std::vector<SequenceCapture> captures(next_tokens.size());
  for (SequenceCapture& capture : captures) capture.layers.resize(1);
  for (const Step& step : steps) {
    const StepView view = stage(step, next_tokens, 0, 1);
    float* input = model_->activations().hidden.data();
    for (const Piece& piece : step) {
      const Matrix& source = hidden[static_cast<size_t>(piece.sequence)];
      const int64_t values = piece.count * source.cols;
      std::memcpy(input, source.row(piece.begin), static_cast<size_t>(values) * sizeof(float));
      input += values;
    }
    const StepObserver watch = observer(step, model_->config().num_layers, captures);
    const Fixed<const float> fed(model_->activations().hidden);
    model_->mtp_forward(stream_, view, borrowed(token_ids_), fed, &watch);
    capture_step(step, true, captures);
  }
  return captures;
}

std::vector<int32_t> ModelRun::greedy(const std::vector<int32_t>& prompt, int count) {
  std::vector<std::vector<int32_t>> tokens{prompt};
  std::vector<int32_t> output;
  Step step{{0, 0, static_cast<int32_t>(prompt.size()), false}};
  while (true) {
    const std::vector<SequenceCapture> captures = run(tokens, {step});
    const Matrix& logits = captures[0].logits;
    const float* last = logits.row(logits.rows() - 1);
    output.push_back(static_cast<int32_t>(std::max_element(last, last + logits.cols) - last));
    if (static_cast<int>(output.size()) == count) return output;
    tokens[0].push_back(output.back());
    step = {{0, static_cast<int32_t>(tokens[0].size()) - 1, 1, true}};
  }
}

}  // namespace lantern::golden
