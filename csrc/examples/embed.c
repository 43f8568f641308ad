/* embed.c — sie.h in one page: records a model of two words and two columns, and runs it on a batch
 * of two texts.
 *
 *   x = LN(word[id]),  y = x·Wᵀ + x;  output "dense" = the mean of y over a text's tokens
 *
 *   cc -std=c11 -Icsrc/include csrc/examples/embed.c build/libsie.a -lstdc++ -lm -lpthread */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sie.h"

static sie_error err;

static void must(sie_status status) {
  if (status == SIE_OK) return;
  fprintf(stderr, "%s: %s\n", sie_status_name(status), err.message);
  exit(1);
}

static sie_weight *weight(sie_device *device, uint32_t kind, int64_t n, int64_t k, const float *values) {
  sie_weight *w;
  must(sie_weight_create(device,
                         &(sie_weight_desc){.struct_size = sizeof(sie_weight_desc),
                                            .kind = kind,
                                            .compute = SIE_COMPUTE_F32,
                                            .dtype = SIE_F32,
                                            .n_parts = 1,
                                            .n = n,
                                            .k = k,
                                            .parts = {{values, n, 0}}},
                         &w, &err));
  return w;
}

/* The numbers of the program's spaces, inputs and values. */
enum { TOKENS = 1, TEXTS }; /* spaces */
enum { IDS = 1 };           /* inputs */
enum { X = 1, Y, MEAN };    /* values */
#define STRUCT(type, ...) (&(type){.struct_size = sizeof(type), __VA_ARGS__})

int main(void) {
  /* 1 A device: the CPU with every core that this process may use. */
  sie_device *device;
  must(sie_device_open(STRUCT(sie_device_options, .kind = SIE_DEVICE_CPU), &device, &err));

  /* 2 Weights. */
  sie_weight *word = weight(device, SIE_WEIGHT_TABLE, 2, 2, (float[]){0, 2, 6, 2});
  sie_weight *gamma = weight(device, SIE_WEIGHT_VECTOR, 2, 1, (float[]){1, 2});
  sie_weight *w = weight(device, SIE_WEIGHT_LINEAR, 2, 2, (float[]){1, 0, 0, 1});

  /* 3 The program: what a batch brings, then operations. */
  const sie_op ops[] = {
      {SIE_SPACE, 0,
       STRUCT(sie_space_params, .kind = SIE_SPACE_ROWS, .space = TOKENS, .max_rows = 64, .max_each = 16,
              .name = "tokens")},
      {SIE_SPACE, 0,
       STRUCT(sie_space_params, .kind = SIE_SPACE_SEQS, .space = TEXTS, .max_rows = 8, .name = "texts")},
      {SIE_INPUT, 0,
       STRUCT(sie_input_params, .input = IDS, .space = TOKENS, .dtype = SIE_I32, .name = "ids")},
      {SIE_EMBED, 0, STRUCT(sie_embed_params, .y = X, .ids = IDS, .word = word, .gamma = gamma)},
      {SIE_LINEAR, 0, STRUCT(sie_linear_params, .x = X, .residual = X, .y = Y, .w = w)},
      {SIE_POOL, 0, STRUCT(sie_pool_params, .mode = SIE_POOL_MEAN, .x = Y, .y = MEAN)},
      {SIE_OUTPUT_ROWS, 0, STRUCT(sie_output_params, .x = MEAN, .name = "dense")},
  };
  sie_program *program;
  sie_workspace workspace;
  must(sie_program_begin(device, &program, &err));
  must(sie_program_add(program, ops, sizeof ops / sizeof *ops, &err));
  must(sie_program_end(program, &workspace, &err));

  /* 4 and 5 Scratch memory, and a slot with room for two rows of floats. */
  const sie_out_item items[] = {{.dtype = SIE_F32}, {.dtype = SIE_F32, .offset = 8}};
  const int32_t dense = sie_program_find_output(program, "dense");
  const int64_t room[] = {2 * sie_program_output_bytes(program, dense, &items[0], 1)};
  sie_arena *arena;
  sie_slot *slot;
  must(sie_arena_create(device, &workspace, &arena, &err));
  must(sie_slot_create(device,
                       STRUCT(sie_slot_caps, .n_outputs = 1, .max_tokens = 64, .max_seqs = 8,
                              .input_bytes = sie_program_input_bytes(program), .output_bytes = room),
                       &slot, &err));

  /* 6 A batch: two texts, of one and of three tokens. */
  const int32_t ids[] = {0, 0, 1, 1}, offsets[] = {0, 1, 4};
  const sie_rows_of rows[] = {[TOKENS - 1] = {.offsets = offsets}};
  const void *inputs[] = {[IDS - 1] = ids};
  const sie_out_item *of_outputs[] = {items};
  must(sie_slot_load(slot, program,
                     STRUCT(sie_batch, .n_spaces = 1, .n_inputs = 1, .n_outputs = 1, .n_seqs = 2,
                            .spaces = rows, .inputs = inputs, .items = of_outputs),
                     &err));
  must(sie_program_submit(program, arena, slot, NULL, &err));
  must(sie_slot_wait(slot, &err));
  float out[4];
  memcpy(out, sie_slot_output(slot, dense, NULL), sizeof out);
  printf("%.3f %.3f\n%.3f %.3f\n", (double)out[0], (double)out[1], (double)out[2], (double)out[3]);

  sie_slot_free(slot);
  sie_arena_free(arena);
  sie_program_free(program);
  sie_weight_free(word);
  sie_weight_free(gamma);
  sie_weight_free(w);
  sie_device_close(device);
  return 0;
}
