// cluster_store.cc — stores to the shared memory of another CTA of the cluster.
#include "simt/cluster_store.h"

#include <string.h>

#include "simt/machine.h"

namespace simt {

void store_cluster(const void *shared, uint32_t rank, uint32_t value) {
  require(90, "st.shared::cluster");
  if (rank >= machine.launch.cluster) fail("store_cluster: rank %u of %u", rank, machine.launch.cluster);
  const Cta &cta = *current()->cta->cluster->ctas[rank];
  if (cta.live == 0) fail("store_cluster: block %u of the cluster has left", rank);
  memcpy(shared_bytes(cta, shared_address(shared), sizeof value, sizeof value, "store_cluster"), &value,
         sizeof value);
}

}  // namespace simt
