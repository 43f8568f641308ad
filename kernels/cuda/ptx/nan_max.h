// nan_max.h — the larger of two numbers, or NaN where one is NaN (fmaxf returns the other number
// there). sm_80.
#ifndef SIE_KERNELS_CUDA_PTX_NAN_MAX_H
#define SIE_KERNELS_CUDA_PTX_NAN_MAX_H

#include "cuda/ptx/device.h"

namespace ptx {

SIE_DEVICE float nan_max(float x, float y) {
#ifdef __CUDACC__
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
  return larger;
#else
  return x != x || y != y ? __uint_as_float(0x7fffffffu) : fmaxf(x, y);
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_NAN_MAX_H
