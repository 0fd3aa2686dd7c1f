/* Lantern's engine for programs in C and whatever can call C: a model, served to many threads by one engine. engine.h
 * has the same for C++.
 *
 * Conventions. Every struct begins with struct_size, which the caller sets to sizeof; fields that an older caller does
 * not know are taken as 0, and a newer caller is refused only where it uses fields that this library does not know. A
 * field that is 0 or NULL means its default. Functions return a lantern_status; lantern_last_error() has the sentence
 * for what is not LANTERN_OK, LANTERN_TIMEOUT or LANTERN_END. Text is UTF-8. What a caller passes is read before a
 * function returns and need not live longer.
 *
 * Threads. An engine may be used by any number of threads at once; a stream by one thread at a time, except for
 * lantern_stream_cancel. No call waits for the engine but those that say so. */
#ifndef LANTERN_ENGINE_C_H
#define LANTERN_ENGINE_C_H

#include <stddef.h>
#include <stdint.h>

#include "lantern/status.h"

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(modernize-use-using): C has no using */

/* 2: log-probabilities, allowed tokens. Structs of version 1 are served as ever. */
#define LANTERN_ENGINE_ABI_VERSION 2u

typedef struct lantern_engine lantern_engine;
typedef struct lantern_stream lantern_stream;

typedef struct lantern_engine_config {
  uint32_t struct_size;
  int32_t threads;                /* of the CPU; 0: every usable core */
  const char* model_dir;          /* config.json, tokenizer, safetensors; required */
  const char* device;             /* "auto", "cpu" or "cuda"; NULL: "auto" */
  const char* kv_cache_dtype;     /* "auto", "bf16", "fp8" or "f32"; NULL: "auto" */
  int32_t max_model_len;          /* longest context in tokens; 0: the model's own, at most 32768 */
  int32_t max_num_seqs;           /* sequences that run at a time; 0: 64 */
  int32_t max_num_batched_tokens; /* tokens of a step; 0: 512, or what drafts for every sequence need */
  int32_t num_draft_tokens;       /* tokens drafted for each sequence and step; the text is the same. 0: none */
  int32_t max_queued;             /* sequences that wait, up to 1000000; more are refused. 0: 10000 */
  int32_t no_prefix_caching;      /* not 0: prompts share nothing */
  int32_t strict_config;          /* not 0: a field of config.json that is not known is an error */
  int32_t reserved;               /* 0 */
  int64_t kv_cache_bytes;         /* of the cache for all sequences; 0: a share of what is free */
  /* Since version 2. */
  int32_t max_logprobs; /* likeliest tokens that a request may ask for; 0: 20, the most; -1: no log-probabilities */
  int32_t data_parallel_size; /* engines in step that share the weights; each has the above limits for itself, and its
                                 part of threads and kv_cache_bytes. 0: 1 */
  const char* drafter; /* "auto", "mtp" (the model's own layer) or "ngram" (what followed the same tokens before);
                        * NULL: "auto", which is "mtp" where the model has such a layer */
  const char* graphs; /* steps as captured graphs: "none", "piecewise" (of any step, with attention between its pieces),
                       * "full" (of steps of decodes), "full_and_piecewise", "verify" (each step in all these ways,
                       * compared) or "auto". NULL: "auto", which is "none" on a CPU and "full" on a GPU */
} lantern_engine_config;

/* What a constrained request is asked before each of its tokens. */
typedef struct lantern_allowed_tokens_call {
  uint32_t struct_size;
  int32_t choice;
  const int32_t* tokens; /* all of the choice so far, without the prompt */
  size_t num_tokens;
  uint32_t* mask; /* [mask_words], all 0 before; bit id % 32 of word id / 32 set: the token may come */
  size_t mask_words;
  char* error; /* [error_bytes]: room for a sentence that says why it failed, ending with 0 */
  size_t error_bytes;
} lantern_allowed_tokens_call;
/* Returns 0, or anything else where it failed. Called on the engine's thread between steps, for a choice with ever more
 * tokens (or the same ones again); everybody waits for it, and it may not use the engine. A call that fails or allows
 * nothing ends its choice with LANTERN_END_FAILED. */
typedef int32_t (*lantern_allowed_tokens)(void* context, const lantern_allowed_tokens_call* call);

/* Exactly one of prompt_tokens, prompt and message_roles is given. */
typedef struct lantern_request {
  uint32_t struct_size;
  uint32_t num_messages;
  const int32_t* prompt_tokens; /* ids, special tokens included */
  size_t num_prompt_tokens;
  const char* prompt;                  /* text; special tokens in it are recognised */
  const char* const* message_roles;    /* of a conversation: "system", "user", "assistant", ... */
  const char* const* message_contents; /* written in the format that the model was trained on */
  int32_t thinking;                    /* of a conversation: 1 on, -1 off, 0 as the format does by itself */

  int32_t max_tokens; /* of each choice; 0: what the context has room for */
  int32_t n;          /* choices; 0: 1 */
  float temperature;  /* 0: greedy */
  float top_p;        /* in (0, 1]; 0: 1, which keeps all */
  float min_p;        /* in [0, 1] */
  int32_t top_k;      /* 0: all */
  int32_t min_tokens; /* nothing but the context's end ends a choice before so many */
  uint64_t seed;      /* the same seed gives the same text */

  const char* const* stop; /* strings that end the text, found across token borders */
  size_t num_stop;
  const int32_t* stop_token_ids; /* beside the model's end-of-sequence tokens */
  size_t num_stop_token_ids;
  int32_t include_stop;        /* not 0: what ended the text is part of it */
  int32_t ignore_eos;          /* not 0: go on after an end-of-sequence token */
  int32_t keep_special_tokens; /* not 0: special tokens show in the text */
  int32_t priority;            /* 0 is the most urgent */
  int64_t timeout_ms;          /* from submission to the last token; 0: none */
  const char* cache_salt;      /* only requests of the same salt share prefixes */

  float repetition_penalty; /* above 0, of tokens in the prompt or the output; 0: 1, which changes nothing */
  float presence_penalty;   /* in [-2, 2], of tokens in the output */
  float frequency_penalty;  /* in [-2, 2], for each time that the output has the token */
  uint32_t num_logit_biases;
  const int32_t* logit_bias_tokens; /* ids, each at most once */
  const float* logit_biases;        /* in [-100, 100], added to their logits */
  const char* const* bad_words;     /* that the text must not contain */
  size_t num_bad_words;
  /* Since version 2. Log-probabilities are natural logarithms under the model itself: before penalties, temperature and
   * filters. A request that asks for those of its prompt takes nothing from the prefix cache. */
  int32_t logprobs;                      /* not 0: of every token of the output */
  int32_t top_logprobs;                  /* and so many of the likeliest tokens of its position */
  int32_t prompt_logprobs;               /* not 0: of every token of the prompt but the first */
  int32_t top_prompt_logprobs;           /* and so many of the likeliest tokens of its position */
  lantern_allowed_tokens allowed_tokens; /* NULL: every token may come. A constrained request runs without drafts */
  void* allowed_tokens_context;          /* passed to it */
  /* Where the request was accepted, called once, on any thread, when the context is needed no more. May be NULL. */
  void (*release_allowed_tokens_context)(void* context);
} lantern_request;

/* Of consecutive tokens. */
typedef struct lantern_logprobs {
  size_t num_tokens;         /* 0: not asked for, or none came */
  int32_t num_top;           /* likeliest tokens of each */
  int32_t reserved;          /* 0 */
  const float* logprobs;     /* [num_tokens] */
  const int32_t* ranks;      /* [num_tokens], 1: the likeliest token of all */
  const int32_t* top_tokens; /* [num_tokens][num_top], the likeliest first */
  const float* top_logprobs; /* [num_tokens][num_top] */
} lantern_logprobs;

typedef enum lantern_end_reason {
  LANTERN_NOT_ENDED = 0,
  LANTERN_END_STOP = 1, /* an end-of-sequence or stop token, or a stop string */
  LANTERN_END_LENGTH = 2,
  LANTERN_END_CANCELLED = 3,
  LANTERN_END_TIMEOUT = 4,
  LANTERN_END_FAILED = 5 /* `error` says why */
} lantern_end_reason;

/* What came of a choice since the last output; pointers are valid until the next call with the stream. */
typedef struct lantern_output {
  uint32_t struct_size;
  int32_t choice;
  const int32_t* tokens; /* a stop token among them */
  size_t num_tokens;
  const char* text; /* ends with 0; whole code points */
  size_t text_bytes;
  int32_t end_reason;      /* lantern_end_reason: of the choice's last output */
  int32_t stop_token;      /* that ended it, or -1 */
  const char* stop_string; /* that ended it, or "" */
  const char* error;       /* or "" */
  int32_t prompt_tokens;
  int32_t cached_tokens; /* of the prompt, found by the prefix cache; with the last output */
  /* Since version 2. */
  lantern_logprobs logprobs; /* of `tokens` */
  /* With choice 0, before its first token: of the prompt's tokens from the second one on, those that came since the
   * last output. */
  lantern_logprobs prompt_logprobs;
} lantern_output;

typedef struct lantern_engine_stats {
  uint32_t struct_size;
  int32_t num_running; /* sequences */
  int32_t num_waiting;
  int32_t num_blocks; /* of the cache */
  int32_t num_free_blocks;
  int32_t num_cached_blocks; /* that hold prefixes only, and are given away when needed */
  int32_t block_size;        /* tokens */
  int32_t max_model_len;
  int64_t num_submitted; /* choices */
  int64_t num_ended;
  int64_t num_preemptions;
  int64_t prompt_tokens;
  int64_t prompt_tokens_cached;
  int64_t output_tokens;
  int64_t steps;
  int64_t drafts_checked; /* all before them in their step were right */
  int64_t drafts_accepted;
  double step_seconds;     /* all steps together */
  double executor_seconds; /* of these, in the model */
  /* Since version 2. */
  int32_t num_ranks; /* whose sums these are; 1 in the stats of one */
  int32_t reserved;
  int64_t dummy_steps; /* that ranks ran for the sake of others, beside their own */
} lantern_engine_stats;

LANTERN_API uint32_t lantern_engine_abi_version(void);

/* Loads a model; takes as long as that. */
LANTERN_API lantern_status lantern_engine_create(const lantern_engine_config* config, lantern_engine** engine);
/* Cancels what lives. Streams remain: they give what they have, and are destroyed by their owners. NULL is allowed. */
LANTERN_API void lantern_engine_destroy(lantern_engine* engine);

/* LANTERN_OUT_OF_MEMORY: the queue is full. */
LANTERN_API lantern_status lantern_engine_submit(lantern_engine* engine, const lantern_request* request,
                                                 lantern_stream** stream);
/* No request is accepted from now on. Waits until all that are in have ended (timeout_ms below 0: for ever). */
LANTERN_API lantern_status lantern_engine_drain(lantern_engine* engine, int64_t timeout_ms);
LANTERN_API lantern_status lantern_engine_get_stats(const lantern_engine* engine, lantern_engine_stats* stats);
/* Of one rank, from 0 to data_parallel_size - 1. */
LANTERN_API lantern_status lantern_engine_get_rank_stats(const lantern_engine* engine, int32_t rank,
                                                         lantern_engine_stats* stats);

/* Waits for the next output (timeout_ms below 0: for ever). LANTERN_END: all choices have ended and all was read. What
 * comes while nobody reads is joined: a slow reader gets longer pieces. */
LANTERN_API lantern_status lantern_stream_next(lantern_stream* stream, int64_t timeout_ms, lantern_output* output);
/* Choices that have not ended end with LANTERN_END_CANCELLED. Any thread. */
LANTERN_API void lantern_stream_cancel(lantern_stream* stream);
/* Cancels what has not ended. NULL is allowed. */
LANTERN_API void lantern_stream_destroy(lantern_stream* stream);

/* The sentence of the calling thread's last error; valid until its next one. */
LANTERN_API const char* lantern_last_error(void);

/* NOLINTEND(modernize-use-using) */
#ifdef __cplusplus
}
#endif
#endif /* LANTERN_ENGINE_C_H */
