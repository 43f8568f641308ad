// input.h — a batch as it goes to a GPU: one block of pinned memory, one copy.
//
//   0          int32 rows of each space, by its number    what sie_rows point to
//   nonfinite  int32 [sequences] 0: flags that the run raises and the caller copies back
//   offsets    of ROWS and SUBSET spaces int32 [sequences + 1]; of the SEQS space 0, 1, 2 …, where attention is asked one
//              query a sequence; of SHARED spaces int32 [groups + 1]
//   index      of SUBSET spaces int32 [rows]
//   inputs     int32 [rows] of ROWS and SEQS spaces; what is left out is written as what it counts as
//   pairs      sie_lora_pair [all of the program], where linears have adapters
//   items      sie_out_item of each output that takes them: [sequences], of token rows one a row
//   work       of each list, as kernels/cuda/attention_work.h has it
//   shared     inputs of SHARED spaces, float [rows, columns]: last, since only what the batch has is copied
//
// Every part begins at a fixed multiple of 256 bytes, and is there only where the program reads it.
// Where depends on the batch's bucket alone, the smallest one that it fits, so that a graph
// captured for a bucket finds everything in place; the last bucket is the program's bounds. SHARED
// spaces have these in every bucket. Offset 0 is nothing's but the counts'.
#ifndef SIE_CSRC_CUDA_INPUT_H
#define SIE_CSRC_CUDA_INPUT_H

#include "slot.h"

namespace sie {

// Batches of at most so many tokens, and as many sequences, can be graphs: beyond them launching
// hides behind the GPU's own time (a launch takes about 2 µs, a kernel of 1,024 tokens as long).
constexpr int32_t graph_buckets[] = {16, 32, 64, 128, 192, 256, 384, 512, 768, 1024};
constexpr int32_t n_graph_buckets = sizeof graph_buckets / sizeof *graph_buckets;
constexpr int32_t whole_bucket =
    n_graph_buckets;  // of batches up to the caps, launched one kernel after another

struct InputLayout {
  int64_t tokens, seqs, longest;  // bounds
  int64_t nonfinite;
  int64_t offsets[max_spaces + 1], index[max_spaces + 1];
  int64_t inputs[max_inputs + 1];
  int64_t pairs;
  int64_t items[max_outputs];
  int64_t work[max_work_lists];
  int64_t shared;  // where the inputs of SHARED spaces begin; 0: there are none
  int64_t bytes;   // of all, those up to their bound included
};

// The parts of a planned program's batches in a bucket; tokens is 0 where the program's bounds are
// below it.
void lay_out_input(const sie_program *program, int32_t bucket, InputLayout *layout);

// The smallest bucket with room.
int32_t choose_bucket(const InputLayout *layouts, int64_t tokens, int64_t seqs);

// What grids are sized by: the rows of each space, and the longest sequence.
struct InputBounds {
  int64_t rows[max_spaces + 1];
  int64_t longest;
};

// Writes a checked batch, work lists included, to memory of layout.bytes; *bytes receives how many
// of them to copy.
sie_status write_input(const sie_program *program, const InputLayout &layout, const BatchIn &batch,
                       char *memory, int64_t *bytes, sie_error *err);

}  // namespace sie

#endif  // SIE_CSRC_CUDA_INPUT_H
