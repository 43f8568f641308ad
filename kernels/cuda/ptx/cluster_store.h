// cluster_store.h — writes to the shared memory of another CTA of the cluster (sm_90).
//
// The other CTA's threads see the value behind the next cluster_sync (fence.h) of both, or of
// store_cluster_async behind the phase that counts it; it must have begun, and must not leave before.
// Source: PTX ISA 9.0, mapa, st.shared::cluster and st.async.
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

// Writes 16 bytes to the place that `shared`, 16-byte aligned, has in the shared memory of CTA `rank`, some time
// later, and counts them at the mbarrier (mbarrier.h) that lies there where `barrier` does here. Until its phase
// has ended the place is undefined. The bytes may be counted before they are announced, but not a phase early.
SIE_DEVICE void store_cluster_async(void *shared, uint32_t rank, const float4 &value, uint64_t *barrier) {
#ifndef __CUDACC__
  simt::store_cluster_async(shared, rank, &value, barrier);
#elif SIE_PTX_SM90
  asm volatile(
      "{\n"
      ".reg .b32 remote, counter;\n"
      "mapa.shared::cluster.u32 remote, %0, %2;\n"
      "mapa.shared::cluster.u32 counter, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [remote], {%3, %4, %5, %6}, [counter];\n"
      "}\n" ::"r"(shared_address(shared)),
      "r"(shared_address(barrier)), "r"(rank), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
      : "memory");
#else
  unsupported();
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_CLUSTER_STORE_H
