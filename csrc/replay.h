// replay.h — runs one slab of a batch through a planned program.
#ifndef SIE_CSRC_REPLAY_H
#define SIE_CSRC_REPLAY_H

#include "program.h"

namespace sie {

// The rows of one space that a slab has. A SHARED space's rows are the batch's.
struct SlabRows {
  int32_t n;
  // [sequences + 1], from 0: where each sequence's rows begin; SHARED: each group's. Null: one row
  // a sequence.
  const int32_t *offsets;
  const int32_t *index;  // SUBSET: [n] rows of its ROWS space, ascending
  const int32_t *first;  // [sequences] each sequence's first row in the batch; null on a GPU
};

// A slab: whole sequences of a batch, whose rows are numbered within the slab. Its pointers lead
// into the slot. On a GPU a slab is the whole batch, its pointers lead into device memory, and the
// counts (SlabRows.n) are not set.
//
// The lists are indexed by the numbers of spaces, inputs and outputs. Entries that the program
// lacks are null.
struct Slab {
  int32_t after;     // the long slabs that must be done before this one uses its place
  int64_t place;     // long slab: bytes from the start of the region
  int64_t max_len;   // of its sequences' extents (Caps)
  int64_t max_keys;  // of its sequences' prefixes and own rows together
  SlabRows spaces[max_spaces + 1];
  const void *inputs[max_inputs + 1];      // of the slab's rows; of a SHARED space, the batch's
  const sie_out_item *items[max_outputs];  // [sequences]; for token rows, one a row
};

struct Replay {
  const sie_program *program;
  const Slab *slab;
  sie_rows rows[max_spaces + 1];  // bounds, and pointers to the slab's counts
  char *values;                   // in the arena lane, or of a long slab
  float *late;                    // of a team: rows that are to be quantised (replay_late.cc); else null
  int64_t long_cap;               // rows that the long slab's values have room for; 0: no long slab
  int64_t first_row;              // where a long slab's block begins; rows, slab: the block's
  int32_t whole_rows;             // of the sequence that a block of rows is a part of; 0: no block
  int64_t stage_cap;              // rows that the long slab's stages have room for
  int64_t stage_first, stage_n;   // a long slab's rows that are in the stage
  int32_t q_first, q_last;        // a block of queries; q_last 0: all
  sie_share share;
  int32_t node;  // whose copies of weights are read
  void *outputs[max_outputs];
  int32_t *nonfinite;  // flags of the batch's sequences
  const int32_t *one_row_each;
  const sie_lora_pair *lora_pairs;   // the program's; on a GPU, on the device
  const void *work[max_work_lists];  // GPU: attention's lists, on the device
  char *state;                       // null: the run has none, or its batch names no rows of it
  int64_t state_rows;                // that each segment has room for
};

// Computes this caller's share of planned operation `index`.
sie_status replay_op(const Replay &replay, int32_t index);

// Whether a team computes the operation in two steps (replay_late.cc). Then every member takes each group
// of rows, from row 0 on, through both; all meet between any two steps, and before each next group.
bool quantises_late(const Replay &replay, int32_t index);
// The rows of a group, the last one's included.
int64_t late_rows(const Replay &replay, int32_t index);
// Computes this caller's share of the columns of rows [first, first + rows).
sie_status replay_columns(const Replay &replay, int32_t index, int64_t first, int32_t rows);
// Quantises this caller's share of the same rows.
sie_status replay_levels(const Replay &replay, int32_t index, int64_t first, int32_t rows);

// Lets an executor do other work between two blocks, which overwrites its arena lane.
class Pause {
 public:
  virtual void take() = 0;

 protected:
  ~Pause() = default;
};

// The rows that a long slab takes through the stage which begins with operation `first`. 0: it is
// an operation that is not cut into rows, or there are none.
int64_t rows_of_stage(const Replay &replay, int32_t first);

// Like replay_op, for the rows of a long slab that are in the stage: block by block, with a pause
// between any two.
sie_status replay_blocks(const Replay &replay, int32_t index, Pause *pause);

}  // namespace sie

#endif  // SIE_CSRC_REPLAY_H
