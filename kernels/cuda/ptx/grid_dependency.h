// grid_dependency.h — programmatic dependent launch (sm_90); nothing on other targets.
//
// wait is the first statement of every kernel, in every thread, but for reads of what no kernel that it
// may overtake writes (pool_join_kernel). It returns when the kernels before it in the stream have finished
// and their writes are visible. The emulator aborts where a thread of a pdl launch exits without it. launch
// allows the next kernel to start (up to its wait). It is an early hint: results need not be written yet.
#ifndef SIE_KERNELS_CUDA_PTX_GRID_DEPENDENCY_H
#define SIE_KERNELS_CUDA_PTX_GRID_DEPENDENCY_H

#include "cuda/ptx/device.h"

namespace ptx {

SIE_DEVICE void grid_dependency_wait() {
#ifndef __CUDACC__
  simt::grid_dependency_wait();
#elif SIE_PTX_SM90
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

SIE_DEVICE void grid_dependency_launch() {
#ifdef __CUDACC__
#if SIE_PTX_SM90
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
#endif
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_GRID_DEPENDENCY_H
