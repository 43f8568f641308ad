// gpu_program.h — what a program and a slot have on a GPU besides what they have everywhere.
#ifndef SIE_CSRC_CUDA_GPU_PROGRAM_H
#define SIE_CSRC_CUDA_GPU_PROGRAM_H

#include "cuda/driver.h"
#include "cuda/input.h"
#include "slot.h"

namespace sie {

// A bucket's batches: run kernel by kernel once, which loads the kernels, then captured, then
// replayed.
struct Graph {
  CUgraphExec exec;  // null: not captured
  uint64_t arena;    // the placement it was captured for
  int64_t runs;      // in this placement
  bool impossible;   // the driver refused to capture it; it is launched kernel by kernel
};

struct GpuProgram {
  InputLayout layouts[n_graph_buckets + 1];
  Graph graphs[n_graph_buckets];
};

struct GpuSlot {
  void *input;                 // pinned
  void *outputs[max_outputs];  // pinned
  int32_t *nonfinite;          // pinned
  // Of the loaded batch:
  int32_t bucket;
  InputBounds sizes;
  int64_t input_bytes;
  int64_t nonfinite_at;  // bytes into the input
};

// Fills err from a code of the driver: `what` failed, by its name and in the driver's words.
sie_status driver_failure(int code, const char *what, sie_error *err);

}  // namespace sie

#endif  // SIE_CSRC_CUDA_GPU_PROGRAM_H
