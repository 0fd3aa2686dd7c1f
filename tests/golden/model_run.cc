#include "golden/model_run.h"

#include <algorithm>

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

ModelRun::ModelRun(Device& device, std::unique_ptr<Model> model)
    : device_(device), model_(std::move(model)), stream_(device) {}

Status ModelRun::allocate() {
  for (StepArray* array : {&token_ids_, &token_request_, &token_context_len_, &slot_mapping_, &block_table_, &rows_}) {
    ASSIGN_OR_RETURN(array->on_device, PersistentBuffer<int32_t>::create(device_, "test step", kMaxTokens));
  }
  return {};
}

void ModelRun::send(StepArray& array) {
  CHECK(std::ssize(array.values) <= kMaxTokens, "a test step of {} values", array.values.size());
  device_.copy_to_device(array.on_device->fixed().data(), array.values.data(), array.values.size() * sizeof(int32_t));
}

template <class T>
std::vector<T> ModelRun::fetch(const Fixed<T>& source, int64_t begin, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  device_.copy_to_host(values.data(), source.sub(begin, count).data(), values.size() * sizeof(T));
  return values;
}

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
  std::unique_ptr<ModelRun> run(new ModelRun(device, std::move(model)));
  RETURN_IF_ERROR(run->allocate());
  return run;
}

StepView ModelRun::stage(const Step& step, const std::vector<std::vector<int32_t>>& tokens, int32_t padding,
                         int32_t key_offset) {
  token_ids_.values.clear();
  token_request_.values.clear();
  token_context_len_.values.clear();
  slot_mapping_.values.clear();
  block_table_.values.assign(static_cast<size_t>(kSequences) * kBlocksPerSequence, 0);
  StepView view;
  for (size_t request = 0; request < step.size(); ++request) {
    const Piece& piece = step[request];
    for (int32_t b = 0; b * kBlockSize < piece.begin + piece.count + key_offset; ++b) {
      block_table_.values[request * kBlocksPerSequence + static_cast<size_t>(b)] = physical_block(piece.sequence, b);
    }
    for (int32_t t = piece.begin; t < piece.begin + piece.count; ++t) {
      token_ids_.values.push_back(tokens[static_cast<size_t>(piece.sequence)][static_cast<size_t>(t)]);
      token_request_.values.push_back(static_cast<int32_t>(request));
      token_context_len_.values.push_back(t + 1);
      slot_mapping_.values.push_back(slot_of(piece.sequence, t + key_offset));
    }
    view.tokens += piece.count;
    if (piece.absorbed) view.decode_tokens += piece.count;
  }
  // A bucket of decodes alone is padded with decodes.
  if (view.decode_tokens == view.tokens) view.decode_tokens += padding;
  view.tokens += padding;
  const size_t padded = token_ids_.values.size() + static_cast<size_t>(padding);
  token_ids_.values.resize(padded, 0);
  token_request_.values.resize(padded, -1);
  token_context_len_.values.resize(padded, 0);
  slot_mapping_.values.resize(padded, -1);
  for (StepArray* array : {&token_ids_, &token_request_, &token_context_len_, &slot_mapping_, &block_table_})
    send(*array);
  view.requests = static_cast<int32_t>(step.size());
  view.block_size = kBlockSize;
  view.block_table_stride = kBlocksPerSequence;
  view.key_offset = key_offset;
  view.token_request = token_request_.view();
  view.token_context_len = token_context_len_.view();
  view.slot_mapping = slot_mapping_.view();
  view.block_table = block_table_.view();
  return view;
}

StepObserver ModelRun::observer(const Step& step, int32_t first_layer, std::vector<SequenceCapture>& captures) {
  const ModelConfig& config = model_->config();
  const auto layer_of = [&captures, first_layer](const Piece& piece, int32_t layer) -> LayerCapture& {
    return captures[static_cast<size_t>(piece.sequence)].layers[static_cast<size_t>(layer - first_layer)];
  };
  StepObserver observer;
  observer.after_selection = [=, this, &step, &config](int32_t layer, const Activations& a) {
    int64_t t = 0;
    for (const Piece& piece : step) {
      const std::vector<int32_t> counts = fetch(a.selected_counts, t, piece.count);
      for (int32_t i = 0; i < piece.count; ++i, ++t) {
        layer_of(piece, layer)
            .selected.push_back(fetch(a.selected_positions, t * config.index_topk, counts[static_cast<size_t>(i)]));
      }
    }
  };
  observer.after_router = [=, this, &step, &config](int32_t layer, const Activations& a) {
    int64_t t = 0;
    for (const Piece& piece : step) {
      for (int32_t i = 0; i < piece.count; ++i, ++t) {
        const int64_t first = t * config.experts_per_token;
        const std::vector<int32_t> ids = fetch(a.expert_ids, first, config.experts_per_token);
        const std::vector<float> weights = fetch(a.expert_weights, first, config.experts_per_token);
        std::map<int32_t, float> chosen;
        for (size_t k = 0; k < ids.size(); ++k) chosen[ids[k]] = weights[k];
        layer_of(piece, layer).experts.push_back(std::move(chosen));
      }
    }
  };
  observer.after_layer = [=, this, &step, &config](int32_t layer, const Activations& a) {
    int64_t at = 0;
    for (const Piece& piece : step) {
      Matrix& hidden = layer_of(piece, layer).hidden;
      hidden.cols = config.hidden_size;
      const int64_t count = int64_t{piece.count} * config.hidden_size;
      const std::vector<float> residual = fetch(a.residual, at, count), delta = fetch(a.delta, at, count);
      for (size_t i = 0; i < residual.size(); ++i) hidden.values.push_back(residual[i] + delta[i]);
      at += count;
    }
  };
  return observer;
}

void ModelRun::capture_step(const Step& step, bool mtp, std::vector<SequenceCapture>& captures) {
  const ModelConfig& config = model_->config();
  rows_.values.clear();
  for (const Piece& piece : step) {
    for (int32_t i = 0; i < piece.count; ++i) rows_.values.push_back(static_cast<int32_t>(rows_.values.size()));
  }
  send(rows_);
  const auto count = static_cast<int32_t>(rows_.values.size());
  if (mtp) {
    model_->mtp_logits(stream_, rows_.view(), count);
  } else {
    model_->logits(stream_, rows_.view(), count);
  }
  const Activations& a = model_->activations();
  int64_t row = 0;
  for (const Piece& piece : step) {
    SequenceCapture& capture = captures[static_cast<size_t>(piece.sequence)];
    capture.logits.cols = config.vocab_size;
    capture.final.cols = config.hidden_size;
    capture.logits.append(fetch(a.logits, row * config.vocab_size, int64_t{piece.count} * config.vocab_size).data(),
                          piece.count);
    capture.final.append(fetch(a.hidden, row * config.hidden_size, int64_t{piece.count} * config.hidden_size).data(),
                         piece.count);
    row += piece.count;
  }
}

std::vector<SequenceCapture> ModelRun::run(const std::vector<std::vector<int32_t>>& tokens,
                                           const std::vector<Step>& steps, int32_t padding) {
  std::vector<SequenceCapture> captures(tokens.size(),
                                        {.device = device_.kind(), .logits = {}, .final = {}, .layers = {}});
  for (SequenceCapture& capture : captures) capture.layers.resize(static_cast<size_t>(model_->config().num_layers));
  for (const Step& step : steps) {
    const StepView view = stage(step, tokens, padding);
    const StepObserver watch = observer(step, 0, captures);
    model_->forward(stream_, view, token_ids_.view(), &watch);
    capture_step(step, false, captures);
  }
  return captures;
}

std::vector<SequenceCapture> ModelRun::run_mtp(const std::vector<Matrix>& hidden,
                                               const std::vector<std::vector<int32_t>>& next_tokens,
                                               const std::vector<Step>& steps, Model::MtpSelection selection) {
  std::vector<SequenceCapture> captures(next_tokens.size(),
                                        {.device = device_.kind(), .logits = {}, .final = {}, .layers = {}});
  for (SequenceCapture& capture : captures) capture.layers.resize(1);
  for (const Step& step : steps) {
    const StepView view = stage(step, next_tokens, 0, 1);
    float* input = model_->activations().hidden.data();
    for (const Piece& piece : step) {
      const Matrix& source = hidden[static_cast<size_t>(piece.sequence)];
      const int64_t values = piece.count * source.cols;
      device_.copy_to_device(input, source.row(piece.begin), static_cast<size_t>(values) * sizeof(float));
      input += values;
    }
    const StepObserver watch = observer(step, model_->config().num_layers, captures);
    const Fixed<const float> fed(model_->activations().hidden);
    model_->mtp_forward(stream_, view, token_ids_.view(), fed, &watch, selection);
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
