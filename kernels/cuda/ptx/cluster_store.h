// cluster_store.h — writes to the shared memory of another CTA of the cluster (sm_90).
//
// The other CTA's threads see the value behind the next cluster_sync (fence.h) of both; it must
// have begun, and must not leave before. Source: PTX ISA 9.0, mapa and st.shared::cluster.
#ifndef SIE_KERNELS_CUDA_PTX_CLUSTER_STORE_H
#define SIE_KERNELS_CUDA_PTX_CLUSTER_STORE_H

#include "cuda/ptx/device.h"

#ifndef __CUDACC__
#include "simt/cluster_store.h"
#endif

namespace ptx {

// Writes *shared at the same place in the shared memory of CTA `rank`, which may be the caller's
// own.
SIE_DEVICE void store_cluster(float *shared, uint32_t rank, float value) {
#ifndef __CUDACC__
  simt::store_cluster(shared, rank, __float_as_uint(value));
#elif SIE_PTX_SM90
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "st.shared::cluster.f32 [remote], %2;\n"
      "}\n" ::"r"(shared_address(shared)),
      "r"(rank), "f"(value)
      : "memory");
#else
  unsupported();
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_CLUSTER_STORE_H
