// registers.h — moves registers between the warps of a CTA (sm_90a): producer warpgroups give,
// consumers take. N is the count of a thread afterwards, a multiple of 8 in 24 … 256; all warps of
// a warpgroup call with one N. The kernel needs __launch_bounds__, which sets its count at the
// start. A no-op on other targets.
#ifndef SIE_KERNELS_CUDA_PTX_REGISTERS_H
#define SIE_KERNELS_CUDA_PTX_REGISTERS_H

#include "cuda/ptx/device.h"

namespace ptx {

template <int N>
SIE_DEVICE void registers_increase() {
  static_assert(N >= 24 && N <= 256 && N % 8 == 0, "a multiple of 8 in 24 … 256");
#ifndef __CUDACC__
  simt::set_registers(N);
#elif SIE_PTX_SM90A
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

template <int N>
SIE_DEVICE void registers_decrease() {
  static_assert(N >= 24 && N <= 256 && N % 8 == 0, "a multiple of 8 in 24 … 256");
#ifndef __CUDACC__
  simt::set_registers(N);
#elif SIE_PTX_SM90A
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_REGISTERS_H
