// mirror.h — runs the cases of kernels/tests on device memory.
//
// A case keeps all that a kernel reads or writes in memory of harness::memory. Here each such block
// has a twin on the device, of exactly its size, and a table translates every pointer of a call to
// the twin's:
//
//   copying    a call copies the blocks that it names in, runs, waits, and copies them out, guards
//              and sentinels included: the checks see what a kernel wrote on the device. Only
//              compute-sanitizer finds writes elsewhere: the twins are separate allocations.
//   resident   the twins stay and hold what the blocks held; a call only launches, so that it can
//              be captured. Each block has several twins, and select() chooses those that calls
//              get: rotating inputs.
//
// One device and one thread; device.h is open.
#ifndef SIE_KERNELS_BENCH_MIRROR_H
#define SIE_KERNELS_BENCH_MIRROR_H

#include "bench/device.h"
#include "ops.h"

namespace mirror {

// Lets harness::memory have twins; call it before the first case. Calls copy.
void install();

// A table like `inner` that runs its entries on the twins; one a process. Entries that inner lacks
// are NULL. SIE_OUT_OF_MEMORY without memory for a twin; SIE_INTERNAL, with a message, where a
// pointer belongs to no block.
const sie_ops *table(const sie_ops *inner);
// Makes the same table's calls run `inner` from now on: another launcher for the same weights.
// NULL: the first one again.
void use(const sie_ops *inner);

// Bytes of the blocks that the last call named.
int64_t footprint();

// Switches to resident, with `replicas` twins of each block named since the last change; returns
// false without memory for them. Calls then get the selected replica, the first at the start.
bool resident(int64_t replicas);
void select(int64_t replica);
// Switches to copying.
void copying();

// For a test: while an entry runs, the blocks themselves read as rubbish, so that a pointer that
// was not translated shows.
void hide(bool hidden);

}  // namespace mirror

#endif  // SIE_KERNELS_BENCH_MIRROR_H
