// atomic.h — updates of global memory by many CTAs. Integers only, so their order changes no
// result.
#ifndef SIE_KERNELS_CUDA_PTX_ATOMIC_H
#define SIE_KERNELS_CUDA_PTX_ATOMIC_H

#include "cuda/ptx/device.h"

namespace ptx {

// *global = max(*global, value) as signed integers; the old value is not returned (red.max.s32).
// Emulated threads run one at a time.
SIE_DEVICE void reduce_max_global(int32_t *global, int32_t value) {
#ifdef __CUDACC__
  atomicMax(global, value);
#else
  simt::check_global(global, sizeof *global);
  if (value > *global) *global = value;
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_ATOMIC_H
