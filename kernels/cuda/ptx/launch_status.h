// launch_status.h — what a code of cudaLaunchKernelEx means for the process. Plain C++, so that host
// programs without a toolkit and the stand-in for the driver have the same table.
//
// Source: cudaError_t in the CUDA Runtime API. The numbers are those of the driver's CUresult, but for
// 98, which only the runtime has. A code that is not here counts as sticky: "the process must be
// terminated and relaunched".
#ifndef SIE_KERNELS_CUDA_PTX_LAUNCH_STATUS_H
#define SIE_KERNELS_CUDA_PTX_LAUNCH_STATUS_H

#include "ops.h"

namespace ptx {

inline sie_status launch_status(int code) {
  switch (code) {
    case 0:
      return SIE_OK;
    case 2:  // memory allocation
      return SIE_OUT_OF_MEMORY;
    case 35:   // insufficient driver
    case 98:   // invalid device function
    case 209:  // no kernel image for the device
    case 801:  // not supported
      return SIE_UNSUPPORTED;
    case 1:    // invalid value
    case 9:    // invalid configuration
    case 701:  // launch out of resources
    case 912:  // invalid cluster size
    // A capture that cannot contain this launch; nothing runs.
    case 900:  // stream capture unsupported
    case 901:  // invalidated
    case 902:  // merge
    case 903:  // unmatched
    case 904:  // unjoined
    case 905:  // isolation
    case 906:  // implicit
    case 907:  // captured event
    case 908:  // wrong thread
      return SIE_INTERNAL;
    default:
      return SIE_DEVICE_LOST;
  }
}

}  // namespace ptx

#endif  // SIE_KERNELS_CUDA_PTX_LAUNCH_STATUS_H
