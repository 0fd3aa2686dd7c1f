// include/lantern/attention.h over the engine's ops.
#include "lantern/attention.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <exception>
#include <memory>
#include <string>

#include "attention/c_answer.h"
#include "attention/c_arrays.h"
#include "attention/cache_write.h"
#include "attention/cuda_attention.h"
#include "attention/cuda_stream_check.h"
#include "attention/index_scratch.h"
#include "attention/indexer.h"
#include "attention/mla.h"
#include "attention/mla_splits.h"
#include "attention/plan/plan_cuda.h"
#include "base/c_struct.h"
#include "device/device.h"
#include "device/launch_failures.h"
#include "device/stream.h"

struct lantern_attention {
  std::unique_ptr<lantern::Device> host;  // null on a GPU
  std::unique_ptr<lantern::Stream> host_stream;
};

namespace lantern {
namespace {

constexpr int32_t kMaxThreads = 1024;
constexpr int32_t kMaxTokens = 65535;  // of a grid
constexpr int32_t kMaxHeads = 128;
constexpr int32_t kMaxRank = 1024;
constexpr int32_t kMaxRope = 128;
constexpr int32_t kMaxIndexKeyDim = 128;
constexpr int32_t kMaxTopK = 1 << 20;
constexpr int64_t kMaxContext = int64_t{1} << 30;
constexpr int64_t kMaxStride = int64_t{1} << 40;
constexpr size_t kCacheAlignment = 16;
constexpr size_t kOutAlignment = 16;
constexpr size_t kWorkspaceAlignment = 64;

CAnswer& answer() {
  thread_local CAnswer of_this_thread;
  return of_this_thread;
}

lantern_status finish(const Status& status) { return answer().finish(status); }

// Checks of a struct's fields, in sentences with its name.
struct Fields {
  const char* of;

  template <class Struct>
  Result<Struct> read(const Struct* from) const {
    return read_c_struct(from, of, LANTERN_ATTENTION_ABI_VERSION);
  }
  Status range(const char* name, int64_t value, int64_t least, int64_t most) const {
    if (value >= least && value <= most) return {};
    return refuse(fmt::format("{}.{} is {}, but must be {} to {}", of, name, value, least, most));
  }
  Status multiple(const char* name, int32_t value, int32_t divisor) const {
    if (value % divisor == 0) return {};
    return refuse(fmt::format("{}.{} is {}, but must be a multiple of {}", of, name, value, divisor));
  }
  template <class T>
  Result<DevPtr<T>> array(const char* name, T* address, int64_t count, size_t alignment = alignof(T)) const {
    if (address == nullptr) return refuse(fmt::format("{}.{} is NULL", of, name));
    if (reinterpret_cast<uintptr_t>(address) % alignment != 0) {
      return refuse(
          fmt::format("{}.{} is {}, but must be aligned to {} bytes", of, name, fmt::ptr(address), alignment));
    }
    return DevPtr<T>(borrow_fixed(address, count));
  }
  Result<DevPtr<std::byte>> workspace(void* address, size_t bytes, int64_t needed) const {
    if (bytes < static_cast<size_t>(needed)) {
      return refuse(fmt::format("{}.workspace_bytes is {}, but {} are needed", of, bytes, needed));
    }
    return array("workspace", static_cast<std::byte*>(address), needed, kWorkspaceAlignment);
  }
  // Slots are counted in 32 bits.
  Status slots(int32_t block_size, int32_t num_blocks) const {
    if (block_size >= 1 && num_blocks >= 1 && int64_t{block_size} * num_blocks <= INT32_MAX) return {};
    return refuse(fmt::format("{} has {} blocks of {} tokens, but must have 1 to {} slots", of, num_blocks, block_size,
                              INT32_MAX));
  }
};
constexpr Fields kConfig{"lantern_attention_config"}, kLatents{"lantern_latent_cache"}, kKeys{"lantern_index_cache"},
    kRows{"lantern_cache_rows"}, kStep{"lantern_attention_step"}, kSelect{"lantern_index_select_args"},
    kDecode{"lantern_mla_decode_args"};

Status create(const lantern_attention_config* from, lantern_attention** attention) {
  if (attention == nullptr) return refuse("attention is NULL");
  *attention = nullptr;
  ASSIGN_OR_RETURN(const lantern_attention_config c, kConfig.read(from));
  auto made = std::make_unique<lantern_attention>();
  RETURN_IF_ERROR(kConfig.range("device_kind", c.device_kind, LANTERN_DEVICE_CPU, LANTERN_DEVICE_CUDA));
  const bool cuda = c.device_kind == LANTERN_DEVICE_CUDA;
  RETURN_IF_ERROR(kConfig.range("threads", c.threads, 0, cuda ? 0 : kMaxThreads));
  if (cuda) {
    RETURN_IF_ERROR(plan::load_plan_kernels());  // says what is missing, if anything
  } else {
    try {
      made->host = make_host_device(c.threads);
      made->host_stream = std::make_unique<Stream>(*made->host);
    } catch (const std::exception& error) {
      return Error(ErrorCode::kUnsupported, fmt::format("the threads could not be started: {}", error.what()));
    }
  }
  *attention = made.release();
  return {};
}

template <class Params>
Status run(lantern_attention& attention, void* stream, void (*op)(Stream&, const Params&),
           CudaLaunch<Params> CudaAttention::* cuda, const Params& params) {
  if (attention.host == nullptr) {
    RETURN_IF_ERROR(check_cuda_stream(stream));
    LaunchFailures refused;
    (cuda_attention()->*cuda)(stream, params);
    return refused.status();
  }
  if (stream != nullptr) return refuse("the CPU has no stream, but one was given; pass NULL");
  op(*attention.host_stream, params);
  return {};
}

struct LatentCache {
  LatentLayout layout;
  int64_t row_bytes;
  int64_t bytes;
  lantern_latent_cache c;

  int64_t num_slots() const { return int64_t{c.block_size} * c.num_blocks; }
};

// Sizes only.
Result<LatentCache> read_cache(const lantern_latent_cache* from) {
  ASSIGN_OR_RETURN(const lantern_latent_cache c, kLatents.read(from));
  RETURN_IF_ERROR(kLatents.range("format", c.format, LANTERN_LATENT_BF16, LANTERN_LATENT_FP8));
  const bool fp8 = c.format == LANTERN_LATENT_FP8;
  RETURN_IF_ERROR(kLatents.range("kv_lora_rank", c.kv_lora_rank, 1, kMaxRank));
  RETURN_IF_ERROR(kLatents.multiple("kv_lora_rank", c.kv_lora_rank, fp8 ? kFp8ScaleGroup : 1));
  RETURN_IF_ERROR(kLatents.range("rope_dim", c.rope_dim, 2, kMaxRope));
  RETURN_IF_ERROR(kLatents.multiple("rope_dim", c.rope_dim, 2));
  RETURN_IF_ERROR(kLatents.slots(c.block_size, c.num_blocks));
  const LatentLayout layout = fp8 ? LatentLayout::kFp8 : LatentLayout::kBf16;
  ASSIGN_OR_RETURN(const int64_t row_bytes, latent_row_bytes(layout, c.kv_lora_rank, c.rope_dim));
  return LatentCache{layout, row_bytes, row_bytes * c.block_size * c.num_blocks, c};
}

template <class Byte>
Result<DevPtr<Byte>> data_of(const LatentCache& cache) {
  return kLatents.array("data", static_cast<Byte*>(cache.c.data), cache.bytes, kCacheAlignment);
}

struct IndexCache {
  int64_t block_bytes;
  int64_t bytes;
  lantern_index_cache c;

  int64_t num_slots() const { return int64_t{c.block_size} * c.num_blocks; }
};

Result<IndexCache> read_cache(const lantern_index_cache* from) {
  ASSIGN_OR_RETURN(const lantern_index_cache c, kKeys.read(from));
  RETURN_IF_ERROR(kKeys.range("dim", c.dim, 4, kMaxIndexKeyDim));
  RETURN_IF_ERROR(kKeys.multiple("dim", c.dim, 4));
  RETURN_IF_ERROR(kKeys.slots(c.block_size, c.num_blocks));
  const int64_t block_bytes = int64_t{c.block_size} * (c.dim + 4);
  return IndexCache{block_bytes, block_bytes * c.num_blocks, c};
}

template <class Byte>
Result<DevPtr<Byte>> data_of(const IndexCache& cache) {
  return kKeys.array("data", static_cast<Byte*>(cache.c.data), cache.bytes, kCacheAlignment);
}

Status check_hadamard(int32_t hadamard, int32_t dim) {
  if (hadamard == 0 || std::has_single_bit(static_cast<uint32_t>(dim))) return {};
  return refuse(fmt::format("hadamard needs a power of two of values, but lantern_index_cache.dim is {}", dim));
}

struct Rows {
  DevPtr<const float> values;
  int64_t stride;
  DevPtr<const int32_t> slot_mapping;
  lantern_cache_rows c;
};

Result<Rows> read_rows(const lantern_cache_rows* from, int32_t width) {
  ASSIGN_OR_RETURN(const lantern_cache_rows c, kRows.read(from));
  RETURN_IF_ERROR(kRows.range("tokens", c.tokens, 0, kMaxTokens));
  Rows rows{{}, c.stride == 0 ? width : c.stride, {}, c};
  RETURN_IF_ERROR(kRows.range("stride", rows.stride, width, kMaxStride));
  if (c.tokens == 0) return rows;
  ASSIGN_OR_RETURN(rows.values, kRows.array("values", c.values, (c.tokens - 1) * rows.stride + width));
  ASSIGN_OR_RETURN(rows.slot_mapping, kRows.array("slot_mapping", c.slot_mapping, c.tokens));
  return rows;
}

// What arrays hold is seen on the CPU alone.
Status check_rows(const lantern_attention& attention, const Rows& rows, int64_t num_slots) {
  if (attention.host == nullptr) return {};
  return check_written_slots(rows.slot_mapping.get(), rows.c.tokens, num_slots);
}

Status write_latents(lantern_attention* attention, const lantern_latent_cache* to, const lantern_cache_rows* from,
                     void* stream) {
  if (attention == nullptr) return refuse("attention is NULL");
  ASSIGN_OR_RETURN(const LatentCache cache, read_cache(to));
  ASSIGN_OR_RETURN(const DevPtr<std::byte> data, data_of<std::byte>(cache));
  ASSIGN_OR_RETURN(const Rows rows, read_rows(from, cache.c.kv_lora_rank + cache.c.rope_dim));
  if (rows.c.hadamard != 0) return refuse("lantern_cache_rows.hadamard is for index keys, and must be 0 for latents");
  RETURN_IF_ERROR(check_rows(*attention, rows, cache.num_slots()));
  return run(*attention, stream, &write_latent, &CudaAttention::write_latent,
             LatentWriteParams{.latent = rows.values,
                               .latent_stride = rows.stride,
                               .slot_mapping = rows.slot_mapping,
                               .cache = data,
                               .row_bytes = cache.row_bytes,
                               .layout = cache.layout,
                               .kv_lora_rank = cache.c.kv_lora_rank,
                               .rope_dim = cache.c.rope_dim,
                               .tokens = rows.c.tokens});
}

Status write_index_keys(lantern_attention* attention, const lantern_index_cache* to, const lantern_cache_rows* from,
                        void* stream) {
  if (attention == nullptr) return refuse("attention is NULL");
  ASSIGN_OR_RETURN(const IndexCache cache, read_cache(to));
  ASSIGN_OR_RETURN(const DevPtr<std::byte> data, data_of<std::byte>(cache));
  ASSIGN_OR_RETURN(const Rows rows, read_rows(from, cache.c.dim));
  RETURN_IF_ERROR(check_hadamard(rows.c.hadamard, cache.c.dim));
  RETURN_IF_ERROR(check_rows(*attention, rows, cache.num_slots()));
  return run(*attention, stream, &write_index_key, &CudaAttention::write_index_key,
             IndexKeyWriteParams{.key = rows.values,
                                 .key_stride = rows.stride,
                                 .slot_mapping = rows.slot_mapping,
                                 .cache = data,
                                 .block_bytes = cache.block_bytes,
                                 .block_size = cache.c.block_size,
                                 .layout = IndexKeyLayout::kFp8,
                                 .dim = cache.c.dim,
                                 .hadamard = rows.c.hadamard != 0,
                                 .tokens = rows.c.tokens});
}

// The sizes of a step; its arrays are left out.
Result<lantern_attention_step> read_step(const lantern_attention_step* from, int32_t block_size) {
  ASSIGN_OR_RETURN(const lantern_attention_step c, kStep.read(from));
  RETURN_IF_ERROR(kStep.range("tokens", c.tokens, 0, kMaxTokens));
  RETURN_IF_ERROR(kStep.range("requests", c.requests, 1, INT32_MAX));
  if (c.block_table_stride < 1 || int64_t{c.block_table_stride} * block_size > kMaxContext) {
    return refuse(
        fmt::format("lantern_attention_step.block_table_stride is {} entries of {} tokens, but must be at "
                    "least 1 and reach no further than {} tokens",
                    c.block_table_stride, block_size, kMaxContext));
  }
  return c;
}

Result<StepView> view_of(const lantern_attention_step& c, int32_t block_size) {
  StepView view;
  view.tokens = c.tokens;
  view.decode_tokens = c.tokens;
  view.requests = c.requests;
  view.block_size = block_size;
  view.block_table_stride = c.block_table_stride;
  ASSIGN_OR_RETURN(view.token_request, kStep.array("token_request", c.token_request, c.tokens));
  ASSIGN_OR_RETURN(view.token_context_len, kStep.array("token_context_len", c.token_context_len, c.tokens));
  ASSIGN_OR_RETURN(view.block_table,
                   kStep.array("block_table", c.block_table, int64_t{c.requests} * c.block_table_stride));
  return view;
}

// A call that reads a cache by a step.
template <class Cache, class Args>
struct Call {
  Cache cache;
  lantern_attention_step step;
  Args args;
  int64_t workspace_bytes = 0;
};
using SelectCall = Call<IndexCache, lantern_index_select_args>;
using DecodeCall = Call<LatentCache, lantern_mla_decode_args>;

// All but workspace_bytes; `fields` names the args.
template <class Read, class Cache, class Args>
Result<Read> read_call(const lantern_attention* attention, const Cache* of, const lantern_attention_step* at,
                       const Args* from, const Fields& fields) {
  if (attention == nullptr) return refuse("attention is NULL");
  Read call;
  ASSIGN_OR_RETURN(call.cache, read_cache(of));
  ASSIGN_OR_RETURN(call.step, read_step(at, call.cache.c.block_size));
  ASSIGN_OR_RETURN(call.args, fields.read(from));
  return call;
}

Result<SelectCall> read_select(const lantern_attention* attention, const lantern_index_cache* of,
                               const lantern_attention_step* at, const lantern_index_select_args* from) {
  ASSIGN_OR_RETURN(SelectCall call, read_call<SelectCall>(attention, of, at, from, kSelect));
  const int32_t heads = call.args.heads, dim = call.cache.c.dim;
  RETURN_IF_ERROR(kSelect.range("heads", heads, 1, kMaxHeads));
  RETURN_IF_ERROR(kSelect.range("top_k", call.args.top_k, 1, kMaxTopK));
  RETURN_IF_ERROR(check_hadamard(call.args.hadamard, dim));
  const auto reach = static_cast<int32_t>(int64_t{call.step.block_table_stride} * call.cache.c.block_size);
  call.workspace_bytes = attention->host == nullptr
                             ? cuda_index_scratch_bytes(reach, heads, dim)
                             : index_scratch_bytes(reach, heads, dim, attention->host->worker_count());
  return call;
}

Status select_keys(lantern_attention* attention, const lantern_index_cache* of, const lantern_attention_step* at,
                   const lantern_index_select_args* from, void* stream) {
  ASSIGN_OR_RETURN(const SelectCall call, read_select(attention, of, at, from));
  const lantern_index_select_args& c = call.args;
  const int32_t dim = call.cache.c.dim;
  IndexSelectParams p;
  ASSIGN_OR_RETURN(p.cache, data_of<const std::byte>(call.cache));
  if (call.step.tokens == 0) return {};
  const int64_t tokens = call.step.tokens;
  ASSIGN_OR_RETURN(p.step, view_of(call.step, call.cache.c.block_size));
  if (attention->host != nullptr) RETURN_IF_ERROR(check_visible_keys(p.step, call.cache.c.num_blocks));
  ASSIGN_OR_RETURN(p.query, kSelect.array("query", c.query, tokens * c.heads * dim));
  ASSIGN_OR_RETURN(p.weights, kSelect.array("weights", c.weights, tokens * c.heads));
  ASSIGN_OR_RETURN(p.positions, kSelect.array("positions", c.positions, tokens * c.top_k));
  ASSIGN_OR_RETURN(p.slots, kSelect.array("slots", c.slots, tokens * c.top_k));
  ASSIGN_OR_RETURN(p.counts, kSelect.array("counts", c.counts, tokens));
  ASSIGN_OR_RETURN(p.scratch, kSelect.workspace(c.workspace, c.workspace_bytes, call.workspace_bytes));
  p.scratch_bytes = call.workspace_bytes;
  p.heads = c.heads;
  p.dim = dim;
  p.top_k = c.top_k;
  p.block_bytes = call.cache.block_bytes;
  p.layout = IndexKeyLayout::kFp8;
  p.hadamard = c.hadamard != 0;
  return run(*attention, stream, &index_select, &CudaAttention::index_select, p);
}

Result<DecodeCall> read_decode(const lantern_attention* attention, const lantern_latent_cache* of,
                               const lantern_attention_step* at, const lantern_mla_decode_args* from) {
  ASSIGN_OR_RETURN(DecodeCall call, read_call<DecodeCall>(attention, of, at, from, kDecode));
  RETURN_IF_ERROR(kDecode.range("heads", call.args.heads, 1, kMaxHeads));
  RETURN_IF_ERROR(kDecode.range("top_k", call.args.top_k, 0, kMaxTopK));
  const int32_t tokens = call.step.tokens, heads = call.args.heads, rank = call.cache.c.kv_lora_rank;
  call.workspace_bytes =
      attention->host == nullptr
          ? cuda_mla_decode_scratch_bytes(tokens, heads, rank)
          : mla_decode_scratch_bytes(tokens, heads, rank, call.cache.c.rope_dim, attention->host->worker_count());
  return call;
}

Result<SelectionView> read_selection(const lantern_mla_decode_args& c, int64_t tokens) {
  SelectionView selection;
  if (c.top_k == 0) {
    if (c.slots == nullptr && c.counts == nullptr) return selection;
    return refuse("lantern_mla_decode_args has slots or counts, but top_k is 0; set top_k, or leave them NULL");
  }
  ASSIGN_OR_RETURN(selection.slots, kDecode.array("slots", c.slots, tokens * c.top_k));
  ASSIGN_OR_RETURN(selection.counts, kDecode.array("counts", c.counts, tokens));
  selection.top_k = c.top_k;
  return selection;
}

Status decode(lantern_attention* attention, const lantern_latent_cache* of, const lantern_attention_step* at,
              const lantern_mla_decode_args* from, void* stream) {
  ASSIGN_OR_RETURN(const DecodeCall call, read_decode(attention, of, at, from));
  const lantern_mla_decode_args& c = call.args;
  const int32_t rank = call.cache.c.kv_lora_rank, rope_dim = call.cache.c.rope_dim;
  const int64_t tokens = call.step.tokens;
  // The kernels on tensor cores look for a head's largest product before they scale it.
  if (!std::isfinite(c.scale) || c.scale <= 0) {
    return refuse(fmt::format("lantern_mla_decode_args.scale is {}, but must be finite and above 0", c.scale));
  }
  RETURN_IF_ERROR(kDecode.range("q_rope_head_stride", c.q_rope_head_stride, 0, kMaxStride / kMaxHeads));
  RETURN_IF_ERROR(kDecode.range("q_rope_token_stride", c.q_rope_token_stride, 0, kMaxStride));
  MlaDecodeParams p;
  ASSIGN_OR_RETURN(p.cache.data, data_of<const std::byte>(call.cache));
  if (tokens == 0) return {};
  p.q_rope_head_stride = c.q_rope_head_stride == 0 ? rope_dim : c.q_rope_head_stride;
  p.q_rope_token_stride = c.q_rope_token_stride == 0 ? c.heads * p.q_rope_head_stride : c.q_rope_token_stride;
  const int64_t q_rope_floats = (tokens - 1) * p.q_rope_token_stride + (c.heads - 1) * p.q_rope_head_stride + rope_dim;
  ASSIGN_OR_RETURN(p.step, view_of(call.step, call.cache.c.block_size));
  ASSIGN_OR_RETURN(p.q_latent, kDecode.array("q_latent", c.q_latent, tokens * c.heads * rank));
  ASSIGN_OR_RETURN(p.q_rope, kDecode.array("q_rope", c.q_rope, q_rope_floats));
  ASSIGN_OR_RETURN(p.selection, read_selection(c, tokens));
  if (attention->host != nullptr) {
    RETURN_IF_ERROR(p.selection.counts ? check_chosen_keys(p.step, p.selection, call.cache.num_slots())
                                       : check_visible_keys(p.step, call.cache.c.num_blocks));
  }
  ASSIGN_OR_RETURN(p.out, kDecode.array("out", c.out, tokens * c.heads * rank, kOutAlignment));
  if (c.lse != nullptr) {
    ASSIGN_OR_RETURN(p.lse, kDecode.array("lse", c.lse, tokens * c.heads));
  }
  ASSIGN_OR_RETURN(p.scratch, kDecode.workspace(c.workspace, c.workspace_bytes, call.workspace_bytes));
  p.scratch_bytes = call.workspace_bytes;
  p.cache.row_bytes = call.cache.row_bytes;
  p.cache.layout = call.cache.layout;
  p.cache.kv_lora_rank = rank;
  p.cache.rope_dim = rope_dim;
  p.heads = c.heads;
  p.scale = c.scale;
  return run(*attention, stream, &mla_decode, &CudaAttention::mla_decode, p);
}

// `of` is a member of what was read that holds bytes.
template <class Read>
Status answer_bytes(const Result<Read>& read, int64_t Read::* of, size_t* bytes) {
  if (bytes == nullptr) return refuse("bytes is NULL");
  if (!read.ok()) return read.error();
  *bytes = static_cast<size_t>((*read).*of);
  return {};
}

}  // namespace
}  // namespace lantern

uint32_t lantern_attention_abi_version() { return LANTERN_ATTENTION_ABI_VERSION; }

lantern_status lantern_attention_create(const lantern_attention_config* config, lantern_attention** attention) {
  return lantern::finish(lantern::create(config, attention));
}

void lantern_attention_destroy(lantern_attention* attention) { delete attention; }

lantern_status lantern_latent_cache_bytes(const lantern_latent_cache* cache, size_t* bytes) {
  return lantern::finish(lantern::answer_bytes(lantern::read_cache(cache), &lantern::LatentCache::bytes, bytes));
}

lantern_status lantern_index_cache_bytes(const lantern_index_cache* cache, size_t* bytes) {
  return lantern::finish(lantern::answer_bytes(lantern::read_cache(cache), &lantern::IndexCache::bytes, bytes));
}

lantern_status lantern_write_latents(lantern_attention* attention, const lantern_latent_cache* cache,
                                     const lantern_cache_rows* rows, void* stream) {
  return lantern::finish(lantern::write_latents(attention, cache, rows, stream));
}

lantern_status lantern_write_index_keys(lantern_attention* attention, const lantern_index_cache* cache,
                                        const lantern_cache_rows* rows, void* stream) {
  return lantern::finish(lantern::write_index_keys(attention, cache, rows, stream));
}

lantern_status lantern_index_select_workspace(const lantern_attention* attention, const lantern_index_cache* cache,
                                              const lantern_attention_step* step, const lantern_index_select_args* args,
                                              size_t* bytes) {
  return lantern::finish(lantern::answer_bytes(lantern::read_select(attention, cache, step, args),
                                               &lantern::SelectCall::workspace_bytes, bytes));
}

lantern_status lantern_index_select(lantern_attention* attention, const lantern_index_cache* cache,
                                    const lantern_attention_step* step, const lantern_index_select_args* args,
                                    void* stream) {
  return lantern::finish(lantern::select_keys(attention, cache, step, args, stream));
}

lantern_status lantern_mla_decode_workspace(const lantern_attention* attention, const lantern_latent_cache* cache,
                                            const lantern_attention_step* step, const lantern_mla_decode_args* args,
                                            size_t* bytes) {
  return lantern::finish(lantern::answer_bytes(lantern::read_decode(attention, cache, step, args),
                                               &lantern::DecodeCall::workspace_bytes, bytes));
}

lantern_status lantern_mla_decode(lantern_attention* attention, const lantern_latent_cache* cache,
                                  const lantern_attention_step* step, const lantern_mla_decode_args* args,
                                  void* stream) {
  return lantern::finish(lantern::decode(attention, cache, step, args, stream));
}

const char* lantern_attention_last_error() { return lantern::answer().last_error(); }
