// cluster_store.h — stores to the shared memory of another CTA of the cluster, as the emulator has
// them.
#ifndef SIE_KERNELS_SIMT_CLUSTER_STORE_H
#define SIE_KERNELS_SIMT_CLUSTER_STORE_H

#include <stdint.h>

namespace simt {

// Writes a word at the place in the shared memory of CTA `rank` that `shared` has in the caller's.
void store_cluster(const void *shared, uint32_t rank, uint32_t value);
// The same of 16 bytes at a random moment, until which the place is poisoned; CTA `rank`'s barrier that
// lies where `barrier` does in the caller's counts them.
void store_cluster_async(const void *shared, uint32_t rank, const void *value, const void *barrier);

}  // namespace simt

#endif  // SIE_KERNELS_SIMT_CLUSTER_STORE_H
