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
  int64_t lane_stride = 0;  // lane i starts at i · lane_stride: the same for every program
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
  // Inputs, in slab order.
  sie::Block ids = {}, type_ids = {}, cu_seqlens = {}, items = {}, batch_rows = {};
  // Work list.
  sie::Block slabs = {}, teams = {};
  sie::Block shares = {}, order = {}, slab_of = {}, heap = {}, by_length = {};
  int32_t n_slabs = 0;
  // Outputs.
  sie::Block outputs[sie::max_outputs] = {};
  sie::GpuSlot *gpu = nullptr;
  // Set by load and submit, kept until wait.
  const sie_program *program = nullptr;
  const sie_arena *arena = nullptr;
  std::atomic<int32_t> failed_op{-1};
  sie_status failure = SIE_OK;
};

#endif  // SIE_CSRC_SLOT_H
