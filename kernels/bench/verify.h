// verify.h — what is timed is right.
#ifndef SIE_KERNELS_BENCH_VERIFY_H
#define SIE_KERNELS_BENCH_VERIFY_H

#include "tests/harness.h"

namespace bench {

// Runs the case once, copying, and checks it: the guards; against the reference where that takes
// about a second at most; else that some of its units alone give the bits they have in the whole,
// so that a tile or a wave that only a large batch has is no other function. Failures are
// check::failures. SIE_OK also where checks failed.
sie_status verify(harness::Case *c, const sie_ops *table);

}  // namespace bench

#endif  // SIE_KERNELS_BENCH_VERIFY_H
