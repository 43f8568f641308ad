// input.h — a batch as it goes to a GPU: one block of pinned memory, one copy.
//
//   0          int32 tokens, sequences, kept rows    what sie_rows point to
//   nonfinite  int32 [sequences] 0: flags that the run raises and the caller copies back
//   ids        int32 [tokens]
//   type_ids   int32 [tokens], zeros where the batch has none; absent where the program has no type table
//   cu_seqlens int32 [sequences + 1]
//   one_each   int32 [sequences + 1] 0, 1, 2 …, where attention is asked one query a sequence
//   keep       int32 [kept rows] token rows, cu_kept int32 [sequences + 1], where rows are kept
//   adapter    int32 [sequences], pairs sie_lora_pair [all of the program], where linears have adapters
//   partner    int32 [sequences], cu_queries int32 [queries + 1], where queries are compared
//   items      sie_out_item of each output that takes them: [sequences], of token rows [tokens] or [kept rows]
//   work       of each list, as kernels/cuda/attention_work.h has it
//   queries    float [query rows, columns]: last, since only what the batch has is copied
//
// Every part begins at a fixed multiple of 256 bytes, and is there only where the program reads it. Where depends on the
// batch's bucket alone, the smallest one that it fits, so that a graph captured for a bucket finds everything in place;
// the last bucket is the program's caps. Queries are bounded by the program's caps in every bucket.
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
  int64_t nonfinite;
  int64_t ids, type_ids, cu_seqlens, one_each;
  int64_t keep, cu_kept, adapter, pairs, partner, cu_queries;
  int64_t items[max_outputs];
  int64_t work[max_work_lists];
  int64_t queries;
  int64_t bytes;  // of all, queries up to their bound included
};

// The parts of a planned program's batches in a bucket; tokens is 0 where the program's caps are below it.
void lay_out_input(const sie_program *program, int32_t bucket, InputLayout *layout);

// The smallest bucket with room.
int32_t choose_bucket(const InputLayout *layouts, int64_t tokens, int64_t seqs);

// How much of everything a batch has.
struct InputSizes {
  int64_t tokens, kept, seqs;
  int64_t longest;  // of its sequences
};

// Writes a checked batch, work lists included, to memory of layout.bytes; *bytes receives how many of them to copy.
sie_status write_input(const sie_program *program, const InputLayout &layout, const InputSizes &sizes,
                       const sie_batch &batch, char *memory, int64_t *bytes, sie_error *err);

}  // namespace sie

#endif  // SIE_CSRC_CUDA_INPUT_H
