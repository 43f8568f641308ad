// signed_max.h — the larger of two numbers, where −0 is less than +0, as devices have it; the other number
// where one is NaN. fmaxf of a host may return either zero, and so may the emulator's.
#ifndef SIE_KERNELS_CUDA_PTX_SIGNED_MAX_H
#define SIE_KERNELS_CUDA_PTX_SIGNED_MAX_H

#include "cuda/ptx/device.h"

namespace ptx {

SIE_DEVICE float signed_max(float x, float y) {
#ifdef __CUDACC__
  return fmaxf(x, y);
#else
  if (x == y) return __uint_as_float(__float_as_uint(x) & __float_as_uint(y));
  return fmaxf(x, y);
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_SIGNED_MAX_H
