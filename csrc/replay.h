// replay.h — one slab of a batch through a planned program.
#ifndef SIE_CSRC_REPLAY_H
#define SIE_CSRC_REPLAY_H

#include "program.h"

namespace sie {

// Whole sequences of a batch, with row numbers of their own. The pointers lead into the slot. On a GPU it is the
// whole batch, its pointers lead into device memory, and the numbers are not set.
//
// What a program does not read (keep, adapter, partner, queries, an output's items) is null.
struct Slab {
  int32_t n_tokens, n_kept, n_seqs;
  int32_t after;              // long slabs of the batch that must be done before this one has its place
  int64_t place;              // of a long slab: bytes from the start of the region
  int64_t max_len;            // of its sequences
  const int32_t *ids;         // [n_tokens]
  const int32_t *type_ids;    // [n_tokens] or null
  const int32_t *cu_seqlens;  // [n_seqs + 1], from 0
  const int32_t *keep;        // [n_kept] rows of the slab
  const int32_t *cu_kept;     // [n_seqs + 1], from 0
  const int32_t *adapter;     // [n_seqs]
  const int32_t *partner;     // [n_seqs] a query of the batch, or −1
  const float *queries;       // of the batch
  const int32_t *cu_queries;
  const sie_out_item *items[max_outputs];  // [n_seqs]; of token rows [n_tokens] or [n_kept]
  const int32_t *batch_rows;               // [n_seqs] first token of each sequence in the batch
  const int32_t *batch_kept;               // [n_seqs] first kept row of each sequence in the batch
  const int32_t *batch_seqs;               // [n_seqs] number of each sequence in the batch; null on a GPU
};

struct Replay {
  const sie_program *program;
  const Slab *slab;
  sie_rows tokens, kept, seqs;  // bounds, and where the slab's numbers are
  char *values;                 // of the lane, or of a long slab
  int64_t long_cap;             // rows that a long slab's values have room for; 0: a lane
  int64_t first_row;            // of a long slab's block of rows, of which the slab then tells
  int32_t q_first, q_last;      // of a block of queries; q_last 0: all
  bool resumed;                 // as in sie_attention_args
  sie_share share;
  void *outputs[max_outputs];
  int32_t *nonfinite;  // flags of the batch's sequences
  const int32_t *one_row_each;
  const sie_lora_pair *lora_pairs;   // the program's; on a GPU, on the device
  const void *work[max_work_lists];  // GPU: attention's lists, on the device
};

// Does this caller's share of planned operation `index`.
sie_status replay_op(const Replay &replay, int32_t index);

// Lets an executor do something else between two blocks; says whether it did, and so used its lane.
class Pause {
 public:
  virtual bool take() = 0;

 protected:
  ~Pause() = default;
};

// As replay_op, for a long slab: block by block, with a pause between any two.
sie_status replay_blocks(const Replay &replay, int32_t index, Pause *pause);

}  // namespace sie

#endif  // SIE_CSRC_REPLAY_H
