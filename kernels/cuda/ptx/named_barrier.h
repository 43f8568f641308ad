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

// Syncs at barrier First + index of Count, and nowhere where index ≥ Count; a warp's threads have one index. The
// numbers are constants: ptxas keeps a CTA as many barriers as the last of them asks for, for a number in a
// register all 16, and an SM has 64 (24 on sm_120).
template <uint32_t First, uint32_t Count>
SIE_DEVICE void named_barrier_sync_of(uint32_t index, uint32_t threads) {
  static_assert(First > 0 && First + Count <= 16, "a barrier that a CTA has");
#ifdef __CUDACC__
  asm volatile(
      "{\n"
      "  .reg .pred here;\n"
      "  setp.eq.u32 here, %0, 0;\n"
      "  @here barrier.cta.sync.aligned %1, %2;\n"
      "}" ::"r"(index),
      "n"(First), "r"(threads)
      : "memory");
  if constexpr (Count > 1) named_barrier_sync_of<First + 1, Count - 1>(index - 1, threads);
#else
  if (index < Count) simt::named_barrier(First + index, threads, true);
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_NAMED_BARRIER_H
