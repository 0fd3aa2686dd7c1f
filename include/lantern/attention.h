/* The attention ops of Lantern's library, for other engines: latent rows and index keys into a paged cache, the choice
 * of keys of DeepSeek Sparse Attention, and MLA over all keys or over the chosen ones, in the latent space. They are
 * the engine's own ops. plan.h makes on the device what a step's arrays hold here; docs/attention_library.md says how
 * the two go together.
 *
 * Conventions. Arrays are on the device of the ops, contiguous, and of float32 or int32 as declared; those of float32
 * and the workspaces are aligned as their comments say. Every struct begins with struct_size, which the caller sets to
 * sizeof: fields that an older caller does not know are taken as 0, and a newer caller is refused only where it uses
 * fields that this library does not know. Functions return LANTERN_OK, LANTERN_INVALID_ARGUMENT (what the host can see
 * of a call makes no sense: nothing was launched) or LANTERN_UNSUPPORTED (no CUDA in this build or on this machine, or
 * CUDA refuses: of the kernels of an op those in front of the refused one have been launched, and its outputs mean
 * nothing); lantern_attention_last_error() has the sentence.
 *
 * What arrays hold is looked at on the CPU, before an op runs: requests, context lengths, block ids of visible keys,
 * counts and slots that lead out of the block table, a list or the cache are LANTERN_INVALID_ARGUMENT. On a GPU the
 * host does not see them, and neither does a kernel look: they must lie in the cache, as those of a plan without errors
 * do.
 *
 * Streams and graphs. On a GPU an op launches on `stream`, a cudaStream_t (NULL: the default stream), of the calling
 * thread's current device; it allocates nothing and waits for nothing, and its launches follow from sizes and from
 * which pointers are NULL, never from what arrays hold. It may thus be captured and replayed for ever, once the same
 * call was made outside of a capture, which loads its code. On the CPU an op has run when it returns, and `stream` must
 * be NULL. Structs are read before a function returns, arrays when the op runs.
 *
 * Results. Every sum has one fixed order for each device: a token's result is the same bits in whatever batch, and
 * padding changes none. Padded tokens (token_request -1) and tokens that see no key give output 0 and log-sum-exp
 * -infinity, and choose nothing. */
#ifndef LANTERN_ATTENTION_H
#define LANTERN_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "lantern/plan.h" /* lantern_device_kind */
#include "lantern/status.h"

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(modernize-use-using): C has no using */

#define LANTERN_ATTENTION_ABI_VERSION 1u

/* Where ops run. May be used by one thread at a time, different ones by any. */
typedef struct lantern_attention lantern_attention;

typedef struct lantern_attention_config {
  uint32_t struct_size;
  int32_t device_kind; /* lantern_device_kind */
  int32_t threads;     /* of the CPU; 0: every core that the process may use. 0 on a GPU */
} lantern_attention_config;

LANTERN_API uint32_t lantern_attention_abi_version(void);

LANTERN_API lantern_status lantern_attention_create(const lantern_attention_config* config,
                                                    lantern_attention** attention);
/* NULL is allowed. Graphs that ops were captured in stay good. */
LANTERN_API void lantern_attention_destroy(lantern_attention* attention);

/* A row of the latent cache: kv_lora_rank values of the normed latent, then rope_dim of the rotated key that all heads
 * share. */
typedef enum lantern_latent_format {
  LANTERN_LATENT_BF16 = 0, /* 2 bytes a value: 1152 for 512 + 64 */
  LANTERN_LATENT_FP8 = 1   /* kv_lora_rank e4m3 bytes, a float32 scale for each 128 of them, then bf16 for the rotated
                            * part: 656 bytes for 512 + 64. scale = 2^ceil(log2(max(amax / 448, 1e-4))) */
} lantern_latent_format;

/* The paged latent cache of a layer: slot s is row s % block_size of block s / block_size, row after row. */
typedef struct lantern_latent_cache {
  uint32_t struct_size;
  int32_t format;       /* lantern_latent_format */
  int32_t kv_lora_rank; /* 1 to 1024; with FP8 a multiple of 128 */
  int32_t rope_dim;     /* even, 2 to 128 */
  int32_t block_size;   /* tokens */
  int32_t num_blocks;   /* block_size * num_blocks is at most 2^31 - 1 */
  void* data;           /* lantern_latent_cache_bytes(), aligned to 16 bytes */
} lantern_latent_cache;

/* The paged index keys of a layer. A block is planar: block_size keys of dim e4m3 bytes, then their block_size float32
 * scales, 132 bytes a token for 128 values. scale = 2^ceil(log2(max(amax, 1e-4) / 448)). */
typedef struct lantern_index_cache {
  uint32_t struct_size;
  int32_t dim;        /* a multiple of 4, at most 128 */
  int32_t block_size; /* tokens; the kernels on tensor cores take 128 values and a multiple of 16 tokens */
  int32_t num_blocks; /* block_size * num_blocks is at most 2^31 - 1 */
  void* data;         /* lantern_index_cache_bytes(), aligned to 16 bytes */
} lantern_index_cache;

/* Bytes of a cache; `data` is not looked at. */
LANTERN_API lantern_status lantern_latent_cache_bytes(const lantern_latent_cache* cache, size_t* bytes);
LANTERN_API lantern_status lantern_index_cache_bytes(const lantern_index_cache* cache, size_t* bytes);

/* Rows for a cache. */
typedef struct lantern_cache_rows {
  uint32_t struct_size;
  int32_t tokens;              /* 0 to 65535 */
  const float* values;         /* [tokens] rows, normed and rotated: kv_lora_rank + rope_dim values, or dim of them;
                                * aligned to 4 bytes */
  int64_t stride;              /* floats from row to row; 0: the row's own values */
  const int32_t* slot_mapping; /* [tokens]; -1: write nothing. LANTERN_PLAN_SLOT_MAPPING */
  int32_t hadamard;            /* index keys: not 0: the Walsh-Hadamard transform times dim^-0.5 before they are stored,
                                * dim a power of two. 0 for latents */
} lantern_cache_rows;

LANTERN_API lantern_status lantern_write_latents(lantern_attention* attention, const lantern_latent_cache* cache,
                                                 const lantern_cache_rows* rows, void* stream);
LANTERN_API lantern_status lantern_write_index_keys(lantern_attention* attention, const lantern_index_cache* cache,
                                                    const lantern_cache_rows* rows, void* stream);

/* What ops that read a cache see of a step. A request may have any number of tokens (1 + drafts), each with a context
 * length of its own. */
typedef struct lantern_attention_step {
  uint32_t struct_size;
  int32_t tokens;                   /* 0 to 65535, padding included */
  int32_t requests;                 /* rows of the block table */
  int32_t block_table_stride;       /* entries from row to row, and the most of a row that are read: times block_size,
                                     * the longest context, at most 2^30. Sizes workspaces and launches */
  const int32_t* token_request;     /* [tokens]; -1: padding. LANTERN_PLAN_TOKEN_REQUEST */
  const int32_t* token_context_len; /* [tokens]; keys that the token sees. LANTERN_PLAN_TOKEN_CONTEXT_LEN */
  const int32_t* block_table;       /* [requests][block_table_stride] */
} lantern_attention_step;

/* The lightning indexer: score(t, s) = sum over heads of weights[t][h] * max(0, query[t][h] . key[s]), where the query
 * is rounded to e4m3 like the keys, with a scale of its own for each head, and the top_k keys of the largest scores,
 * exactly: of equal scores (+0 and -0 are equal) the lower position is taken. A token that sees at most top_k keys
 * takes all of them, unscored. Scores are not handed out: they lie in the workspace, for at most 64 tokens at a time,
 * so that it does not grow with the batch. */
typedef struct lantern_index_select_args {
  uint32_t struct_size;
  int32_t heads;          /* 1 to 128 */
  int32_t top_k;          /* 1 to 2^20 */
  int32_t hadamard;       /* as the keys were written */
  const float* query;     /* [tokens][heads][dim], rotated; aligned to 4 bytes */
  const float* weights;   /* [tokens][heads], times heads^-0.5 * dim^-0.5 */
  int32_t* positions;     /* out [tokens][top_k]: ascending, then -1 */
  int32_t* slots;         /* out [tokens][top_k]: where the keys of the positions lie, in their order, then -1 */
  int32_t* counts;        /* out [tokens]: min(context length, top_k) */
  void* workspace;        /* aligned to 64 bytes */
  size_t workspace_bytes; /* at least lantern_index_select_workspace(); what it holds is nobody's */
} lantern_index_select_args;

/* Bytes that a call with these sizes needs, on this device; pointers but those of the structs are not looked at. */
LANTERN_API lantern_status lantern_index_select_workspace(const lantern_attention* attention,
                                                          const lantern_index_cache* cache,
                                                          const lantern_attention_step* step,
                                                          const lantern_index_select_args* args, size_t* bytes);
LANTERN_API lantern_status lantern_index_select(lantern_attention* attention, const lantern_index_cache* cache,
                                                const lantern_attention_step* step,
                                                const lantern_index_select_args* args, void* stream);

/* MLA in the latent space (absorbed), with c the first kv_lora_rank values of a row and k the others:
 * out[t][h] = sum over keys s of softmax_s(scale * (q_latent[t][h] . c_s + q_rope[t][h] . k_s)) * c_s. Softmax and sums
 * are float32; on a GPU, for rows of 512 + 64 values, products are of bf16: queries, FP8 rows (exactly, but for scales
 * beyond bf16's range) and the softmax's weights are rounded to it. */
typedef struct lantern_mla_decode_args {
  uint32_t struct_size;
  int32_t heads;               /* 1 to 128 */
  int32_t top_k;               /* entries of a list; 0: dense, every key of the context, and no lists */
  float scale;                 /* finite, above 0 */
  const float* q_latent;       /* [tokens][heads][kv_lora_rank]; q_nope times W_UK; aligned to 4 bytes */
  const float* q_rope;         /* element (t, h, i) at t * q_rope_token_stride + h * q_rope_head_stride + i; rotated */
  int64_t q_rope_token_stride; /* floats; 0: heads * q_rope_head_stride */
  int64_t q_rope_head_stride;  /* floats; 0: rope_dim */
  const int32_t* slots;   /* sparse: [tokens][top_k], of which counts[t] are read. lantern_index_select_args.slots */
  const int32_t* counts;  /* sparse: [tokens] */
  float* out;             /* [tokens][heads][kv_lora_rank]; aligned to 16 bytes */
  float* lse;             /* [tokens][heads], natural logarithm of the sum of exp; NULL: not wanted */
  void* workspace;        /* aligned to 64 bytes */
  size_t workspace_bytes; /* at least lantern_mla_decode_workspace(); what it holds is nobody's */
} lantern_mla_decode_args;

/* As lantern_index_select_workspace(). On a GPU it is for at most 32 tokens at a time. */
LANTERN_API lantern_status lantern_mla_decode_workspace(const lantern_attention* attention,
                                                        const lantern_latent_cache* cache,
                                                        const lantern_attention_step* step,
                                                        const lantern_mla_decode_args* args, size_t* bytes);
LANTERN_API lantern_status lantern_mla_decode(lantern_attention* attention, const lantern_latent_cache* cache,
                                              const lantern_attention_step* step, const lantern_mla_decode_args* args,
                                              void* stream);

/* Of the calling thread's last function here that did not return LANTERN_OK; valid until its next one. Never NULL. */
LANTERN_API const char* lantern_attention_last_error(void);

/* NOLINTEND(modernize-use-using) */
#ifdef __cplusplus
}
#endif

#endif /* LANTERN_ATTENTION_H */
