// opaque.h — a value that the compiler may not reason about: values derived from it are computed
// here, not earlier.
//
// For unrolled epilogues next to large accumulators: the addresses and bounds of later rounds,
// hoisted before the first round, would not fit the registers. It costs no instruction, and is
// nothing under emulation.
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
