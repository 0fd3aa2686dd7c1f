/* A program in C that knows include/lantern/attention.h alone: two keys into each cache, a choice, and both forms of
 * attention, with values that follow on paper. */
#include "lantern/attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char* lantern_attention_consume(void);

/* What failed, as a line of this file, or the library's sentence. */
#define EXPECT(condition) \
  if (!(condition)) return #condition
#define EXPECT_OK(call) \
  if ((call) != LANTERN_OK) return lantern_attention_last_error()

enum { kRank = 4, kRope = 2, kDim = 4, kBlock = 2, kBlocks = 3 };

static const char* consume(lantern_attention* attention) {
  /* Block 0 is nobody's; the request's two keys are rows 0 and 1 of block 2: slots 4 and 5. */
  const int32_t slot_mapping[] = {4, 5}, token_request[] = {0, -1}, token_context_len[] = {2, 0}, block_table[] = {2};
  const float latents[2][kRank + kRope] = {{1, 2, 3, 4, 1, 0}, {5, 6, 7, 8, 0, 1}};
  const float keys[2][kDim] = {{1, 0, 0, 0}, {0, 1, 0, 0}};
  static _Alignas(64) unsigned char latent_data[kBlocks * kBlock * 2 * (kRank + kRope)];
  static _Alignas(64) unsigned char index_data[kBlocks * kBlock * (kDim + 4)];
  const lantern_latent_cache latent_cache = {
      sizeof(lantern_latent_cache), LANTERN_LATENT_BF16, kRank, kRope, kBlock, kBlocks, latent_data};
  const lantern_index_cache index_cache = {sizeof(lantern_index_cache), kDim, kBlock, kBlocks, index_data};
  size_t bytes = 0;
  EXPECT_OK(lantern_latent_cache_bytes(&latent_cache, &bytes));
  EXPECT(bytes == sizeof(latent_data));
  EXPECT_OK(lantern_index_cache_bytes(&index_cache, &bytes));
  EXPECT(bytes == sizeof(index_data));

  lantern_cache_rows rows = {sizeof(lantern_cache_rows), 2, &latents[0][0], 0, slot_mapping, 0};
  EXPECT_OK(lantern_write_latents(attention, &latent_cache, &rows, NULL));
  rows.values = &keys[0][0];
  EXPECT_OK(lantern_write_index_keys(attention, &index_cache, &rows, NULL));

  const lantern_attention_step step = {
      sizeof(lantern_attention_step), 2, 1, 1, token_request, token_context_len, block_table};
  const float query[2][kDim] = {{1, 2, 0, 0}, {0, 0, 0, 0}}, weights[2] = {1, 1};
  int32_t positions[2] = {7, 7}, slots[2] = {7, 7}, counts[2] = {7, 7};
  lantern_index_select_args choose = {sizeof(lantern_index_select_args), 1, 1, 0, &query[0][0], weights, positions,
                                      slots, counts, NULL, 0};
  EXPECT_OK(lantern_index_select_workspace(attention, &index_cache, &step, &choose, &choose.workspace_bytes));
  choose.workspace = aligned_alloc(64, (choose.workspace_bytes + 63) / 64 * 64);
  const lantern_status chosen = lantern_index_select(attention, &index_cache, &step, &choose, NULL);
  free(choose.workspace);
  EXPECT_OK(chosen);
  EXPECT(positions[0] == 1 && slots[0] == 5 && counts[0] == 1); /* 2 is more than 1 */
  EXPECT(positions[1] == -1 && slots[1] == -1 && counts[1] == 0);

  const float q_latent[2][kRank] = {{0, 0, 0, 0}, {0, 0, 0, 0}}, q_rope[2][kRope] = {{0, 0}, {0, 0}};
  _Alignas(16) float out[2][kRank];
  float lse[2];
  lantern_mla_decode_args decode = {sizeof(lantern_mla_decode_args), 1, 0, 1.0f, &q_latent[0][0], &q_rope[0][0], 0, 0,
                                    NULL, NULL, &out[0][0], lse, NULL, 0};
  EXPECT_OK(lantern_mla_decode_workspace(attention, &latent_cache, &step, &decode, &decode.workspace_bytes));
  decode.workspace = aligned_alloc(64, (decode.workspace_bytes + 63) / 64 * 64);
  const lantern_status dense = lantern_mla_decode(attention, &latent_cache, &step, &decode, NULL);
  const float first = out[0][0], second = out[1][0], dense_lse = lse[0], padding_lse = lse[1];
  decode.top_k = 1;
  decode.slots = slots;
  decode.counts = counts;
  decode.lse = NULL;
  const lantern_status sparse = lantern_mla_decode(attention, &latent_cache, &step, &decode, NULL);
  free(decode.workspace);
  EXPECT_OK(dense);
  EXPECT(first == 3.0f && second == 0.0f); /* the mean of 1 and 5 */
  EXPECT(fabsf(dense_lse - 0.6931472f) < 1e-6f && isinf(padding_lse) && padding_lse < 0);
  EXPECT_OK(sparse);
  EXPECT(out[0][0] == 5.0f && out[0][3] == 8.0f && out[1][3] == 0.0f);
  return NULL;
}

const char* lantern_attention_consume(void) {
  const lantern_attention_config config = {sizeof(lantern_attention_config), LANTERN_DEVICE_CPU, 1};
  lantern_attention* attention = NULL;
  EXPECT(lantern_attention_abi_version() == LANTERN_ATTENTION_ABI_VERSION);
  EXPECT_OK(lantern_attention_create(&config, &attention));
  const char* failed = consume(attention);
  lantern_attention_destroy(attention);
  return failed;
}
