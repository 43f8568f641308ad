// slot.h — one batch's inputs, work list and outputs; also the run it becomes when submitted.
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
  int64_t lane_stride = 0;               // lane i starts at i · lane_stride: the same for every program
  int64_t region = 0, region_bytes = 0;  // where long slabs' values lie, behind the lanes
  uint64_t long_runs = 0;                // runs with long slabs so far; the submitting thread's
  std::atomic<uint64_t> long_done{0};    // those of them that have left the region
  // GPU: what the caller placed it in.
  char *placed = nullptr;
  void *outputs[sie::max_outputs] = {};
  int64_t output_bytes[sie::max_outputs] = {};
  uint64_t number = 0;  // of the placement: a graph is good for one
};

namespace sie {
struct GpuSlot;  // csrc/cuda
}

struct sie_slot : sie::Run {
  sie_device *device = nullptr;
  sie_slot_caps caps = {};
  // Inputs, in slab order; queries and where they begin as the batch has them.
  sie::Block ids = {}, type_ids = {}, cu_seqlens = {}, batch_rows = {};
  sie::Block keep = {}, cu_kept = {}, batch_kept = {}, first_kept = {};
  sie::Block adapter = {}, partner = {}, queries = {}, cu_queries = {};
  sie::Block items[sie::max_outputs] = {};
  // Work list.
  sie::Block slabs = {}, teams = {};
  sie::Block shares = {}, order = {}, slab_of = {}, heap = {}, by_length = {};
  int32_t n_slabs = 0, n_long = 0;    // long ones come first
  uint64_t long_turn = 0;             // runs that must leave the region before this one may use it
  std::atomic<int32_t> long_left{0};  // long slabs not done
  // Outputs, and the flags of sie_slot_nonfinite.
  sie::Block outputs[sie::max_outputs] = {};
  sie::Block nonfinite = {};
  sie::GpuSlot *gpu = nullptr;
  // Set by load and submit, kept until wait.
  const sie_program *program = nullptr;
  uint64_t program_serial = 0;  // of the program it was loaded for, which may be freed since
  sie_arena *arena = nullptr;
  std::atomic<int32_t> failed_op{-1};
  sie_status failure = SIE_OK;
};

namespace sie {

// Every id, length, index, offset and cap of a batch; counts the rows it keeps.
sie_status check_batch(const sie_slot *slot, const sie_program *program, const sie_batch &batch,
                       int64_t *n_kept, sie_error *err);

// Bytes of one row of `columns` that an item makes; not of a sparse one.
inline int64_t item_bytes(const sie_out_item &item, int64_t columns) {
  int64_t dims = item.dims != 0 ? item.dims : columns;
  return item.dtype == SIE_BINARY ? (dims + 7) / 8 : dims * dtype_bytes(item.dtype);
}

// The items of a sequence's rows: each row lies behind the one before.
inline void spread_item(const sie_out_item &item, int64_t columns, int64_t rows, sie_out_item *to) {
  int64_t bytes = item_bytes(item, columns);
  for (int64_t i = 0; i < rows; i++) {
    to[i] = item;
    to[i].offset += i * bytes;
  }
}

// Which rows of tokens [0, length) are kept; null: all. Writes them, counted from `base`, and returns how many.
inline int32_t list_kept(const uint8_t *keep, int32_t length, int32_t base, int32_t *to) {
  int32_t count = 0;
  for (int32_t i = 0; i < length; i++) {
    if (keep == nullptr || keep[i] != 0) to[count++] = base + i;
  }
  return count;
}

}  // namespace sie

#endif  // SIE_CSRC_SLOT_H
