// replay.h — one slab of a batch through a planned program.
#ifndef SIE_CSRC_REPLAY_H
#define SIE_CSRC_REPLAY_H

#include "program.h"

namespace sie {

// Whole sequences of a batch, with row numbers of their own. The pointers lead into the slot. On a
// GPU it is the whole batch, its pointers lead into device memory, and the numbers are not set.
//
// The rows of one space that a slab has. A SHARED space's are the batch's.
struct SlabRows {
  int32_t n;
  // [sequences + 1], from 0: where each sequence's begin; SHARED: of groups; null: one a sequence.
  const int32_t *offsets;
  const int32_t *index;  // SUBSET: [n] rows of the ROWS space, ascending
  const int32_t *first;  // [sequences] the number in the batch of each sequence's first; null on a GPU
};

// By the numbers of spaces, inputs and outputs; what the program has not is null.
struct Slab {
  int32_t after;    // long slabs of the batch that must be done before this one has its place
  int64_t place;    // of a long slab: bytes from the start of the region
  int64_t max_len;  // of its sequences
  SlabRows spaces[max_spaces + 1];
  const void *inputs[max_inputs + 1];      // of the slab's own rows; of a SHARED space, the batch's
  const sie_out_item *items[max_outputs];  // [sequences]; of token rows, one a row
};

struct Replay {
  const sie_program *program;
  const Slab *slab;
  sie_rows rows[max_spaces + 1];  // bounds, and where the slab's numbers are
  char *values;                   // of the lane, or of a long slab
  int64_t long_cap;               // rows that a long slab's values have room for; 0: a lane
  int64_t first_row;              // of a long slab's block of rows, of which the slab then tells
  int32_t q_first, q_last;        // of a block of queries; q_last 0: all
  bool resumed;                   // as in sie_attention_args
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
