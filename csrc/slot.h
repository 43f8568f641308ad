// slot.h — one batch's inputs, work list and outputs, and the run that it becomes when submitted.
#ifndef SIE_CSRC_SLOT_H
#define SIE_CSRC_SLOT_H

#include "executor.h"
#include "program.h"
#include "replay.h"
#include "slabs.h"

struct sie_arena {
  sie_device *device = nullptr;
  int64_t bytes = 0;
  sie::Block memory = {};
  int64_t lane_stride = 0;               // lane i starts at i · lane_stride, for every program
  int64_t region = 0, region_bytes = 0;  // where long slabs' values lie, behind the lanes
  uint64_t long_runs = 0;                // runs with long slabs so far; for the submitting thread
  std::atomic<uint64_t> long_done{0};    // those that have left the region
  // GPU: the device memory in which the caller placed it.
  char *placed = nullptr;
  void *outputs[sie::max_outputs] = {};
  int64_t output_bytes[sie::max_outputs] = {};
  uint64_t number = 0;  // of the placement; a graph is valid for one placement
};

namespace sie {
struct GpuSlot;  // csrc/cuda
}

struct sie_slot : sie::Run {
  sie_device *device = nullptr;
  sie_slot_caps caps = {};  // its output_bytes points to the list below
  int64_t output_bytes[sie::max_outputs] = {};
  sie::Block inputs = {};  // laid out for each batch (SlotLayout), in slab order
  // Work list.
  sie::Block slabs = {}, teams = {}, tickets_of_run = {};
  sie::Block shares = {}, order = {}, slab_of = {}, heap = {}, by_length = {};  // SlabWork
  sie::Block extents = {};            // [sequences + 1] extents (Caps), summed up from 0
  int32_t n_slabs = 0, n_long = 0;    // long ones come first
  uint64_t long_turn = 0;             // runs that must leave the region before this one uses it
  std::atomic<int32_t> long_left{0};  // long slabs not done
  // Outputs, and the flags of sie_slot_nonfinite.
  sie::Block outputs[sie::max_outputs] = {};
  sie::Block nonfinite = {};
  sie::GpuSlot *gpu = nullptr;
  // Set by load and submit, valid until wait.
  const sie_program *program = nullptr;
  uint64_t program_serial = 0;  // of the program it was loaded for, which may have been freed since
  int64_t state_rows = 0;       // rows of a state that the batch writes or names
  sie_arena *arena = nullptr;
  sie_state *kept = nullptr;  // null: the run uses none
  bool kept_writes = false;   // the run writes it
  int64_t kept_cap = 0;       // rows that each of its segments has room for in this run; 0 without a state
  std::atomic<int32_t> failed_op{-1};
  sie_status failure = SIE_OK;
};

struct sie_state {
  sie_device *device = nullptr;
  sie::Block memory = {};
  int64_t bytes = 0;
  // Of the run that wrote last. While one writes, and after one has failed, there are no rows.
  int64_t rows = 0;  // that hold something
  int64_t cap = 0;   // that each segment has room for
  sie::Segment segments[SIE_MAX_SEGMENTS + 1] = {};
  // GPU: the device memory in which the caller placed it, and the number of the placement.
  char *placed = nullptr;
  uint64_t number = 0;

  char *base() const { return device->is_gpu() ? placed : memory.at(0); }
};

namespace sie {

// A checked batch, indexed by the numbers of its program. Entries that the program does not read
// are null or 0.
struct BatchIn {
  int64_t seqs;
  int64_t max_rows;                        // of any ROWS space
  int64_t longest;                         // of the sequences' extents (Caps)
  int64_t longest_keys;                    // of the sequences' prefixes and own rows together
  int64_t state_rows;                      // of a state that it writes, or names
  int64_t rows[max_spaces + 1];            // of each space
  int64_t groups[max_spaces + 1];          // of SHARED spaces
  const int32_t *offsets[max_spaces + 1];  // of ROWS and SHARED spaces
  const void *inputs[max_inputs + 1];      // null: left out
  const sie_out_item *items[max_outputs];
};

// Reads a batch and checks its every index, length, offset and bound.
sie_status check_batch(const sie_slot *slot, const sie_program *program, const sie_batch &batch, BatchIn *in,
                       sie_error *err);

// Checks that the state is one for the loaded batch. slot->kept becomes the state, or null if the run
// uses none. The state is as it was.
sie_status take_state(sie_slot *slot, const sie_program *program, sie_state *state, sie_error *err);

// What a slot's run writes.
struct StateWrite {
  sie_state *state;  // null: no state
  const sie_program *program;
  int64_t rows, cap;
};
StateWrite write_of(const sie_slot *slot);
// Takes the state's rows away, before the run starts. Returns how many there were.
int64_t begin_write(const StateWrite &write);
// Gives the state its new rows, once the run has ended well: on a GPU, once it is enqueued.
void end_write(const StateWrite &write);

// Where the parts of a batch lie in a slot's inputs on a CPU, in bytes. Slabs point to them; they
// are in slab order.
struct SlotLayout {
  // ROWS, SUBSET: for each slab one more than it has sequences; SHARED: as the batch has them.
  int64_t offsets[max_spaces + 1];
  int64_t index[max_spaces + 1];        // SUBSET
  int64_t first[max_spaces + 1];        // ROWS, SUBSET: [sequences]
  int64_t batch_first[max_spaces + 1];  // SUBSET: [sequences], in the batch's order
  int64_t inputs[max_inputs + 1];
  int64_t items[max_outputs];
  int64_t bytes;
};

// Depends on seqs, the rows of ROWS and SHARED spaces and the groups of SHARED spaces only; a
// subset gets room for all rows of its ROWS space.
void lay_out_slot(const sie_program *program, const BatchIn &sizes, SlotLayout *layout);

// The marks of a sequence whose first row is `first`; null if the batch leaves them out, so that
// all rows count as `otherwise`.
inline const uint8_t *marks_of(const sie_program *p, const BatchIn &in, sie_space subset, int64_t first) {
  const void *marks = in.inputs[p->spaces[subset].marks];
  return marks != nullptr ? static_cast<const uint8_t *>(marks) + first : nullptr;
}

// The extent of sequence b in the batch (Caps).
inline int64_t extent_of(const sie_program *p, const BatchIn &in, int64_t b) {
  int64_t extent = 0;
  for (int32_t s = 1; s <= max_spaces; s++) {
    if (kind_of(p, s) != SIE_SPACE_ROWS) continue;
    int64_t rows = int64_t{in.offsets[s][b + 1]} - in.offsets[s][b];
    extent = rows > extent ? rows : extent;
  }
  return extent;
}

// Bytes that an item writes for one row of `columns`; not for sparse outputs.
inline int64_t item_bytes(const sie_out_item &item, int64_t columns) {
  int64_t dims = item.dims != 0 ? item.dims : columns;
  return item.dtype == SIE_BINARY ? (dims + 7) / 8 : dims * dtype_bytes(item.dtype);
}

// Makes the items of a sequence's rows: each row lies behind the one before.
inline void spread_item(const sie_out_item &item, int64_t columns, int64_t rows, sie_out_item *to) {
  int64_t bytes = item_bytes(item, columns);
  for (int64_t i = 0; i < rows; i++) {
    to[i] = item;
    to[i].offset += i * bytes;
  }
}

// Lists the marked ones of rows [0, length), as base + row, and returns how many. marks NULL: all
// rows if otherwise, else none.
inline int32_t list_marked(const uint8_t *marks, bool otherwise, int32_t length, int32_t base, int32_t *to) {
  int32_t count = 0;
  for (int32_t i = 0; i < length; i++) {
    if (marks != nullptr ? marks[i] != 0 : otherwise) to[count++] = base + i;
  }
  return count;
}
inline int64_t count_marked(const uint8_t *marks, bool otherwise, int64_t length) {
  if (marks == nullptr) return otherwise ? length : 0;
  int64_t count = 0;
  for (int64_t i = 0; i < length; i++) count += marks[i];
  return count;
}

}  // namespace sie

#endif  // SIE_CSRC_SLOT_H
