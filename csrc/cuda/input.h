// input.h — a batch as it goes to a GPU: one block of pinned memory, one copy.
//
//   0          int32 tokens, int32 sequences    what sie_rows point to
//   ids        int32 [tokens]
//   type_ids   int32 [tokens], zeros where the batch has none; absent where the program has no type table
//   cu_seqlens int32 [sequences + 1]
//   one_each   int32 [sequences + 1] 0, 1, 2 …, where attention is asked one query a sequence
//   items      sie_out_item [sequences], where the program writes output rows
//   work       of each list, as kernels/cuda/attention_work.h has it
//
// Every part begins at a fixed multiple of 256 bytes. Where depends on the batch's bucket alone, the smallest one that
// it fits, so that a graph captured for a bucket finds everything in place; the last bucket is the program's caps.
#ifndef SIE_CSRC_CUDA_INPUT_H
#define SIE_CSRC_CUDA_INPUT_H

#include "program.h"

namespace sie {

// Batches of at most so many tokens, and as many sequences, can be graphs: beyond them launching hides behind the
// GPU's own time (a launch takes about 2 µs, a kernel of 1,024 tokens as long).
constexpr int32_t graph_buckets[] = {16, 32, 64, 128, 192, 256, 384, 512, 768, 1024};
constexpr int32_t n_graph_buckets = sizeof graph_buckets / sizeof *graph_buckets;
constexpr int32_t whole_bucket =
    n_graph_buckets;  // of batches up to the caps, launched one kernel after another

struct InputLayout {
  int64_t tokens, seqs, longest;  // bounds
  int64_t ids, type_ids, cu_seqlens, one_each, items;
  int64_t work[max_work_lists];
  int64_t bytes;  // to copy
};

// The parts of a planned program's batches in a bucket; tokens is 0 where the program's caps are below it.
void lay_out_input(const sie_program *program, int32_t bucket, InputLayout *layout);

// The smallest bucket with room.
int32_t choose_bucket(const InputLayout *layouts, int64_t tokens, int64_t seqs);

struct InputBatch {
  int64_t n_tokens, n_seqs;
  int64_t longest;  // of its sequences
  const int32_t *ids, *type_ids, *cu_seqlens;
  const sie_out_item *items;
};

// Writes the batch, work lists included, to memory of layout.bytes.
sie_status write_input(const sie_program *program, const InputLayout &layout, const InputBatch &batch,
                       char *memory, sie_error *err);

}  // namespace sie

#endif  // SIE_CSRC_CUDA_INPUT_H
