// replay.h — one slab of a batch through a planned program.
#ifndef SIE_CSRC_REPLAY_H
#define SIE_CSRC_REPLAY_H

#include "program.h"

namespace sie {

// Whole sequences of a batch, with row numbers of their own. The pointers lead into the slot. On a GPU it is the
// whole batch, its pointers lead into device memory, and the three numbers are not set.
struct Slab {
  int32_t n_tokens, n_seqs;
  int64_t max_len;            // of its sequences
  const int32_t *ids;         // [n_tokens]
  const int32_t *type_ids;    // [n_tokens] or null
  const int32_t *cu_seqlens;  // [n_seqs + 1], from 0
  const sie_out_item *items;  // [n_seqs] or null
  const int32_t *batch_rows;  // [n_seqs] first token of each sequence in the batch
  const int32_t *batch_seqs;  // [n_seqs] number of each sequence in the batch
};

struct Replay {
  const sie_program *program;
  const Slab *slab;
  sie_rows tokens, seqs;  // bounds, and where the slab's numbers are
  char *values;           // of the lane
  sie_share share;
  void *outputs[max_outputs];
  const int32_t *one_row_each;
  const void *work[max_work_lists];  // GPU: attention's lists, on the device
};

// Does this caller's share of planned operation `index`.
sie_status replay_op(const Replay &replay, int32_t index);

}  // namespace sie

#endif  // SIE_CSRC_REPLAY_H
