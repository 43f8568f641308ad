// mbarrier.h — barriers in shared memory that count arrivals and bytes. TMA signals them, and
// pipelines wait on them.
//
// A barrier is a uint64_t in shared memory. A phase ends when `count` threads have arrived and
// every expected byte is written; then the next phase begins. wait(parity) returns when the phase
// of that parity has ended. The first phase has parity 0, so a consumer's first wait is 0, and a
// producer's first wait on a free slot is 1 (which returns at once). A waiter must not fall two
// phases behind (the emulator aborts; a device hangs or races). Order: one thread initialises the
// barrier, then calls fence_mbarrier_init() (fence.h), then comes a barrier of the CTA (of the
// cluster, where a neighbour signals its barriers). Source: PTX ISA 9.0, mbarrier.
#ifndef SIE_KERNELS_CUDA_PTX_MBARRIER_H
#define SIE_KERNELS_CUDA_PTX_MBARRIER_H

#include "cuda/ptx/device.h"

namespace ptx {

// 1 ≤ count < 2^20 arrivals a phase.
SIE_DEVICE void mbarrier_init(uint64_t *barrier, uint32_t count) {
#ifdef __CUDACC__
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
#else
  simt::mbarrier_init(barrier, count);
#endif
}

SIE_DEVICE void mbarrier_arrive(uint64_t *barrier) {
#ifdef __CUDACC__
  asm volatile(
      "{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}\n" ::"r"(shared_address(barrier))
      : "memory");
#else
  simt::mbarrier_arrive(barrier, 0);
#endif
}

// One arrival that also announces `bytes` that TMA writes in this phase; call it before the loads
// are issued.
SIE_DEVICE void mbarrier_arrive_expect(uint64_t *barrier, uint32_t bytes) {
#ifndef __CUDACC__
  simt::mbarrier_arrive(barrier, bytes);
#elif SIE_PTX_SM90
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}\n" ::"r"(
                   shared_address(barrier)),
               "r"(bytes)
               : "memory");
#else
  unsupported();
#endif
}

// An arrival at the barrier that lies at the same place in the shared memory of CTA `rank` of the
// cluster. It tells the other CTA that this thread's reads are done (of wgmma: those it has waited for),
// and publishes no writes to it: with .release.cluster, ptxas puts MEMBAR.ALL.GPU before each arrival.
SIE_DEVICE void mbarrier_arrive_cluster(uint64_t *barrier, uint32_t rank) {
#ifndef __CUDACC__
  simt::mbarrier_arrive_cluster(barrier, rank);
#elif SIE_PTX_SM90
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
#else
  unsupported();
#endif
}

// Whether the phase of that parity has ended; does not wait.
SIE_DEVICE bool mbarrier_test(uint64_t *barrier, uint32_t parity) {
#ifdef __CUDACC__
  uint32_t ended;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(ended)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return ended != 0;
#else
  return simt::mbarrier_test(barrier, parity);
#endif
}

// Waits for the end of the phase of that parity (0 or 1).
SIE_DEVICE void mbarrier_wait(uint64_t *barrier, uint32_t parity) {
#ifndef __CUDACC__
  simt::mbarrier_wait(barrier, parity);
#elif SIE_PTX_SM90
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
#else
  while (!mbarrier_test(barrier, parity)) {
  }
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_MBARRIER_H
