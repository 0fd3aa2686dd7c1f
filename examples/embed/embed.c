/* Answers one prompt, piece by piece, then asks a second time and cancels after the first piece:
 *   embed_c MODEL_DIR PROMPT */
#include <lantern/engine_c.h>
#include <stdio.h>

static int fail(const char* what) {
  fprintf(stderr, "embed_c: %s: %s\n", what, lantern_last_error());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: embed_c MODEL_DIR PROMPT\n");
    return 2;
  }
  lantern_engine_config config = {0};
  config.struct_size = sizeof(config);
  config.model_dir = argv[1];
  config.max_num_seqs = 2;
  lantern_engine* engine = NULL;
  if (lantern_engine_create(&config, &engine) != LANTERN_OK) return fail("the model cannot be loaded");

  lantern_request request = {0};
  request.struct_size = sizeof(request);
  request.prompt = argv[2];
  request.max_tokens = 64;
  lantern_stream* stream = NULL;
  if (lantern_engine_submit(engine, &request, &stream) != LANTERN_OK) return fail("the request was refused");
  lantern_output output = {0};
  output.struct_size = sizeof(output);
  while (lantern_stream_next(stream, -1, &output) == LANTERN_OK) fwrite(output.text, 1, output.text_bytes, stdout);
  printf("\n");
  lantern_stream_destroy(stream);

  request.ignore_eos = 1;
  request.max_tokens = 0; /* until the context is full */
  if (lantern_engine_submit(engine, &request, &stream) != LANTERN_OK) return fail("the request was refused");
  if (lantern_stream_next(stream, -1, &output) != LANTERN_OK) return fail("no output came");
  lantern_stream_cancel(stream);
  while (lantern_stream_next(stream, -1, &output) == LANTERN_OK) {
  }
  const int cancelled = output.end_reason == LANTERN_END_CANCELLED;
  fprintf(stderr, "the second answer %s\n", cancelled ? "was cancelled" : "ended by itself");
  lantern_stream_destroy(stream);

  lantern_engine_destroy(engine);
  return cancelled ? 0 : 1;
}
