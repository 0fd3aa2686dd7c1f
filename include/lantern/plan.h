/* The step plan of Lantern's attention library, for other engines: from the raw description of a batch, at fixed
 * addresses, to everything that paged attention kernels read. On a GPU a plan is two kernel launches on the caller's
 * stream, which may be captured in a CUDA graph and replayed for ever: lengths reach it through device memory only.
 * docs/plan.md describes inputs, outputs and what can be wrong with a batch; docs/attention_library.md how to use this.
 *
 * Conventions. All arrays are int32, contiguous, and on the plan's device. Every struct begins with struct_size, which
 * the caller sets to sizeof: fields that an older caller does not know are taken as 0, and a newer caller is refused
 * only where it uses fields that this library does not know. Functions return LANTERN_OK,
 * LANTERN_INVALID_ARGUMENT or LANTERN_UNSUPPORTED (no CUDA in this build or on this machine, or CUDA refuses);
 * lantern_plan_last_error() has the sentence. A plan may be used by one thread at a time, different plans by any. */
#ifndef LANTERN_PLAN_H
#define LANTERN_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "lantern/status.h"

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(modernize-use-using): C has no using */

#define LANTERN_PLAN_ABI_VERSION 1u

typedef enum lantern_device_kind {
  LANTERN_DEVICE_CPU = 0,
  LANTERN_DEVICE_CUDA = 1 /* the calling thread's current device */
} lantern_device_kind;

/* Layers that share one block table. */
typedef struct lantern_plan_group {
  uint32_t struct_size;
  int32_t block_size;             /* tokens */
  int32_t compress_ratio;         /* the cache keeps one entry for so many tokens; 0: 1 */
  int32_t num_blocks;             /* of the pool; block 0 is the null block */
  int32_t max_blocks_per_request; /* entries of a row that may be read */
  int32_t block_table_stride;     /* entries from row to row; 0: max_blocks_per_request */
} lantern_plan_group;

/* Bits of lantern_plan_config.outputs. */
#define LANTERN_PLAN_FLATTENED 1u   /* EXPANDED_BLOCK_TABLE, DECODE_LENS */
#define LANTERN_PLAN_PER_REQUEST 2u /* PER_REQUEST_CONTEXT_LENS */
#define LANTERN_PLAN_DRAFTS 4u      /* DRAFT_*; the inputs then have `accepted` */

typedef struct lantern_plan_config {
  uint32_t struct_size;
  int32_t device_kind; /* lantern_device_kind */
  int32_t max_requests;
  int32_t max_tokens;    /* at least max_requests * max_query_len */
  int32_t max_query_len; /* tokens of one decoding request: 1 + draft tokens */
  int32_t max_model_len;
  const lantern_plan_group* groups; /* num_groups of them, 1 to 4; all with the struct_size of the first */
  uint32_t num_groups;
  uint32_t outputs;                  /* LANTERN_PLAN_* bits */
  int32_t workers;                   /* of the paged MQA schedules; 0: none are made */
  int32_t mla_parts;                 /* of the MLA tile schedule, at most 1024; 0: none is made */
  int32_t mla_fixed_overhead_blocks; /* FlashMLA has 5 */
  int32_t mla_topk;                  /* 0: dense lengths */
  int32_t dcp_world;                 /* decode context parallelism; 0: none */
  int32_t dcp_rank;
  int32_t dcp_interleave;
  int32_t prefill_workspace_tokens; /* 0: no prefill chunks */
  int64_t prefill_logits_bytes;
} lantern_plan_config;

/* The launch shape of a step; a captured plan is for one. Within the limits of the config. */
typedef struct lantern_plan_bucket {
  uint32_t struct_size;
  int32_t tokens;
  int32_t requests;
  int32_t query_width; /* columns of the per-request view, the most tokens of a decode */
} lantern_plan_bucket;

/* What the plan reads when it runs. Entries beyond num_requests and num_tokens are never read. */
typedef struct lantern_plan_inputs {
  uint32_t struct_size;
  uint32_t num_block_tables;          /* the config's num_groups */
  const int32_t* num_requests;        /* [1] */
  const int32_t* num_tokens;          /* [1] */
  const int32_t* query_start_loc;     /* [bucket.requests + 1] */
  const int32_t* seq_lens;            /* [bucket.requests]; visible keys, this step's included */
  const int32_t* prefilling;          /* [bucket.requests]; not 0: its prompt is not finished before this step */
  const int32_t* accepted;            /* [bucket.requests]; with LANTERN_PLAN_DRAFTS, else NULL */
  const int32_t* const* block_tables; /* host array of num_block_tables device arrays [bucket.requests][stride] */
} lantern_plan_inputs;

/* Shapes are the bucket's; capacities those of the limits. (g): one for each group. Not wanted: size 0. */
typedef enum lantern_plan_output {
  LANTERN_PLAN_QUERY_START = 0,              /* [requests]; 0 for padding, as the next two */
  LANTERN_PLAN_QUERY_LEN = 1,                /* [requests] */
  LANTERN_PLAN_SEQ_LEN = 2,                  /* [requests] */
  LANTERN_PLAN_COUNTS = 3,                   /* [9], by lantern_plan_count */
  LANTERN_PLAN_ERRORS = 4,                   /* [requests + 3][2]: request or -1, fault code; then {-1, 0} */
  LANTERN_PLAN_TOKEN_REQUEST = 5,            /* [tokens]; -1 for padding */
  LANTERN_PLAN_TOKEN_CONTEXT_LEN = 6,        /* [tokens]; 0 for padding */
  LANTERN_PLAN_LOCAL_CONTEXT_LEN = 7,        /* [tokens]; with dcp_world */
  LANTERN_PLAN_DECODE_LENS = 8,              /* [tokens]; 1 everywhere */
  LANTERN_PLAN_PER_REQUEST_CONTEXT_LENS = 9, /* [requests][query_width] */
  LANTERN_PLAN_PAGED_MQA_SM90 = 10,          /* [workers + 1][2] over the per-request view */
  LANTERN_PLAN_PAGED_MQA_SM100 = 11,         /* [workers + 1][2] over the flattened view */
  LANTERN_PLAN_MLA_TILES = 12,               /* [mla_parts][8] */
  LANTERN_PLAN_MLA_NUM_SPLITS = 13,          /* [requests + 1] */
  LANTERN_PLAN_PREFILL_CHUNKS = 14,          /* [tokens][4]: first and end request, first and end token */
  LANTERN_PLAN_DRAFT_QUERY_START_LOC = 15,   /* [requests + 1] */
  LANTERN_PLAN_DRAFT_SEQ_LENS = 16,          /* [max_query_len - 2][requests] */
  LANTERN_PLAN_DRAFT_POSITIONS = 17,         /* [max_query_len - 2][requests] */
  LANTERN_PLAN_DRAFT_TOKEN_INDICES = 18,     /* [requests]; -1 for padding */
  LANTERN_PLAN_SLOT_MAPPING = 19,            /* (g) [tokens]; -1 for padding and the null block */
  LANTERN_PLAN_COMPRESSED_CONTEXT_LEN = 20,  /* (g) [tokens]; with compress_ratio above 1 */
  LANTERN_PLAN_COMPRESSED_SLOT_MAPPING = 21, /* (g) [tokens]; with compress_ratio above 1 */
  LANTERN_PLAN_EXPANDED_BLOCK_TABLE = 22,    /* (g) [tokens][max_blocks_per_request] */
  LANTERN_PLAN_DRAFT_SLOT_MAPPING = 23       /* (g) [max_query_len - 2][requests] */
} lantern_plan_output;

typedef enum lantern_plan_count {
  LANTERN_PLAN_NUM_DECODES = 0,
  LANTERN_PLAN_NUM_PREFILLS = 1,
  LANTERN_PLAN_NUM_DECODE_TOKENS = 2,
  LANTERN_PLAN_NUM_PREFILL_TOKENS = 3,
  LANTERN_PLAN_PREFILL_REQUEST_BEGIN = 4,
  LANTERN_PLAN_PREFILL_TOKEN_BEGIN = 5,
  LANTERN_PLAN_REQUIRES_PADDING = 6,
  LANTERN_PLAN_NUM_PREFILL_CHUNKS = 7,
  LANTERN_PLAN_NUM_ERRORS = 8
} lantern_plan_count;

/* Filled in by the library. */
typedef struct lantern_plan_array {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t* data; /* fixed for the plan's life; NULL where the config does not want it */
  size_t size;   /* capacity, in int32 */
} lantern_plan_array;

typedef struct lantern_plan lantern_plan;

LANTERN_API uint32_t lantern_plan_abi_version(void);

/* Bytes of device memory that a plan's outputs take. */
LANTERN_API lantern_status lantern_plan_buffer_bytes(const lantern_plan_config* config, size_t* bytes);

/* Makes a plan whose outputs lie in `buffer`, device memory of the caller's, aligned to 16 bytes, that must outlive the
 * plan and every graph it was captured in. The library allocates no device memory. */
LANTERN_API lantern_status lantern_plan_create(const lantern_plan_config* config, void* buffer, size_t buffer_bytes,
                                               lantern_plan** plan);
/* NULL is allowed. The buffer is the caller's to free. */
LANTERN_API void lantern_plan_destroy(lantern_plan* plan);

/* Where an output lies; `group` counts for those marked (g) and must be 0 for the others. */
LANTERN_API lantern_status lantern_plan_get_output(const lantern_plan* plan, lantern_plan_output output, uint32_t group,
                                                   lantern_plan_array* array);

/* Plans one step. On a GPU: launches on `stream`, a cudaStream_t (NULL: the default stream), waits for nothing and
 * allocates nothing; `inputs` and `bucket` are read before it returns, the arrays when the step runs. On the CPU: has
 * run when it returns, and `stream` must be NULL. Faults of the batch are in ERRORS, not in the status. */
LANTERN_API lantern_status lantern_plan_run(const lantern_plan* plan, const lantern_plan_inputs* inputs,
                                            const lantern_plan_bucket* bucket, void* stream);

/* Of the calling thread's last function that did not return LANTERN_OK; valid until its next one. Never NULL. */
LANTERN_API const char* lantern_plan_last_error(void);

/* Of a fault code: a stable name ("block_outside_pool") and a sentence. Never NULL. */
LANTERN_API const char* lantern_plan_fault_name(int32_t code);
LANTERN_API const char* lantern_plan_fault_message(int32_t code);

/* NOLINTEND(modernize-use-using) */
#ifdef __cplusplus
}
#endif

#endif /* LANTERN_PLAN_H */
