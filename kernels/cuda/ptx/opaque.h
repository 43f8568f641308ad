// opaque.h — a value the compiler may not reason about: what is computed from it is computed here,
// not earlier.
//
// For unrolled epilogues beside large accumulators: addresses and bounds of later rounds, hoisted
// before the first, would not fit the registers. Costs no instruction. Nothing under emulation.
#ifndef SIE_KERNELS_CUDA_PTX_OPAQUE_H
#define SIE_KERNELS_CUDA_PTX_OPAQUE_H

#include "cuda/ptx/device.h"

namespace ptx {

SIE_DEVICE int32_t opaque(int32_t x) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(x)::"memory");
#endif
  return x;
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_OPAQUE_H
