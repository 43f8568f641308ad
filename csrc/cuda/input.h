// input.h — a batch as it goes to a GPU: one block of pinned memory, one copy.
//
//   0          int32 [spaces] rows of each space, by its number; sie_rows point here
//   nonfinite  int32 [sequences] 0: flags that the run raises and the caller copies back
//   offsets    of ROWS and SUBSET spaces int32 [sequences + 1]; of the SEQS space 0, 1, 2 …, if
//              attention has one query a sequence; of SHARED spaces int32 [groups + 1]
//   index      of SUBSET spaces int32 [rows]
//   inputs     int32 [rows] of ROWS and SEQS spaces; an input that the batch leaves out has
//              `otherwise` in every row
//   pairs      sie_lora_pair [all of the program], where linears have adapters
//   items      sie_out_item of each output that takes them: [sequences]; for token rows, one a row
//   work       of each list, laid out as in kernels/cuda/attention_work.h
//   shared     inputs of SHARED spaces, float [rows, columns]; last, because only the rows that the
//              batch has are copied
//
// Every part begins at a multiple of 256 bytes and exists only if the program reads it. Its place
// depends only on the batch's bucket, the smallest that the batch fits, so that a graph captured
// for a bucket finds everything in place. The last bucket has the program's bounds; SHARED spaces
// have the program's bounds in every bucket. Only the counts are at offset 0, so for any other part
// 0 means that it does not exist.
#ifndef SIE_CSRC_CUDA_INPUT_H
#define SIE_CSRC_CUDA_INPUT_H

#include "slot.h"

namespace sie {

// The buckets of batches that are run as graphs: at most this many tokens, and as many sequences.
// Larger batches gain nothing, because the GPU computes longer than a launch takes (a launch takes
// about 2 µs, as long as a kernel of 1,024 tokens).
constexpr int32_t graph_buckets[] = {16, 32, 64, 128, 192, 256, 384, 512, 768, 1024};
constexpr int32_t n_graph_buckets = sizeof graph_buckets / sizeof *graph_buckets;
// The bucket of batches up to the program's bounds, launched kernel by kernel.
constexpr int32_t whole_bucket = n_graph_buckets;

struct InputLayout {
  int64_t tokens, seqs, longest;  // bounds: rows of any ROWS space, sequences, extents (Caps)
  int64_t longest_keys;           // of a sequence's prefix and own rows together
  int64_t nonfinite;
  int64_t offsets[max_spaces + 1], index[max_spaces + 1];
  int64_t inputs[max_inputs + 1];
  int64_t pairs;
  int64_t items[max_outputs];
  int64_t work[max_work_lists];
  int64_t shared;  // where the inputs of SHARED spaces begin; 0: there are none
  int64_t bytes;   // of all parts, with SHARED inputs at their bounds
};

// Lays out the input of a planned program's batches in a bucket. layout->tokens is 0 if the
// program has no ROWS space of more than the bucket's bound.
void lay_out_input(const sie_program *program, int32_t bucket, InputLayout *layout);

// The smallest bucket in which the batch fits; tokens: the most rows that it has of a ROWS space.
int32_t choose_bucket(const InputLayout *layouts, int64_t tokens, int64_t seqs);

// The bounds by which grids are sized: the rows of each space, and the largest extent.
struct InputBounds {
  int64_t rows[max_spaces + 1];
  int64_t longest, longest_keys;
};

// Writes a checked batch, with its work lists, to memory of layout.bytes bytes. *bytes receives how
// many of them to copy.
sie_status write_input(const sie_program *program, const InputLayout &layout, const BatchIn &batch,
                       char *memory, int64_t *bytes, sie_error *err);

}  // namespace sie

#endif  // SIE_CSRC_CUDA_INPUT_H
