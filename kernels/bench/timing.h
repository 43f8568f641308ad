// timing.h — times a case on the device: cold, in graphs, one implementation against the other.
//
// Each implementation is captured into a graph that runs the case on several twins of its memory in
// turn (mirror.h), together more than the L2 cache holds. Before every run of a graph a reader
// fills L2 with something else. So every call finds its inputs and weights in device memory, as a
// layer of a forward pass does, and no launch is waited for. The implementations run in turns, and
// the first one runs twice in each turn: the distance between its own two series is the noise of
// the comparison.
#ifndef SIE_KERNELS_BENCH_TIMING_H
#define SIE_KERNELS_BENCH_TIMING_H

#include <string>
#include <vector>

#include "tests/harness.h"

namespace bench {

// Microseconds of one call.
struct Times {
  double p10 = 0, p50 = 0, p90 = 0;
};

// Measured on the device in this process.
struct Ceilings {
  double copy_gbs = 0;                     // bytes read and written by a copy of at most 1 GiB
  double bf16_tflops = 0, fp8_tflops = 0;  // random operands, nothing else; 0: none
  double launch_us = 0;                    // a kernel that does nothing, in a graph of many
};

struct Implementation {
  std::string name;
  const sie_ops *ops;  // inner table; NULL: the mirror's own
};

struct Result {
  std::string name;
  sie_status status;  // SIE_UNSUPPORTED: it lacks this form
  Times us;
  int64_t calls;  // that were timed
  double noise;   // of the first: |p50 of one series − the other's| / p50
};

class Timer {
 public:
  // NULL memory on a device that has too little is an error of ceilings().
  Timer(int64_t l2_bytes, int64_t memory_bytes);
  ~Timer();
  bool ceilings(Ceilings *ceilings);
  // Times the case on `table`, the mirror's; its last call must have been a copying one.
  std::vector<Result> time(harness::Case *c, const sie_ops *table, const std::vector<Implementation> &list);

 private:
  bool empty_cache();

  int64_t l2_bytes_, memory_bytes_, other_bytes_;
  void *other_;  // what fills L2 instead
  float *sink_;
};

}  // namespace bench

#endif  // SIE_KERNELS_BENCH_TIMING_H
