// special.h — reads special registers anew each time: a value that is cheap to read again need not
// hold a register through a long main loop.
#ifndef SIE_KERNELS_CUDA_PTX_SPECIAL_H
#define SIE_KERNELS_CUDA_PTX_SPECIAL_H

#include "cuda/ptx/device.h"

namespace ptx {

// blockIdx.x.
SIE_DEVICE int32_t block_index() {
#ifdef __CUDACC__
  uint32_t index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return static_cast<int32_t>(index);
#else
  return static_cast<int32_t>(blockIdx.x);
#endif
}

// threadIdx.x.
SIE_DEVICE int32_t thread_index() {
#ifdef __CUDACC__
  uint32_t index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return static_cast<int32_t>(index);
#else
  return static_cast<int32_t>(threadIdx.x);
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_SPECIAL_H
