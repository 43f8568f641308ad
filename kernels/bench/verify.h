// verify.h — checks that what is timed is right.
#ifndef SIE_KERNELS_BENCH_VERIFY_H
#define SIE_KERNELS_BENCH_VERIFY_H

#include "tests/harness.h"

namespace bench {

// Runs the case once, copying, and checks it. It checks the guards; then, where the reference takes
// at most about a second, the result against the reference; otherwise that some of the case's units
// alone give the bits they have in the whole, so that a tile or a wave that only a large batch has
// is tested too. Failures are counted in check::failures. Returns SIE_OK also where checks failed.
sie_status verify(harness::Case *c, const sie_ops *table);

}  // namespace bench

#endif  // SIE_KERNELS_BENCH_VERIFY_H
