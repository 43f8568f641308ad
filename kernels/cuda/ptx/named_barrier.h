// named_barrier.h — barriers 0 … 15 of a CTA for a part of its warps. Barrier 0 is __syncthreads.
//
// `threads` is a multiple of 32 and counts all who arrive or sync in one round, the same number in
// every call of the round. Source: PTX ISA 9.0, barrier.cta.
#ifndef SIE_KERNELS_CUDA_PTX_NAMED_BARRIER_H
#define SIE_KERNELS_CUDA_PTX_NAMED_BARRIER_H

#include "cuda/ptx/device.h"

namespace ptx {

// Arrives and waits for the rest.
SIE_DEVICE void named_barrier_sync(uint32_t id, uint32_t threads) {
#ifdef __CUDACC__
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  simt::named_barrier(id, threads, true);
#endif
}

// Arrives without waiting; for a producer that others wait for.
SIE_DEVICE void named_barrier_arrive(uint32_t id, uint32_t threads) {
#ifdef __CUDACC__
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  simt::named_barrier(id, threads, false);
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_NAMED_BARRIER_H
