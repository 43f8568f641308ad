// fence.h — orders different kinds of memory access, and clusters of CTAs. CUDA's own
// __syncthreads, __syncwarp and __threadfence* are used directly.
#ifndef SIE_KERNELS_CUDA_PTX_FENCE_H
#define SIE_KERNELS_CUDA_PTX_FENCE_H

#include "cuda/ptx/device.h"

namespace ptx {

// Makes this thread's ordinary writes to shared memory visible to wgmma and to TMA stores. Call it
// after the writes, before the barrier after which the tensor core or TMA reads them. (The emulator
// requires one fence a group of the thread that issues TMA stores; it does not model any other
// order between proxies.)
SIE_DEVICE void fence_proxy_async() {
#ifndef __CUDACC__
  simt::fence_proxy_async();
#elif SIE_PTX_SM90
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  unsupported();
#endif
}

// Call it after mbarrier_init, before the barrier of the CTA or cluster that publishes the
// barriers.
SIE_DEVICE void fence_mbarrier_init() {
#ifndef __CUDACC__
  simt::fence_mbarrier_init();
#elif SIE_PTX_SM90
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  unsupported();
#endif
}

// Rank of this CTA in its cluster and the cluster's size; 0 and 1 without clusters.
SIE_DEVICE uint32_t cluster_rank() {
#ifndef __CUDACC__
  return simt::cluster_rank();
#elif SIE_PTX_SM90
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  return 0;
#endif
}

SIE_DEVICE uint32_t cluster_size() {
#ifndef __CUDACC__
  return simt::cluster_size();
#elif SIE_PTX_SM90
  uint32_t size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
#else
  return 1;
#endif
}

// All threads of all CTAs of the cluster arrive, and later wait. A CTA must not exit before a
// cluster_sync while a neighbour still writes or signals its shared memory.
SIE_DEVICE void cluster_arrive() {
#ifndef __CUDACC__
  simt::cluster_arrive();
#elif SIE_PTX_SM90
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  unsupported();
#endif
}

SIE_DEVICE void cluster_wait() {
#ifndef __CUDACC__
  simt::cluster_wait();
#elif SIE_PTX_SM90
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  unsupported();
#endif
}

SIE_DEVICE void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_FENCE_H
