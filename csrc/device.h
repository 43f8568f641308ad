// device.h — a CPU (or the reference): its operation table, its limits and its executors.
#ifndef SIE_CSRC_DEVICE_H
#define SIE_CSRC_DEVICE_H

#include <atomic>

#include "executor.h"
#include "ops.h"

struct sie_device {
  uint32_t kind = 0;
  uint32_t isa = 0, isa_detected = 0;
  uint32_t compute_mask = 0;
  const sie_ops *ops = nullptr;
  int32_t threads = 0;
  int32_t cpus_affinity = 0;
  double cpus_quota = 0;
  int64_t memory_total = 0;
  int64_t memory_weights = 0;
  char name[96] = {};
  char why[512] = {};
  sie::Executors executors;
};

#endif  // SIE_CSRC_DEVICE_H
