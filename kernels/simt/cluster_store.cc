// cluster_store.cc — stores to the shared memory of another CTA of the cluster.
#include "simt/cluster_store.h"

#include <string.h>

#include <memory>

#include "simt/machine.h"

namespace simt {

namespace {

Cta &cta_of(uint32_t rank, const char *what) {
  if (rank >= machine.launch.cluster) fail("%s: rank %u of %u", what, rank, machine.launch.cluster);
  Cta &cta = *current()->cta->cluster->ctas[rank];
  if (cta.live == 0) fail("%s: block %u of the cluster has left", what, rank);
  return cta;
}

}  // namespace

void store_cluster(const void *shared, uint32_t rank, uint32_t value) {
  require(90, "st.shared::cluster");
  const Cta &cta = cta_of(rank, "store_cluster");
  memcpy(shared_bytes(cta, shared_address(shared), sizeof value, sizeof value, "store_cluster"), &value,
         sizeof value);
}

bool RemoteStore::step() {
  if (to->live == 0) fail("store_cluster_async: block %u of the cluster has left", to->rank);
  memcpy(to->shared + (shared - shared_base), value, sizeof value);
  phase_barrier_written(*to, barrier, sizeof value);
  return true;
}

void store_cluster_async(const void *shared, uint32_t rank, const void *value, const void *barrier) {
  require(90, "st.async");
  auto store = std::make_unique<RemoteStore>();
  store->to = &cta_of(rank, "store_cluster_async");
  store->shared = shared_address(shared);
  store->barrier = shared_address(barrier);
  memcpy(store->value, value, sizeof store->value);
  uint8_t *place = shared_bytes(*store->to, store->shared, sizeof store->value, 16, "store_cluster_async");
  PhaseBarrier &counts = phase_barrier(*store->to, store->barrier);
  check_published(counts, "store_cluster_async");
  counts.in_flight += static_cast<int64_t>(sizeof store->value);
  machine.loads.push_back(std::move(store));
  Async *async = machine.loads.back().get();
  const uint32_t moment = random_below(3);
  if (moment == 0) {
    finish_async(async);
    return;
  }
  memset(place, 0xff, 16);
  if (moment == 1) {
    float_async(async);
  } else {
    linger_async(async);
  }
}

}  // namespace simt
