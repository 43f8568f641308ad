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
  const int32_t *batch_seqs;               // [n_seqs] number of each sequence in the batch
};

struct Replay {
  const sie_program *program;
  const Slab *slab;
  sie_rows tokens, kept, seqs;  // bounds, and where the slab's numbers are
  char *values;                 // of the lane
  sie_share share;
  void *outputs[max_outputs];
  const int32_t *one_row_each;
  const sie_lora_pair *lora_pairs;   // the program's; on a GPU, on the device
  const void *work[max_work_lists];  // GPU: attention's lists, on the device
};

// Does this caller's share of planned operation `index`.
sie_status replay_op(const Replay &replay, int32_t index);

}  // namespace sie

#endif  // SIE_CSRC_REPLAY_H
