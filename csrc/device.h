// device.h — a CPU (or the reference) with its executors, or a GPU: operation table and limits.
#ifndef SIE_CSRC_DEVICE_H
#define SIE_CSRC_DEVICE_H

#include <atomic>

#include "executor.h"
#include "ops.h"
#include "weight_pages.h"

struct sie_device {
  uint32_t kind = 0;
  uint32_t isa = 0, isa_detected = 0;
  uint32_t compute_mask = 0;
  const sie_ops *ops = nullptr;
  int32_t threads = 0;
  int32_t cpus_affinity = 0;
  double cpus_quota = 0;
  int32_t cores = 0, caches = 0, nodes = 0;  // of the affinity mask (Topology)
  int64_t memory_total = 0;
  int64_t memory_weights = 0;
  sie::WeightPages weight_pages;  // of a CPU
  char name[96] = {};
  char why[512] = {};
  sie::Seats seats = {};                        // of the executors
  int32_t node_executors[sie::max_nodes] = {};  // [seats.nodes]
  sie::Executors executors;                     // none on a GPU
  sie_stream on = {};                           // GPU: where its kernels run
  sie_stream captured = {};                     // GPU: the same, for what a graph captures
  bool graphs = false;                          // GPU: capture small batches
  std::atomic<int64_t> graphs_refused{0};       // GPU: captures that the driver refused
  uint64_t arenas = 0;                          // GPU: placed so far; each takes the count as its number
  uint64_t runs = 0;                            // on executors so far
  uint64_t programs = 0;                        // begun so far; each takes the count as its number

  bool is_gpu() const { return kind == SIE_DEVICE_CUDA; }
};

#endif  // SIE_CSRC_DEVICE_H
