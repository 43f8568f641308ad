// gpu_program.h — the parts that a program and a slot have only on a GPU.
#ifndef SIE_CSRC_CUDA_GPU_PROGRAM_H
#define SIE_CSRC_CUDA_GPU_PROGRAM_H

#include "cuda/driver.h"
#include "cuda/input.h"
#include "slot.h"

namespace sie {

// All that the addresses in a graph depend on, besides its bucket: where the arena and the state lie, and
// how the state's segments lie in it.
struct GraphKey {
  uint64_t arena;      // the number of the arena's placement
  uint64_t state;      // the number of the state's placement; 0: none
  int64_t state_rows;  // that each segment of the state has room for
  bool operator==(const GraphKey &other) const {
    return arena == other.arena && state == other.state && state_rows == other.state_rows;
  }
};

// The graph of a bucket. For a key, the bucket's first batch runs kernel by kernel, which loads the
// kernels. The second is captured, and it and all later ones are replayed.
struct Graph {
  CUgraphExec exec;  // null: not captured
  GraphKey key;      // that it was captured for
  int64_t runs;      // batches run with this key
  bool impossible;   // the driver refused to capture it; batches run kernel by kernel
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

// Fills err from a driver's code: `what` failed, with the code's name and the driver's text.
// Returns the status.
sie_status driver_failure(int code, const char *what, sie_error *err);

}  // namespace sie

#endif  // SIE_CSRC_CUDA_GPU_PROGRAM_H
