// sweep.h — times every tile variant of the GEMM at the models' shapes.
#ifndef SIE_KERNELS_BENCH_SWEEP_H
#define SIE_KERNELS_BENCH_SWEEP_H

#include <string>

#include "bench/device.h"
#include "bench/timing.h"

namespace bench {

// Times each variant that takes a shape, at row counts from 16 to 16,384, and checks that all give
// the bits of the first. Prints a benchmark line each. Writes to `file` the lines for
// kernels/cuda/gemm_tiles.h where a variant is at least 3 % faster than the one that runs today.
// Stops after `seconds`, and says so. Failures are counted in check::failures.
void sweep(const device::Info &info, Timer *timer, const sie_ops *table, const std::string &file,
           double seconds);

}  // namespace bench

#endif  // SIE_KERNELS_BENCH_SWEEP_H
